"""Days of a draft that wanders about its threshold: never more moves than the budget, none at
night, and an end to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from speccli.core.alert.confirm import Policy
from speccli.core.alert.examine import Examiner
from speccli.core.alert.examine import Terms as Held
from speccli.core.alert.memory import Memory
from speccli.core.fallback.policy import MOST_REFUSALS, after, decide
from speccli.core.fallback.quiet import Quiet
from speccli.core.fallback.terms import Go, Kind, Moved, Outcome, Sign, Situation, State, Terms
from speccli.core.findings import Thresholds
from speccli.core.stats.window import Settings, Window
from tests.core.fallback.situations import LADDER, NOON, nights
from tests.core.findings.bodies import A, B, Engine, answer

DAY = 86400
STEP = 30
Signs = Callable[[int, int], tuple[Sign, ...]]
"""What is found, seconds into the day and at which rung."""
Canary = Callable[[int], Outcome]


def day(signs: Signs, terms: Terms, canary: Canary, *, days: int = 1, start: float = NOON) -> State:
    """The watch's loop without the world; a move takes three minutes."""
    state, at = State(), 0
    names = [step.name for step in LADDER]
    rung, busy = 0, 0
    now_is = Situation("c1", 1, LADDER, 0)
    every: list[Moved] = []
    for at in range(0, days * DAY, STEP):
        if at < busy:
            continue
        now_is = replace(now_is, at=rung, signs=signs(at, rung), standby=2)
        decision, state = decide(state, now_is, terms, start + at)
        if isinstance(decision, Go):
            move = decision.move
            outcome: Outcome = "done" if move.kind == "down" else canary(at)
            made = Moved(start + at, move.kind, move.source, move.target, outcome)
            every.append(made)
            state = after(state, made)
            if outcome == "done":
                rung, busy = names.index(move.target), at + 180
                now_is = replace(now_is, revision=now_is.revision + 1)
    return replace(state, moves=tuple(every))


def within_budget(state: State, terms: Terms) -> None:
    times = [made.at for made in state.moves]
    for at in times:
        assert sum(at <= t < at + 3600 for t in times) <= terms.moves_per_hour
    assert not any(terms.quiet.holds(t) for t in times)


def wander(seed: int, *, slow_s: float) -> Iterator[float]:
    """An Ornstein-Uhlenbeck path about 0.4, by steps."""
    rng, x, pull = random.Random(seed), 0.4, STEP / slow_s
    while True:
        x += pull * (0.4 - x) + 0.05 * math.sqrt(2 * pull) * rng.gauss(0, 1)
        yield min(0.95, max(0.0, x))


