"""What is so now: what engines say, what alerting remembers, what a person names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speccli.core.alert.check import Asked
from speccli.core.alert.confirm import Confirm, Policy
from speccli.core.alert.examine import Terms
from speccli.core.alert.memory import Memory
from speccli.core.config import Settings
from speccli.core.errors import UsageError
from speccli.core.fallback.present import (
    Present,
    from_answer,
    with_batch,
    with_codes,
    with_remembered,
)
from speccli.core.findings.base import Finding
from speccli.core.oneshot import Answer
from speccli.core.sources.base import Scrape
from speccli.core.values import Number
from tests.core.findings.bodies import A, B, C, Engine, answer, silence, snapshot

AT = 1_795_000_000.0
LOW = Finding("LOW_ACCEPTANCE", "warning", "fleet", "0.21 under 0.4", "c", "a")
SLIDE = Finding("ACCEPTANCE_DRIFT", "critical", "fleet", "0.51 fell to 0.31", "c", "a")
SOURCE = Settings(deployment="chat", namespace="llm")
NOBODY = Present.nothing("no engine answers")


def _keep(
    tmp_path: Path,
    *findings: Finding,
    ago: float = 200.0,
    settings: Settings = SOURCE,
    name: str | None = None,
    command: str = "check",
) -> dict[str, str]:
    """What a check of this source left; the environment that leads there."""
    environment = {"SPECCTL_STATE": str(tmp_path)}
    confirm = Confirm(Policy())
    confirm.take(findings)
    memory = Memory(at=AT - ago, holds=confirm.to_json())
    path = Asked(settings, Terms(), name, None, environment).keeper(command).path
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(memory.to_json()))
    return environment


def _codes(now: Present) -> list[tuple[str, str]]:
    return [(each.finding.code, each.source) for each in now.findings]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        pytest.param({}, "alert check, 200 s ago", id="a-cron"),
        pytest.param({"command": "watch"}, "alert watch, 200 s ago", id="a-watch"),
        pytest.param({"name": "chat"}, "alert check, 200 s ago", id="named-as-the-deployment"),
        pytest.param(
            {"settings": Settings(deployment="chat")}, "alert check, 200 s ago", id="no-namespace"
        ),
    ],
)
def test_what_alerting_remembers_is_found_and_dated(
    tmp_path: Path, kept: dict[str, Any], said: str
) -> None:
    environment = _keep(tmp_path, SLIDE, **kept)
    now = with_remembered(NOBODY, SOURCE, "chat", environment, AT)
    assert _codes(now) == [("ACCEPTANCE_DRIFT", said)]
    assert now.unknown is None, "somebody did look"
    assert now.batch.value is None


@pytest.mark.parametrize(("dark", "known"), [(1, True), (2, False)])
def test_where_most_servers_are_not_to_be_read_the_others_do_not_speak_for_them(
    dark: int, known: bool
) -> None:
    def page(at: float, steps: float) -> list[Scrape]:
        told = answer(at, A, Engine(gen=steps * 8, running=8.0))
        return [told, *(silence(at, target) for target in (B, C)[:dark])]

    seen = snapshot(page(0.0, 100.0), page(10.0, 900.0))
    now = from_answer(Answer(seen, ()), "chat")
    assert (now.running.value == 8.0) is known
    assert (now.batch.value is not None) is known
    if not known:
        assert now.unknown == "2 of 3 engines could not be read: connect refused"


@pytest.mark.parametrize(
    ("idle", "dark"),
    [
        pytest.param(1, 1, id="half"),
        pytest.param(2, 1, id="two-idle"),
        pytest.param(1, 2, id="most"),
    ],
)
def test_servers_that_run_nothing_do_not_speak_for_one_that_is_not_to_be_read(
    idle: int, dark: int
) -> None:
    def page(at: float) -> list[Scrape]:
        told = [
            answer(at, f"http://idle-{i}:8000", Engine(gen=800, running=0.0)) for i in range(idle)
        ]
        return [*told, *(silence(at, target) for target in (B, C)[:dark])]

    now = from_answer(Answer(snapshot(page(0.0), page(10.0)), ()), "chat")
    words = f"{dark} of {idle + dark} engines could not be read: connect refused"
    assert (now.batch.value, now.running.value) == (None, None)
    assert (now.batch.reason, now.running.reason, now.unknown) == (words, words, words)


def test_servers_that_all_can_be_read_and_run_nothing_are_idle() -> None:
    def page(at: float) -> list[Scrape]:
        return [answer(at, target, Engine(gen=800, running=0.0)) for target in (A, B)]

    now = from_answer(Answer(snapshot(page(0.0), page(10.0)), ()), "chat")
    assert (now.running.value, now.unknown) == (0.0, None)


def test_what_was_said_long_ago_says_nothing_of_now(tmp_path: Path) -> None:
    environment = _keep(tmp_path, SLIDE, ago=4000.0)
    assert with_remembered(NOBODY, SOURCE, "chat", environment, AT) is NOBODY


def test_another_deployments_memory_is_not_taken(tmp_path: Path) -> None:
    environment = _keep(tmp_path, SLIDE, settings=Settings(deployment="other", namespace="llm"))
    assert with_remembered(NOBODY, SOURCE, "chat", environment, AT) is NOBODY


@pytest.mark.parametrize("text", ["", "{", '{"schema": "other/v1"}', "[1]", "null"])
def test_a_memory_that_cannot_be_used_is_left_where_it_is(tmp_path: Path, text: str) -> None:
    environment = _keep(tmp_path, SLIDE)
    (file,) = (tmp_path / "alert").glob("*.json")
    file.write_text(text)
    assert with_remembered(NOBODY, SOURCE, "chat", environment, AT) is NOBODY
    assert [each.name for each in (tmp_path / "alert").iterdir()] == [file.name]
    assert file.read_text() == text


def test_each_finding_is_told_once_and_by_who_saw_it_last(tmp_path: Path) -> None:
    environment = _keep(tmp_path, LOW, SLIDE)
    live = with_codes(Present((), Number.known(8), Number.known(16)), ["LOW_ACCEPTANCE"])
    now = with_remembered(live, SOURCE, "chat", environment, AT)
    assert sorted(_codes(now)) == [
        ("ACCEPTANCE_DRIFT", "alert check, 200 s ago"),
        ("LOW_ACCEPTANCE", "by hand"),
    ]


def test_a_finding_by_hand_needs_no_engine() -> None:
    now = with_codes(NOBODY, ["zero_acceptance"])
    assert _codes(now) == [("ZERO_ACCEPTANCE", "by hand")]
    assert now.unknown is None


def test_a_finding_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--finding LOW_ACCEPTNCE: no finding") as caught:
        with_codes(NOBODY, ["LOW_ACCEPTNCE"])
    assert caught.value.hint == "did you mean LOW_ACCEPTANCE?"


def test_a_batch_by_hand_beats_the_engines() -> None:
    now = with_batch(Present((), Number.known(8, reason="live"), Number.known(16)), 64)
    assert (now.batch.value, now.batch.reason) == (64, "--batch")
    assert with_batch(NOBODY, None) is NOBODY
    for wrong in (0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=f"--batch {wrong:g}: at least 1"):
            with_batch(NOBODY, wrong)
