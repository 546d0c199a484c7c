"""Begun again while nobody answers, for so long and no longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speccli.core.errors import ExitCode, SpecctlError
from speccli.core.fallback.retry import ABSENCES, AWAY_S, persistently
from speccli.core.kube.errors import Denied, TimedOut
from tests.core.deploy.test_cluster import Heard


class Tries:
    """Each try takes so many seconds, and then nobody answers; after the last one does."""

    def __init__(self, *seconds: float) -> None:
        self.now, self.heard = 0.0, Heard()
        self._takes: Iterator[float] = iter(seconds)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def once(self) -> str:
        for takes in self._takes:
            self.now += takes
            raise TimedOut("no answer from https://api within 10 s")
        return "done"

    def run(self) -> str:
        return persistently(self.once, self.heard, clock=lambda: self.now, sleep=self.sleep)


def test_an_absence_of_less_than_five_minutes_is_waited_for() -> None:
    tries = Tries(*[10.0] * 12)
    assert tries.run() == "done"
    assert 200 < tries.now < AWAY_S


def test_a_longer_one_is_said_in_one_line_with_its_length_and_what_to_do() -> None:
    tries = Tries(*[10.0] * 100)
    with pytest.raises(
        SpecctlError, match=r"within 10 s, for (29\d|30\d) s in the middle"
    ) as caught:
        tries.run()
    assert caught.value.exit_code is ExitCode.UNKNOWN
    assert caught.value.hint == "what serves goes on; the same command completes what was begun"
    assert tries.now < AWAY_S + 30


def test_absences_with_answers_between_them_are_each_waited_for() -> None:
    tries = Tries(10.0, 10.0, 600.0, 10.0, 600.0, 10.0, 10.0)
    assert tries.run() == "done"
    assert tries.now > 4 * AWAY_S


def test_a_late_call_that_nobody_ever_answers_is_given_up() -> None:
    """A webhook that hangs: the calls before it are answered, so that each try is a long one."""
    tries = Tries(*[31.0] * 5000)
    with pytest.raises(SpecctlError, match=f", {ABSENCES} times in the middle of a move"):
        tries.run()
    assert tries.now < 2 * AWAY_S


def test_a_refusal_is_no_absence() -> None:
    tries = Tries()

    def refused() -> str:
        raise Denied("not allowed")

    with pytest.raises(Denied, match="not allowed"):
        persistently(refused, tries.heard, clock=lambda: tries.now, sleep=tries.sleep)
    assert tries.now == 0
