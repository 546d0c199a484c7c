"""The judge: snapshots over time in, findings out. Owns the memory; no I/O and no clock.

`Judge(baseline, thresholds, state).observe(snapshot)` gives every finding there is, those of one
snapshot and those that need a memory; `.state()` is JSON to go on from, in another process too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from speccli.core.alert.judgement import Drift, EngineSlide, Judgement, Unlike
from speccli.core.alert.speculated import Speculated
from speccli.core.alert.unit import Unit, assumed
from speccli.core.baseline.model import Baseline, Difference, Key, differences
from speccli.core.baseline.record import key_of
from speccli.core.findings import evaluate
from speccli.core.findings.base import FLEET, Finding, Thresholds
from speccli.core.stats.growth import Growth, Meter, together
from speccli.core.stats.increase import Pool
from speccli.core.stats.mix import Verdict
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot

VERSION = 1
_LIVE = "live traffic"
_SURE = 3.0
"""Standard errors that a fixed set of prompts must fall short by, besides its tolerance."""


class Judge:
    """Watches one deployment; one owner, called once a check."""

    def __init__(
        self,
        baseline: Baseline | None,
        thresholds: Thresholds,
        state: Any = None,
        *,
        running: Key | None = None,
        force: bool = False,
    ) -> None:
        """`state`: what `state()` gave; one that cannot be used is dropped, and `note` says so.

        `running`: parts of the key that no engine tells (revisions, runner, sampling, dataset);
        `force`: compare engines that are not what the baseline was recorded on.
        """
        self.baseline = baseline
        self.thresholds = thresholds
        self.note: str | None = None
        """What the operator should know of the state; None where there is nothing."""
        self._told = running or Key()
        self._force = force
        self._meter = Meter()
        self._units: dict[str, Unit] = {}
        self._fleet = Unit()
        self._speculated = Speculated()
        if state is not None:
            self._restore(state)

    def observe(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        """Everything there is to say now, worst first."""
        return evaluate(snapshot, self.thresholds, self.judge(snapshot))

    def judge(self, snapshot: Snapshot) -> Judgement:
        """Take a snapshot in; what the rules need to know beside it."""
        alike, unlike, running = self._sorted(snapshot)
        names = {engine.name for engine in alike}
        growths = [g for g in self._meter.take(snapshot) if g.engine is None or g.name in names]
        self._learn(snapshot, growths)
        compared = len(alike)
        if snapshot.pooled is not None:
            compared = snapshot.pooled_engines or 0
        return Judgement(
            baseline=self.baseline,
            running=running,
            unlike=unlike,
            compared=compared,
            forced=self._force,
            drifts=self._drifts(snapshot, alike),
            slides=self._slides(alike),
            speculated=self._speculated.take(
                snapshot, self.baseline, expected=self.thresholds.expect_speculation
            ),
        )

    def state(self) -> dict[str, Any]:
        """All that must be remembered, for `json.dumps`."""
        return {
            "version": VERSION,
            "baseline": self._identity(),
            "meter": self._meter.to_json(),
            "fleet": self._fleet.to_json(),
            "engines": {name: unit.to_json() for name, unit in self._units.items()},
            "speculated": self._speculated.to_json(),
        }

    def _identity(self) -> list[Any] | None:
        """Which baseline the evidence is against: another one makes it meaningless."""
        base = self.baseline
        return [base.name, base.created, base.rate] if base else None

    def _restore(self, state: Any) -> None:
        try:
            if state["version"] != VERSION:
                raise ValueError(f"version {state['version']!r}")
            meter = Meter(state["meter"])
            fleet = Unit.from_json(state["fleet"])
            units = {str(k): Unit.from_json(v) for k, v in state["engines"].items()}
            kept = state.get("speculated")  # not of an older specctl
            speculated = Speculated() if kept is None else Speculated.from_json(kept)
            same = state["baseline"] == self._identity()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self.note = f"the state kept so far cannot be used ({error}): watching begins anew"
            return
        self._meter, self._speculated = meter, speculated
        if same:
            self._fleet, self._units = fleet, units
        elif state["baseline"] is not None:  # the first one there is takes nothing away
            self.note = "another baseline than before: the evidence begins anew"

    def _sorted(self, snapshot: Snapshot) -> tuple[list[EngineSnapshot], tuple[Unlike, ...], Key]:
        """Engines that are what the baseline was recorded on; what others are instead."""
        alike: list[EngineSnapshot] = []
        groups: dict[Difference, list[str]] = {}
        running = self._told
        for engine in snapshot.fresh:
            key = self._told.over(key_of(engine))
            found = self._unlike(key)
            for difference in found:
                groups.setdefault(difference, []).append(engine.name)
            if not found or self._force:
                alike.append(engine)
            running = running.over(key)
        return alike, tuple(Unlike(d, tuple(names)) for d, names in groups.items()), running

    def _unlike(self, key: Key) -> tuple[Difference, ...]:
        if self.baseline is None:
            return ()
        was = self.baseline.key
        if was.dataset is not None and key.dataset is None:
            key = replace(key, dataset=_LIVE)
        return differences(was, key)

    def _learn(self, snapshot: Snapshot, growths: Sequence[Growth]) -> None:
        pooled = snapshot.pooled is not None
        present = {engine.name for engine in snapshot.engines}
        if not pooled:
            self._units = {k: v for k, v in self._units.items() if k in present}
            self._of_engines(growths)
        cuts = sum(growth.cut for growth in growths)
        if cuts and 2 * cuts > len(growths):
            self._fleet.cut()
        fleet = together([g.look for g in growths if g.look is not None])
        if fleet is None:
            return
        scatter = self.baseline.fleet if self.baseline else assumed(fleet)
        self._fleet.grown(fleet, self.baseline, scatter, self.thresholds, self._limit(0, pooled))

    def _of_engines(self, growths: Sequence[Growth]) -> None:
        for growth in growths:
            unit = self._units.setdefault(growth.name, Unit())
            if growth.cut:
                unit.cut()
        limit = self._limit(len(self._units), pooled=False)
        for growth in growths:
            if growth.look is None:
                continue
            scatter = self.baseline.engine if self.baseline else assumed(growth.look)
            unit = self._units[growth.name]
            unit.grown(growth.look, self.baseline, scatter, self.thresholds, limit)

    def _limit(self, engines: int, pooled: bool) -> float:
        """Looks a test must pass in silence, so that all tests together keep the promise.

        Half of the false alarms are the fleet's (`engines` 0), half all its engines' together.
        """
        looks = max(1.0, self.thresholds.drift_looks)
        if pooled or (engines == 0 and len(self._units) <= 1):
            return looks
        return 2 * looks * max(1, engines)

    def _drifts(self, snapshot: Snapshot, alike: Sequence[EngineSnapshot]) -> tuple[Drift, ...]:
        base = self.baseline
        if base is None:
            return ()
        alone = len(snapshot.engines) == 1 and snapshot.pooled is None
        name = snapshot.engines[0].name if alone else FLEET
        if base.tolerance is not None and self._told.dataset == base.key.dataset:
            found = self._fixed(name, alike, base, base.tolerance)
            return () if found is None else (found,)
        pooled = snapshot.pooled is not None
        fleet = self._fleet.drift(name, base, self._limit(0, pooled))
        if alone or pooled:
            return () if fleet is None else (fleet,)
        limit = self._limit(len(self._units), pooled=False)
        watched = {engine.name: self._units.get(engine.name) for engine in alike}
        found_ = [unit.drift(name, base, limit) for name, unit in watched.items() if unit]
        engines = [drift for drift in found_ if drift is not None]
        if fleet is not None and (not engines or 2 * len(engines) > len(watched)):
            return (fleet,)
        return tuple(engines)

    def _fixed(
        self, name: str, alike: Sequence[EngineSnapshot], base: Baseline, tolerance: float
    ) -> Drift | None:
        """A fixed set of prompts is compared at once: a run of it has no traffic to wait out."""
        pool = Pool([engine.increase for engine in alike if engine.increase])
        sums = pool.sums("accepted_tokens", "draft_tokens", "drafts")
        if sums is None or sums[2] < self.thresholds.drift_min_drafts or sums[1] <= 0:
            return None
        accepted, drafted, drafts = sums
        length, rate = 1 + accepted / drafts, accepted / drafted
        error = drafted / drafts * math.sqrt(base.fleet.variance(drafts) - base.fleet.wander**2)
        short = base.length - length
        if short <= tolerance * base.length or short < _SURE * error:
            return None
        words = f"the prompts are the baseline's own, whose tolerance is {100 * tolerance:g} %"
        return Drift(name, base.rate, rate, length, drafts, 0, None, Verdict("draft", words), None)

    def _slides(self, alike: Sequence[EngineSnapshot]) -> tuple[EngineSlide, ...]:
        slides = []
        for engine in alike:
            unit = self._units.get(engine.name)
            slide = unit.slope.slide(self.thresholds.slope_fall) if unit else None
            if slide is not None:
                slides.append(EngineSlide(engine.name, engine.started, slide))
        return tuple(slides)
