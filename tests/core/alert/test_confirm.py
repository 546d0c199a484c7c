"""N of M, clearing, and what is said at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from speccli.core.alert.confirm import Confirm, Policy, lenient
from speccli.core.errors import UsageError
from speccli.core.findings.base import Finding, Severity, Thresholds


def found(
    code: str = "QUEUE_WAIT", subject: str = "a:8000/0", severity: Severity = "warning"
) -> Finding:
    return Finding(code, severity, subject, "evidence", "cause", "action")


def course(confirm: Confirm, *checks: Sequence[Finding]) -> list[list[str]]:
    return [[f.code for f in confirm.take(each).findings] for each in checks]


def test_a_finding_is_said_when_seen_in_n_of_the_last_m_checks() -> None:
    confirm = Confirm(Policy(2, 3))
    seen, not_seen = [found()], list[Finding]()
    assert course(confirm, seen, not_seen, seen) == [[], [], ["QUEUE_WAIT"]]


def test_what_was_seen_too_long_ago_does_not_count() -> None:
    seen, not_seen = [found()], list[Finding]()
    assert course(Confirm(Policy(2, 3)), seen, not_seen, not_seen, seen) == [[], [], [], []]


def test_it_is_over_after_so_many_checks_without_it_and_says_how_many() -> None:
    confirm = Confirm(Policy(1, 1, clear=3))
    confirm.take([found()])
    first = confirm.take([])
    assert "not seen for 1 of 3 checks" in first.findings[0].evidence
    assert not first.changes
    confirm.take([])
    assert [(c.kind, c.finding.code) for c in confirm.take([]).changes] == [
        ("resolved", "QUEUE_WAIT")
    ]


def test_seen_again_in_between_the_count_begins_anew() -> None:
    confirm = Confirm(Policy(1, 1, clear=2))
    kinds = [
        [c.kind for c in confirm.take(each).changes]
        for each in ([found()], [], [found()], [], [], [])
    ]
    assert kinds == [["firing"], [], [], [], ["resolved"], []]


@pytest.mark.parametrize(
    "code", ["ZERO_ACCEPTANCE", "STALLED", "SPEC_NOT_ACTIVE", "ACCEPTANCE_DRIFT", "LOW_ACCEPTANCE"]
)
def test_what_has_waited_or_need_not_is_said_at_once(code: str) -> None:
    said = Confirm(Policy(5, 5)).take([found(code, severity="critical")])
    assert [f.code for f in said.findings] == [code]


def test_what_waits_is_told_apart_with_its_count() -> None:
    said = Confirm(Policy(2, 3)).take([found()])
    assert said.findings == ()
    assert said.pending[0].evidence == "evidence (seen in 1 of the last 1 checks, 2 needed)"


def test_a_note_needs_no_confirmation_and_is_no_change() -> None:
    said = Confirm(Policy(2, 3)).take([found("NO_TRAFFIC", severity="info")])
    assert [f.code for f in said.findings] == ["NO_TRAFFIC"]
    assert said.changes == ()


def test_that_nothing_is_seen_when_nothing_could_be_read_means_nothing() -> None:
    confirm = Confirm(Policy(1, 1))
    confirm.take([found()])
    assert confirm.take([], blind=True).changes == ()
    assert [c.kind for c in confirm.take([]).changes] == ["resolved"]


def test_a_worse_severity_is_a_change_and_not_a_new_finding() -> None:
    confirm = Confirm(Policy(1, 1))
    confirm.take([found()])
    said = confirm.take([found(severity="critical")])
    assert [c.kind for c in said.changes] == ["changed"]


def test_a_number_must_get_better_than_it_needed_to_be() -> None:
    confirm = Confirm(Policy(1, 1))
    assert confirm.take([], [found()]).findings == ()  # not firing: the lenient view is no finding
    confirm.take([found()])
    assert [f.code for f in confirm.take([], [found()]).findings] == ["QUEUE_WAIT"]
    assert confirm.take([], []).findings == ()


def test_a_fault_of_an_engine_that_becomes_the_fleets_is_no_news() -> None:
    confirm = Confirm(Policy(2, 2))
    confirm.take([found(subject="a:8000/0")])
    said = confirm.take([found(subject="fleet")])
    assert [f.subject for f in said.findings] == ["fleet"]
    assert [c.kind for c in said.changes] == ["firing"]
    assert confirm.take([found(subject="b:8000/0")]).changes == ()


def test_the_state_goes_on_in_another_process() -> None:
    first = Confirm(Policy(2, 3))
    first.take([found()])
    second = Confirm(Policy(2, 3), first.to_json())
    assert [f.code for f in second.take([found()]).findings] == ["QUEUE_WAIT"]


@pytest.mark.parametrize("state", [7, [1], [["a"]], [["a", "b", [1], 1, 0, {"x": 1}]], "text", {}])
def test_a_state_that_is_none_is_dropped(state: object) -> None:
    assert Confirm(Policy(), state).take([found()]).findings


@pytest.mark.parametrize(
    ("text", "policy"),
    [("2/3", (2, 3)), ("2 of 3", (2, 3)), ("3", (3, 3)), (" 1/1 ", (1, 1))],
)
def test_a_policy_as_people_write_it(text: str, policy: tuple[int, int]) -> None:
    parsed = Policy.parse(text, 2)
    assert (parsed.need, parsed.of, parsed.clear) == (*policy, 2)


@pytest.mark.parametrize("text", ["", "3/2", "0/3", "a/b", "1/1000", "-1/2", "2/3/4"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--confirm"):
        Policy.parse(text, 1)


def test_the_lenient_thresholds_are_harder_to_keep() -> None:
    usual = Thresholds(queue_wait_ms=200, ttft_p99_ms=100, tpot_p99_ms=50, cost_per_1m_usd=1)
    easier = lenient(usual)
    assert easier.acceptance_floor > usual.acceptance_floor
    assert easier.queue_wait_ms == 190
    assert easier.hold_s == 0
    assert replace(easier, queue_wait_ms=None) == lenient(replace(usual, queue_wait_ms=None))
