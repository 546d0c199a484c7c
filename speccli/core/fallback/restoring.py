"""Brings a draft back through a canary: tried in the traffic of what serves, then for all.

What a canary came to is written into the record's revision that made it. So a restore that was cut
short goes on where it was, and refusals of a configuration are remembered with the deployment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speccli.core.baseline import Baseline
from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked, Reporter
from speccli.core.deploy.prepare import now
from speccli.core.errors import ExitCode
from speccli.core.fallback import trial
from speccli.core.fallback.canary import Comparison, Sample, Verdict
from speccli.core.fallback.held import held, rate_of
from speccli.core.fallback.ladder import Ladder
from speccli.core.fallback.moving import Connect, Mover, Terms
from speccli.core.fallback.ours import Ours
from speccli.core.fallback.outcome import Outcome, doubt, refuted
from speccli.core.fallback.pools import Warm
from speccli.core.fallback.refusals import (
    MOST_REFUSALS,
    configuration,
    is_held,
    last_trial,
    refusals,
    still_passed,
)
from speccli.core.fallback.retry import persistently
from speccli.core.fallback.serving import Serving, serving
from speccli.core.fallback.way_back import nowhere, target_of, with_canary
from speccli.core.fallback.ways import on_cluster
from speccli.core.kube.record import Revision

_AS_GOOD = 0.9
"""Share of the canary's acceptance of the same prompts that the main pool's servers must reach to
have loaded the same draft."""


@dataclass(frozen=True, slots=True)
class Restored:
    """How a restore went."""

    name: str
    namespace: str
    verdict: Verdict
    words: str
    """All of it in a line."""
    refusals: int = 0
    """How often this configuration has been refused, this time included."""
    comparison: Comparison | None = None
    """What the canary showed; None: it never came to that."""
    moved: Outcome | None = None
    """The move that a canary which passed came to."""

    @property
    def exit_code(self) -> ExitCode:
        """The contract's."""
        if self.moved is not None:
            return self.moved.exit_code
        codes = {"refused": ExitCode.CRITICAL, "inconclusive": ExitCode.UNKNOWN}
        return codes.get(self.verdict, ExitCode.OK)


