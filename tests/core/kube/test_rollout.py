"""A watch ends when all is new, when it has failed, or when its time is over."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.errors import NotAuthorisedError
from speccli.core.kube import rollout
from speccli.core.kube.errors import Denied, Unreachable
from speccli.core.kube.progress import Phase, PodView, Progress
from speccli.core.kube.rollout import Ended, Stragglers, Watched, watch

Object = dict[str, Any]


class Cluster:
    """Gives one answer after the other, the last again and again; an error is raised."""

    def __init__(self, *answers: Object | Exception) -> None:
        self.answers = list(answers)

    def list(self, api_version: str, kind: str, namespace: str, labels: str) -> list[Object]:
        if kind != "Pod":
            return []
        if len(self.answers) > 1:
            self.now = self.answers.pop(0)
        else:
            self.now = self.answers[0]
        if isinstance(self.now, Exception):
            raise self.now
        return []

    def get(self, *_: Any) -> Object:
        assert isinstance(self.now, dict)
        return self.now


def deployment(available: int) -> Object:
    status = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}
    return {
        "metadata": {"name": "chat", "generation": 1},
        "spec": {"replicas": 2},
        "status": {**status, "availableReplicas": available},
    }


def watched(
    *answers: Object | Exception, timeout_s: float = 60.0
) -> tuple[Ended, list[Progress], list[str]]:
    now = [0.0]
    shown: list[Progress] = []
    said: list[str] = []

    def sleep(seconds: float) -> None:
        now[0] += max(seconds, 0.1)

    ended = watch(
        Cluster(*answers),  # type: ignore[arg-type]
        Watched("llm", "chat", ("chat",), timeout_s),
        shown.append,
        said.append,
        clock=lambda: now[0],
        sleep=sleep,
    )
    return ended, shown, said


def test_it_ends_when_every_pod_serves() -> None:
    ended, shown, said = watched(deployment(0), deployment(1), deployment(2))
    assert ended.end == "done"
    assert [each.serving for each in shown] == [0, 1, 2]
    assert said == []


def test_an_api_server_that_is_away_for_a_while_is_waited_for_and_told_once() -> None:
    away = Unreachable("no answer from the API server")
    ended, _, said = watched(deployment(1), away, away, away, deployment(2))
    assert ended.end == "done"
    assert said == [
        "no answer from the API server; the rollout goes on by itself, asking again",
        "the API server answers again",
    ]


def test_one_that_stays_away_is_an_error_when_the_time_is_over() -> None:
    with pytest.raises(Unreachable):
        watched(deployment(1), Unreachable("no answer"))


def test_one_that_does_not_let_us_is_an_error_at_once() -> None:
    with pytest.raises(NotAuthorisedError):
        watched(Denied("not allowed"), deployment(2))


def test_the_time_is_over() -> None:
    ended, shown, _ = watched(deployment(1), timeout_s=7.0)
    assert (ended.end, ended.why) == ("late", "the controller is not done")
    assert len(shown) == 5


# ---- servers that find no node ----


def pod(number: int, phase: Phase, trouble: str | None = None, *, fresh: bool = True) -> PodView:
    detail = "0/1 nodes are available: 2 Insufficient nvidia.com/gpu" if trouble else "serving"
    return PodView(f"chat-{number}", "standby", phase, detail, fresh, trouble=trouble)


READY, LOADS = pod(1, "ready"), pod(2, "weights")
NO_NODE = pod(3, "scheduling", "Unschedulable")


def told(*looks: tuple[float, tuple[PodView, ...]]) -> str | None:
    stragglers = Stragglers(20.0)
    said = [stragglers.told(Progress((), pods), now) for now, pods in looks]
    assert not any(said[:-1])
    return said[-1]


def test_what_finds_no_node_while_the_others_serve_is_told_after_its_time() -> None:
    words = told((0, (READY, NO_NODE)), (19, (READY, NO_NODE)), (20, (READY, NO_NODE)))
    assert words == f"1 of 2 servers do not come: chat-3: {NO_NODE.detail}"


@pytest.mark.parametrize(
    "between",
    [
        pytest.param((READY, LOADS, NO_NODE), id="another-still-loads"),
        pytest.param((READY, pod(3, "scheduling")), id="the-scheduler-has-not-looked"),
        pytest.param((NO_NODE,), id="nobody-serves"),
        pytest.param((READY, pod(3, "ready")), id="all-serve"),
        pytest.param((pod(1, "ready", fresh=False), NO_NODE), id="only-a-former-one-serves"),
    ],
)
def test_its_time_begins_anew_where_there_is_more_to_wait_for(between: tuple[PodView, ...]) -> None:
    first = (READY, NO_NODE)
    assert told((0, first), (15, between), (30, first), (49, first)) is None
    assert told((0, first), (15, between), (30, first), (50, first)) is not None


@pytest.mark.parametrize(("stragglers_s", "end"), [(20.0, "done"), (None, "late")])
def test_a_rollout_is_done_without_them_where_that_was_asked_for(
    stragglers_s: float | None, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Progress((), (READY, NO_NODE))
    monkeypatch.setattr(rollout, "look", lambda *_: seen)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += max(seconds, 0.1)

    ended = watch(
        Cluster(),  # type: ignore[arg-type]
        Watched("llm", "chat", ("chat-standby",), 60.0, stragglers_s),
        lambda _: None,
        pytest.fail,
        clock=lambda: now[0],
        sleep=sleep,
    )
    assert ended.end == end
    assert "2 Insufficient nvidia.com/gpu" in ended.why
    assert now[0] == (20.0 if stragglers_s else 60.0)
