"""`fallback apply --proposal ID` as it is typed: made as it is, or only shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import speccli.commands.fallback as command
from speccli.core.baseline import Baseline, Key
from speccli.core.fallback import carrying
from speccli.core.fallback.carrying import Ended
from tests.core.fallback.watched import ZERO, Watched
from tests.support.recordings import specctl


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A deployment for which a proposal stands."""
    made = Watched(auto=False)
    made.signs["eagle3"] = (ZERO,)
    made.look(seconds=120)
    monkeypatch.setattr(command, "connector", lambda *_: made.connect)
    return made


def proposal(watched: Watched) -> str:
    standing = watched.kept.state.proposal
    assert standing is not None
    return standing.id


@pytest.mark.parametrize(
    "more",
    [
        ("--rung", "none"),
        ("--accept", "X"),
        ("--timeout", "1m"),
        ("--no-wait",),
        ("--to", "local"),
    ],
)
def test_what_would_change_it_is_refused(watched: Watched, more: tuple[str, ...]) -> None:
    answer = specctl("fallback", "apply", "chat", "--proposal", proposal(watched), *more)
    assert answer.exit_code == 64
    assert "does not go with --proposal" in answer.stderr
    assert watched.audit == ["proposed"]


def test_a_dry_run_and_files_show_it_and_take_nothing_up(watched: Watched, tmp_path: Path) -> None:
    words = ("fallback", "apply", "chat", "--proposal", proposal(watched))
    answer = specctl(*words, "--dry-run", "-o", "json")
    assert answer.exit_code == 0, answer.stderr
    assert json.loads(answer.stdout)["dry_run"] is True
    assert specctl(*words, "--out", str(tmp_path / "files")).exit_code == 0
    assert list((tmp_path / "files").iterdir())
    assert watched.audit == ["proposed"]
    assert watched.world.record.current.number == 1
    answer = specctl("fallback", "apply", "chat", "--proposal", "0000", "--dry-run")
    assert (answer.exit_code, "no proposal 0000" in answer.stderr) == (64, True)


def test_it_is_made_and_told_as_json(watched: Watched) -> None:
    told = proposal(watched)
    answer = specctl("fallback", "apply", "chat", "--proposal", told, "-o", "json")
    assert answer.exit_code == 0, answer.stderr
    made = json.loads(answer.stdout)
    assert (made["schema"], made["exit"], made["proposal"]["id"]) == (
        "specctl.fallback/v1",
        0,
        told,
    )
    assert made["proposal"]["outcome"] == "done"
    assert watched.audit == ["proposed", "accepted", "done"]


def test_a_canary_of_it_is_held_to_the_baseline_that_it_was_proposed_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Watched(auto=False)
    made.world.go()
    made.baselines = (Baseline("prod", Key(method="eagle3", k=3), 0.71, 2.0, (), 1e4),)
    made.look(seconds=3900, watch=made.another(auto=False))
    monkeypatch.setattr(command, "connector", lambda *_: made.connect)
    held: list[float | None] = []

    def carried(*_: object, baseline: float | None = None, **__: object) -> Ended:
        held.append(baseline)
        return Ended("inconclusive", "metrics are gone", 1.0)

    monkeypatch.setattr(carrying, "carried", carried)
    answer = specctl("fallback", "apply", "chat", "--proposal", proposal(made))
    assert (answer.exit_code, held) == (3, [0.71])