LOW = Sign("LOW_ACCEPTANCE", "warning", "low")
NIGHTLY = Terms(auto=True, quiet=nights())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slow_s", [120.0, 1200.0, 7200.0])
def test_a_wandering_draft_moves_a_few_times_and_then_stays_down(seed: int, slow_s: float) -> None:
    rates = wander(seed, slow_s=slow_s)
    path = [next(rates) for _ in range(3 * DAY // STEP)]

    def signs(at: int, rung: int) -> tuple[Sign, ...]:
        return (LOW,) if rung == 0 and path[at // STEP] < 0.4 else ()

    state = day(signs, NIGHTLY, lambda at: "done" if path[at // STEP] >= 0.4 else "refused", days=3)
    within_budget(state, NIGHTLY)
    ups = sum(made.kind == "restore" for made in state.moves)
    downs = sum(made.kind == "down" for made in state.moves)
    assert downs <= MOST_REFUSALS + 1
    assert ups <= MOST_REFUSALS


@pytest.mark.parametrize("period_s", [60, 300, 660, 1800, 7200])
@pytest.mark.parametrize("severity", ["warning", "critical"])
@pytest.mark.parametrize("canary", ["done", "refused", "inconclusive", "failed"])
def test_square_waves_of_any_period_stay_within_the_budget(
    period_s: int, severity: str, canary: Outcome
) -> None:
    def signs(at: int, rung: int) -> tuple[Sign, ...]:
        bad = (at // (period_s // 2 or 1)) % 2 == 0
        return (replace(LOW, severity=severity),) if rung == 0 and bad else ()

    state = day(signs, NIGHTLY, lambda _: canary)
    within_budget(state, NIGHTLY)
    assert sum(made.kind == "down" for made in state.moves) <= MOST_REFUSALS + 1


def test_an_adversary_who_is_bad_wherever_one_goes_is_fled_from_once() -> None:
    bad = Sign("ZERO_ACCEPTANCE", "critical", "nothing")
    state = day(lambda _at, _rung: (bad,), NIGHTLY, lambda _: "refused")
    within_budget(state, NIGHTLY)
    assert [(made.kind, made.target) for made in state.moves] == [
        ("down", "ngram"),
        ("down", "off"),
    ]


def test_an_adversary_who_knows_the_policy_is_bounded_by_it() -> None:
    """Well for as long as it is tried in a canary, and bad as soon as it serves again."""
    terms = replace(NIGHTLY, quiet=Quiet(), hold_s=30.0, cool_down_s=0.0, restore_after_s=60.0)
    state = day(lambda _at, rung: (LOW,) if rung == 0 else (), terms, lambda _: "done", days=3)
    within_budget(state, terms)
    kinds: list[Kind] = [made.kind for made in state.moves]
    assert kinds == ["down", "restore"] * MOST_REFUSALS + ["down"]


# ---- with the judge ----


class Fleet:
    """Two servers whose acceptance wanders, read as the watch reads them."""

    def __init__(self, seed: int, slow_s: float) -> None:
        self._rates = wander(seed, slow_s=slow_s)
        self._sums = {A: [0.0, 0.0, 0.0], B: [0.0, 0.0, 0.0]}
        self.terms = Held(
            Thresholds(acceptance_floor=0.4, hold_s=600.0), policy=Policy(need=1, of=1, clear=3)
        )
        self._cut()
        self._rung = 0

    def _cut(self) -> None:
        self._window = Window(Settings(window_s=300.0, stale_s=75.0, method="eagle3"))
        self._examiner = Examiner(self.terms, Memory())

    def signs(self, at: int, rung: int) -> tuple[Sign, ...]:
        if rung != self._rung:
            self._rung = rung
            self._cut()
        rate = next(self._rates) if rung == 0 else 0.2  # n-gram's is no matter of this floor
        scrapes = []
        for target, sums in self._sums.items():
            drafts = 50.0 * STEP
            sums[0] += drafts
            sums[1] += 3 * drafts
            sums[2] += round(3 * drafts * rate)
            pos = [sums[2] / 3] * 3
            engine = Engine(
                gen=sums[0] + sums[2], dt=sums[1], acc=sums[2], dr=sums[0], pos=pos, running=4
            )
            scrapes.append(answer(at, target, engine))
        self._window.push(scrapes)
        snapshot = self._window.snapshot()
        if rung > 0:
            return ()  # judged by its own label, which has no floor
        verdict = self._examiner.examine(snapshot)
        return tuple(Sign(f.code, f.severity, f.evidence) for f in verdict.findings)


@pytest.mark.parametrize(("seed", "slow_s"), [(1, 300.0), (2, 1800.0), (3, 7200.0)])
def test_a_day_under_the_real_judge_stays_within_the_budget(seed: int, slow_s: float) -> None:
    fleet = Fleet(seed, slow_s)
    rng = random.Random(seed)
    state = day(fleet.signs, NIGHTLY, lambda _: "done" if rng.random() < 0.5 else "refused", days=1)
    within_budget(state, NIGHTLY)
    assert sum(made.kind == "down" for made in state.moves) <= MOST_REFUSALS + 1
    if slow_s > 1000:
        assert state.moves  # the judge does find it
