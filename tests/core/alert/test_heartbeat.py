"""What `alert watch` says of itself."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from speccli.core.alert.endpoint import address
from speccli.core.alert.heartbeat import Heartbeat
from speccli.core.alert.verdict import Verdict, failed
from speccli.core.errors import SourceError, UsageError
from speccli.core.findings.base import Finding
from tests.core.findings.bodies import A, answer, begun, good, snapshot

READ = snapshot([answer(0, A, begun(good()))], [answer(60, A, good())])
FOUND = Finding("STALLED", "critical", 'a"b\\c', "e", "c", "a")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def beating(clock: Clock) -> Heartbeat:
    return Heartbeat('pr"od', 15.0, 0.4, 0.75, clock=clock, steady=clock)


def values(page: str) -> dict[str, float]:
    """By family; a page that cannot be parsed raises."""
    families = text_string_to_metric_families(page)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_the_page_says_when_a_check_last_succeeded_and_what_it_found() -> None:
    clock = Clock()
    heart = beating(clock)
    heart.beat(Verdict("critical", "w", (FOUND,), snapshot=READ))
    told = values(heart.page())
    assert told["specctl_alert_last_success_timestamp_seconds"] == 1000.0
    assert told["specctl_alert_exit_code"] == 2
    assert told["specctl_alert_findings"] == 1
    assert told["specctl_alert_acceptance_rate"] == pytest.approx(1250 / 3000)
    assert told["specctl_alert_acceptance_baseline"] == 0.75
    assert 'deployment="pr\\"od"' in heart.page()


def test_a_check_without_data_is_no_success() -> None:
    clock = Clock()
    heart = beating(clock)
    heart.beat(failed(SourceError("gone")))
    told = values(heart.page())
    assert "specctl_alert_last_success_timestamp_seconds" not in told
    assert (told["specctl_alert_failures_total"], told["specctl_alert_exit_code"]) == (1, 3)


def test_it_is_healthy_while_checks_succeed() -> None:
    clock = Clock()
    heart = beating(clock)
    assert heart.healthy
    clock.now += 46
    assert not heart.healthy
    heart.beat(Verdict("ok", "w", snapshot=READ))
    assert heart.healthy


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("9467", ("127.0.0.1", 9467)),
        (":1", ("127.0.0.1", 1)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::]:9", ("::", 9)),
    ],
)
def test_addresses(text: str, pair: tuple[str, int]) -> None:
    assert address(text) == pair


@pytest.mark.parametrize("text", ["", "host", "host:port", "1:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        address(text)
