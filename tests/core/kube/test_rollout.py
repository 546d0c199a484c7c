"""A watch ends when all is new, when it has failed, or when its time is over."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.errors import NotAuthorisedError
from speccli.core.kube.errors import Denied, Unreachable
from speccli.core.kube.progress import Progress
from speccli.core.kube.rollout import Ended, Watched, watch

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