def restore(
    connect: Connect,
    namespace: str | None,
    name: str,
    reporter: Reporter,
    *,
    force: bool = False,
    accept: Sequence[str] = (),
    timeout_s: float | None = None,
    baseline: Baseline | float | None = None,
    window_s: float = trial.WINDOW_S,
    lasting_s: float = trial.LASTING_S,
    dark_s: float = trial.DARK_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Restored:
    """Bring back what fallbacks led away from, once a canary of it has passed.

    Args:
        connect: A cluster, each of whose calls may take so many seconds; None: the usual.
        namespace: None: the context's.
        name: The deployment.
        reporter: Who is told.
        force: Whether what was refused before is tried all the same.
        accept: Critical findings of the cluster that keep nothing out.
        timeout_s: For each rollout; None: by the pods' own budgets.
        baseline: Of the draft when it was well, or its acceptance rate; None: the floor alone.
        window_s: Over how long canary and siblings are compared at a time.
        lasting_s: How long a canary is tried at most.
        dark_s: How long either side's metrics may be gone.
        clock: Seconds.
        sleep: Between looks.

    Raises:
        UsageError: there is no such deployment, nothing to bring back, or another's baseline.
        SpecctlError: the cluster refuses, does not answer within the deadline, or somebody else
            deploys meanwhile. The same call goes on with what was begun.
    """
    connect(None)  # who is not to be reached at all is not waited for
    terms = Terms(tuple(accept), True, timeout_s)
    times = (window_s, lasting_s, dark_s)
    ours = Ours(clock())
    tried: list[Serving] = []

    def once() -> Restored:
        found, place = on_cluster(connect(None), namespace, name)
        ours.sees(found.record)
        mover = Mover(connect, serving(found, place), reporter, terms, ours, clock, sleep)
        one = _Restore(found, mover, reporter, rate_of(baseline, found), times)
        return one.run(tried, force=force)

    return persistently(once, reporter, clock=clock, sleep=sleep)


class _Restore:
    """One restore of one deployment."""

    def __init__(
        self,
        found: Ladder,
        mover: Mover,
        reporter: Reporter,
        baseline: float | None,
        times: tuple[float, float, float],
    ) -> None:
        self._found, self._mover, self._reporter = found, mover, reporter
        self._here, self._cluster = mover.here, mover.cluster
        self._baseline, self._times = baseline, times
        self._record = found.record

    def run(self, tried_for: list[Serving], *, force: bool) -> Restored:
        """From wherever it is. `tried_for`: what this call has begun to bring back."""
        current, to = self._record.current, target_of(self._found, self._here)
        tried = last_trial(self._record, configuration((to or self._here).recipe))
        begun = current.restores is not None and current.state in {"applying", "applied"}
        passed = tried is not None and tried.get("verdict") == "passed"
        # What was asked after the last write may not have been answered.
        through = bool(tried_for) and current.restores is not None
        if to is None and ((begun and passed) or is_held(current) or through):
            return self._complete()
        if to is None:
            raise nowhere(self._found)
        tried_for.append(to)
        if current.trial is not None:
            return self._go_on(to, current.trial)
        if tried is not None and current.restores is None and still_passed(tried, to.recipe, now()):
            return self._passed(to, None, str(tried.get("words")))
        if tried is not None and begun:
            return self._taken_away(to, tried, None)
        if kept := held(self._record, self._mover, to, force=force):
            return self._told(kept.verdict, kept.words, kept.refusals)
        return self._try(to)

    # ---- the canary ----

    def _try(self, to: Serving) -> Restored:
        here = self._here
        what = {
            "of": to.revision.number,
            "from": here.revision.number,
            "configuration": configuration(to.recipe),
            "verdict": None,
            "words": None,
            "ended": None,
        }
        self._reporter.say(f"a canary with {to.words} is tried in the traffic of {here.words}")
        asked = replace(with_canary(self._here, to).asked(), trial=what, awaited=("canary",))
        return self._tried(to, asked)

    def _go_on(self, to: Serving, told: Mapping[str, Any]) -> Restored:
        """A restore whose canary is there, or half there."""
        verdict = told.get("verdict")
        if still_passed(told, to.recipe, now()):
            return self._passed(to, None, str(told.get("words")))
        if verdict == "passed" or told.get("configuration") != configuration(to.recipe):
            return self._try(to)  # what passed some time ago, or was another, says nothing now
        if verdict is not None:
            return self._taken_away(to, told, None)
        canary = serving(self._found, self._here.namespace, self._record.current)
        asked = replace(canary.asked(), trial=told, awaited=("canary",))
        return self._tried(to, asked)

    def _await_end(self, asked: Asked) -> None:
        """A former canary drains: what is applied to it now would go with it."""
        here, mover = self._here, self._mover
        unit = replace(here, recipe=asked.recipe).unit("canary")
        give_up = mover.clock() + unit.times.grace + 60
        while mover.clock() < give_up:
            live = self._cluster.get("apps/v1", "Deployment", unit.name, here.namespace)
            if live is None or not live["metadata"].get("deletionTimestamp"):
                return
            mover.sleep(1.0)

    def _tried(self, to: Serving, asked: Asked) -> Restored:
        self._await_end(asked)
        done = self._mover.deploy(asked, wait=True)
        self._record = done.record
        if wrong := refuted(done):
            return self._judged(to, None, "refused", wrong)
        if done.ended is not None and done.ended.end == "late":
            return self._judged(to, None, "inconclusive", doubt(done) or "not ready in time")
        pods = done.ended.progress.pods if done.ended else ()
        found = trial.watch(
            self._cluster,
            replace(self._watched(to), restarts={pod.name: pod.restarts for pod in pods}),
            self._reporter,
            clock=self._mover.clock,
            sleep=self._mover.sleep,
        )
        return self._judged(to, found, found.verdict, found.words)

    def _watched(self, to: Serving) -> trial.Watched:
        here, recipe = self._here, to.recipe
        sample = Sample(
            recipe.fallback.canary_drafts,
            recipe.alerts.acceptance_floor,
            self._baseline,
            drafting=recipe.draft.method != "none",
        )
        method = recipe.draft.method
        return trial.Watched(here.namespace, here.name, here.traffic, method, sample, *self._times)

    def _judged(
        self, to: Serving, found: Comparison | None, verdict: Verdict, words: str
    ) -> Restored:
        """Write down what it came to, before anything is done about it."""
        told = {**(self._record.current.trial or {}), "verdict": verdict, "words": words}
        told["ended"] = now()
        place = self._here.namespace
        self._record = deploying.amend(self._cluster, place, self._record, trial=told)
        if verdict == "passed":
            return self._passed(to, found, words)
        self._reporter.warn(f"the canary is {_SAID[verdict]}: {words}")
        return self._taken_away(to, told, found)

    def _taken_away(
        self, to: Serving, told: Mapping[str, Any], found: Comparison | None
    ) -> Restored:
        """Without the canary as before; what it came to."""
        here = self._here
        asked = replace(here.asked(), restores=int(told["from"]), awaited=(here.traffic,))
        done = self._mover.deploy(asked, wait=True)
        verdict: Verdict = "refused" if told.get("verdict") == "refused" else "inconclusive"
        words = f"{to.words} is {_SAID[verdict]}: {told.get('words')}; {here.words} serves on"
        count = refusals(done.record, configuration(to.recipe)).count
        if verdict == "refused" and count >= MOST_REFUSALS:
            words += f"; refused {count} times, it stays down"
        return self._told(verdict, words, count, found)

    # ---- for all ----

    def _passed(self, to: Serving, found: Comparison | None, words: str) -> Restored:
        self._reporter.say(f"the canary passed ({words}): {to.words} for all")
        moved = self._move(to)
        if moved.end == "stayed" and not moved.under_way:
            told = f"{moved.words}; the canary passed: {words}"
            return self._told("inconclusive", told, 0, found)
        told = moved.words if moved.end != "moved" else f"{moved.words}; the canary: {words}"
        return replace(self._told("passed", told, 0, found), moved=moved)

    def _move(self, to: Serving) -> Outcome:
        """The traffic where the main pool has the draft, else its pods are replaced."""
        here, mover, number = self._here, self._mover, to.revision.number
        if here.traffic != "standby":
            return mover.roll(to, here, restores=number)
        if to.recipe.draft == here.recipe.draft:
            seen = mover.warm("main")
            stale = seen.sick or self._stale(seen)
            if stale is None:
                return mover.switch("main", seen, restores=number)
            self._reporter.warn(f"the main pool is started anew: {stale}")
            anew = {**here.options.restarted, "main": self._canary().number}
            return mover.behind(here.recipe, restores=number, restarted=anew)
        return mover.behind(to.recipe, restores=number)

    def _stale(self, seen: Warm) -> str | None:
        """Why the main pool's servers have not loaded what the canary has: the same prompts tell.

        A draft that was mended in place is in no server that was started before.
        """
        canary = _rate((self._canary().proof or {}).get("servers") or ())
        proof = seen.proof.to_json() if seen.proof else {}
        main = _rate(proof.get("servers") or ())
        if canary is None or main is None or main >= _AS_GOOD * canary:
            return None
        return f"it accepts {main:.2f} of the prompts of which the canary accepted {canary:.2f}"

    def _canary(self) -> Revision:
        """The revision that made the canary."""
        every = (self._record.current, *self._record.previous)
        return next((each for each in every if each.trial is not None), every[0])

    def _complete(self) -> Restored:
        """A return that was begun, to its end."""
        here, mover = self._here, self._mover
        before = next((r for r in self._record.previous if r.trial is None), here.revision)
        former = serving(self._found, here.namespace, before)
        switched = former.traffic != here.traffic
        moved = (
            mover.completed(former)
            if switched
            else mover.roll(here, former, restores=here.revision.restores)
        )
        return replace(self._told("passed", moved.words), moved=moved)

    def _told(
        self, verdict: Verdict, words: str, count: int = 0, found: Comparison | None = None
    ) -> Restored:
        here = self._here
        return Restored(here.name, here.namespace, verdict, words, count, found)


_SAID: Mapping[Verdict, str] = {
    "passed": "well",
    "refused": "refused",
    "inconclusive": "inconclusive",
}


def _rate(servers: Sequence[Mapping[str, Any]]) -> float | None:
    """Accepted / draft tokens of the prompts that a proof asks; None where nobody counts them."""
    drafted = sum(each.get("draft_tokens") or 0.0 for each in servers)
    accepted = sum(each.get("accepted_tokens") or 0.0 for each in servers)
    return accepted / drafted if drafted else None
