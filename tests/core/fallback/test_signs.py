"""From findings and crashes to signs: shares, severities, and whose fault an end was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccli.core.alert.judgement import Drift, Judgement
from speccli.core.baseline import Key
from speccli.core.fallback.signs import Crashes, signs
from speccli.core.findings.base import FLEET, Finding
from speccli.core.findings.spec_not_active import configured_without
from speccli.core.stats.mix import Verdict
from speccli.core.stats.snapshot import Snapshot
from tests.core.findings.bodies import A, B, C, answer, good, silence, snapshot, zero
from tests.support.pods import container, pod

LOGS = Path(__file__).parents[2] / "data" / "vllm-crashes"
GRAMMAR = "Traceback\n  grammar.validate_tokens(tokens)\nAssertionError\n"


def fleet(*down: str) -> Snapshot:
    """Three servers of one engine each."""
    rounds = []
    for at, engine in ((0, zero()), (60, good())):
        rounds.append([silence(at, t) if t in down else answer(at, t, engine) for t in (A, B, C)])
    return snapshot(*rounds)


def found(subject: str, code: str = "ZERO_ACCEPTANCE", severity: Any = "critical") -> Finding:
    return Finding(code, severity, subject, "n=1", "cause", "action")


def test_a_share_is_of_the_engines_that_serve() -> None:
    (one,) = signs(fleet(), [found("a:8000/0")], None)
    assert one.share == pytest.approx(1 / 3)
    (two,) = signs(fleet(), [found("a:8000/0"), found("b:8000/*")], None)
    assert two.share == pytest.approx(2 / 3)
    (all_,) = signs(fleet(), [found(FLEET)], None)
    assert (all_.share, all_.evidence) == (1.0, "fleet: n=1")


def test_it_is_as_severe_as_it_is_for_most() -> None:
    low = [found(f"{n}:8000/0", "ACCEPTANCE_DRIFT", "warning") for n in "ab"]
    worst = found("c:8000/0", "ACCEPTANCE_DRIFT", "critical")
    (sign,) = signs(fleet(), [worst, *low], None)
    assert (sign.severity, sign.share) == ("warning", 1.0)
    (sign,) = signs(fleet(), [replace(each, severity="critical") for each in low], None)
    assert sign.severity == "critical"


def test_a_server_without_a_configuration_has_no_draft_that_could_be_bad() -> None:
    lost = replace(
        found("a:8000/0", "SPEC_NOT_ACTIVE", "critical"),
        cause="the server says that it runs without a speculative configuration",
    )
    assert configured_without(lost)
    assert signs(fleet(), [lost], None) == ()
    (sign,) = signs(fleet(), [replace(lost, cause="configured, and never proposes")], None)
    assert sign.code == "SPEC_NOT_ACTIVE"


def test_infos_and_unknowns_are_no_signs() -> None:
    told = [found(FLEET, "ACCEPTANCE_DRIFT", "info"), found(FLEET, "METRICS_MISSING", "unknown")]
    assert signs(fleet(), told, None) == ()


@pytest.mark.parametrize(("kind", "sure"), [("draft", True), ("unclear", False)])
def test_a_fall_that_may_be_the_traffics_is_not_sure(kind: Any, sure: bool) -> None:
    drift = Drift(FLEET, 0.6, 0.4, None, 1000, 600, None, Verdict(kind, "words"), 8640)
    judgement = Judgement(None, Key(), drifts=(drift,))
    (sign,) = signs(fleet(), [found(FLEET, "ACCEPTANCE_DRIFT", "warning")], judgement)
    assert sign.sure is sure


def test_that_servers_do_not_answer_is_the_clusters_to_tell() -> None:
    assert (
        signs(fleet(A, B), [found("a:8000", "ENGINE_DOWN"), found(FLEET, "ENGINE_DOWN")], None)
        == ()
    )


# ---- crashes ----

NOW = 1_795_953_600.0


def ended(name: str, *, restarts: int, ready: bool, at: str = "2026-11-29T11:58:00Z") -> Any:
    last = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": at}}
    state = {"running": {"startedAt": at}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [container(state, restarts=restarts, last=last)],
    }
    return pod(name, status)


def well(name: str) -> Any:
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container({"running": {"startedAt": "2026-11-29T10:00:00Z"}})],
    }
    return pod(name, status)


class Pods:
    """A cluster that has pods and their logs."""

    def __init__(self, *pods: Any, log: str = GRAMMAR) -> None:
        self.pods, self.log, self.read = list(pods), log, 0

    def list(self, *_: Any, labels: Any) -> list[Any]:
        assert labels == {"specctl.dev/deployment": "chat", "specctl.dev/pool": "main"}
        return self.pods

    def logs(self, *_: Any, **__: Any) -> str:
        self.read += 1
        return self.log


def told(pods: Pods, crashes: Crashes | None = None) -> Any:
    crashes = crashes or Crashes(clock=lambda: NOW)
    return crashes.sign(pods, "prod", "chat", "main")  # type: ignore[arg-type]


def test_engines_that_end_in_speculation_are_a_sign() -> None:
    sign = told(Pods(ended("a", restarts=3, ready=False), ended("b", restarts=2, ready=True)))
    assert (sign.code, sign.severity, sign.share, sign.sure) == ("ENGINE_DOWN", "critical", 1, True)
    assert "GRAMMAR" in sign.evidence


def test_a_draft_whose_graphs_cannot_be_captured_is_left_for_another_method() -> None:
    log = (LOGS / "draft-graphs.log").read_text()
    sign = told(Pods(ended("a", restarts=3, ready=False), log=log))
    assert (sign.sure, sign.way) == (True, None)
    assert "DRAFT_GRAPHS" in sign.evidence


@pytest.mark.parametrize(
    ("log", "way"),
    [
        pytest.param(GRAMMAR, "none", id="whatever-drafts"),
        pytest.param(
            "NegativeError: Counters can only be incremented by non-negative amounts\n",
            None,
            id="this-method",
        ),
    ],
)
def test_a_grammar_ends_engines_whatever_drafts(log: str, way: str | None) -> None:
    assert told(Pods(ended("a", restarts=3, ready=False), log=log)).way == way


def test_pods_that_are_long_dead_are_no_servers() -> None:
    two = [ended(name, restarts=3, ready=False) for name in "ab"]
    dead = [pod(name, {"phase": "Failed", "reason": "Evicted"}) for name in "xy"]
    assert told(Pods(*two, *dead)).share == 1.0


def test_each_end_is_looked_into_once() -> None:
    pods, crashes = Pods(ended("a", restarts=3, ready=False)), Crashes(clock=lambda: NOW)
    assert told(pods, crashes) == told(pods, crashes)
    assert pods.read == 1
    pods.pods = [ended("a", restarts=4, ready=False)]
    told(pods, crashes)
    assert pods.read == 2


@pytest.mark.parametrize(
    ("pods", "share"),
    [
        pytest.param(Pods(well("a"), well("b")), None, id="nobody-ended"),
        pytest.param(Pods(ended("a", restarts=1, ready=True)), None, id="once-and-serving"),
        pytest.param(
            Pods(ended("a", restarts=9, ready=True, at="2026-11-29T10:00:00Z")), None, id="long-ago"
        ),
        pytest.param(
            Pods(ended("a", restarts=3, ready=False), log="No space left on device\n"),
            None,
            id="another-cause",
        ),
        pytest.param(
            Pods(ended("a", restarts=3, ready=False), well("b"), well("c")),
            1 / 3,
            id="one-of-three",
        ),
    ],
)
def test_what_is_not_speculations_or_not_of_most_moves_nothing(
    pods: Pods, share: float | None
) -> None:
    sign = told(pods)
    if share is None:
        assert sign is None
    else:
        assert sign.share == pytest.approx(share)


def test_an_end_of_unknown_cause_is_for_a_person() -> None:
    sign = told(Pods(ended("a", restarts=3, ready=False), log="something new\n"))
    assert sign.sure is False
