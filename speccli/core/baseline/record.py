"""A baseline from what engines do: snapshots in, a profile out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from speccli.core.baseline.model import (
    Baseline,
    BatchLatency,
    BatchSpeed,
    Key,
    differences,
)
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.stats import batch
from speccli.core.stats.drift import Dispersion, Look, fit, per_draft_variance
from speccli.core.stats.growth import Meter, Pending, together
from speccli.core.stats.histogram import quantile
from speccli.core.stats.increase import Buckets
from speccli.core.stats.mix import Mix, PromptBin, bin_edges, expected_rate
from speccli.core.stats.snapshot import EngineSnapshot, Snapshot

LEAST_DRAFTS = 2000.0
"""Drafts a baseline needs: its rate is then exact to about three points, clustering included."""
_LEAST_LOOKS = 200.0
_SHORTEST_SPEED_S = 20.0


def key_of(engine: EngineSnapshot) -> Key:
    """As much of the key as an engine tells."""
    return Key(
        engine=engine.kind,
        version=engine.version,
        target=engine.model,
        draft=engine.draft,
        method=None if engine.method == "unknown" else engine.method,
        k=engine.k,
    )


def look_seconds(lasting_s: float, every_s: float = 300.0) -> float:
    """How long a look is when so much is to be recorded: about thirty of them, 30 s or more.

    `every_s`: what makes one check of drift; never longer than that.
    """
    return min(every_s, max(30.0, lasting_s / 30))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A look and the mean prompt as of it."""

    look: Look
    prompt: float | None


class Profile:
    """Accumulates snapshots of a sound fleet."""

    def __init__(self, look_s: float, told: Key | None = None) -> None:
        """`look_s`: length of a look; `told`: parts of the key that the operator knows."""
        self.look_s = look_s
        self.told = told or Key()
        self.simulated = False
        self._meter = Meter()
        self._pending: dict[str, Pending] = defaultdict(Pending)
        self._mixes: dict[str, Mix] = defaultdict(Mix)
        self._looks: dict[str, list[_Seen]] = defaultdict(list)
        self._keys: dict[str, Key] = {}
        self._speed: dict[int, list[Look]] = defaultdict(list)
        self._whole: Look | None = None

    @property
    def drafts(self) -> float | None:
        """Drafts seen so far; None while nothing could be counted."""
        return self._whole.drafts if self._whole else None

    def observe(self, snapshot: Snapshot) -> None:
        """One snapshot, in order of time."""
        self.simulated = self.simulated or snapshot.simulated
        if snapshot.pooled is not None:  # those that are read one by one tell what all are
            self._keys |= {each.name: self.told.over(key_of(each)) for each in snapshot.fresh}
        rounds = []
        for growth in self._meter.take(snapshot):
            if growth.engine is not None:
                self._keys[growth.name] = self.told.over(key_of(growth.engine))
            if growth.look is None:
                continue
            rounds.append(growth.look)
            if growth.engine is not None:
                self._watch_speed(growth.look)
                self._count(growth.name, growth.look)
        fleet = together(rounds)
        if fleet is not None:
            self._whole = fleet if self._whole is None else self._whole + fleet
            self._count(_FLEET, fleet)

    def _count(self, name: str, grown: Look) -> None:
        look = self._pending[name].take(grown, self.look_s, _LEAST_LOOKS)
        if look is not None:
            self._looks[name].append(_Seen(look, self._mixes[name].take(look)))

    def _watch_speed(self, look: Look) -> None:
        if look.steps >= 1 and look.served >= look.steps and look.seconds > 0:
            self._speed[batch.bin_of(look.served / look.steps)].append(look)

    def key(self, *, force: bool = False) -> Key:
        """What the fleet is, all of it.

        Raises:
            UsageError: its engines are not the same, and `force` is not given.
        """
        named = list(self._keys.items())
        if not named:
            return self.told
        first_name, first = named[0]
        for name, key in named[1:]:
            unlike = differences(first, key)
            if unlike and not force:
                raise UsageError(
                    f"{first_name} and {name} are not the same: {'; '.join(map(str, unlike))}",
                    hint="record one configuration (--endpoint, --selector), or --force",
                )
            first = first.over(key)
        return first

    def speed(self) -> tuple[BatchSpeed, ...]:
        """Output of one engine by batch size."""
        rows = []
        for looks in (self._speed[i] for i in sorted(self._speed)):
            whole = sum(looks[1:], looks[0])
            if whole.seconds >= _SHORTEST_SPEED_S:
                size = whole.served / whole.steps
                rate = whole.output_tokens / whole.seconds
                rows.append(BatchSpeed(round(size, 2), round(rate, 2), round(whole.seconds, 1)))
        return tuple(rows)

    def baseline(
        self, name: str, source: str, *, last: Snapshot | None = None, force: bool = False
    ) -> Baseline:
        """The profile of what was seen; `last`: a snapshot over all of it, for the latencies.

        Raises:
            SpecctlError: too little was drafted.
            UsageError: the engines are not the same, and `force` is not given.
        """
        whole = self._whole
        if whole is None or whole.drafts < LEAST_DRAFTS:
            seen = (
                "nothing could be counted" if whole is None else f"{whole.drafts:,.0f} drafts seen"
            )
            raise SpecctlError(
                f"{seen}; a baseline needs {LEAST_DRAFTS:,.0f} drafts",
                hint="record for longer (--for), or under traffic",
            )
        key = self.key(force=force)
        full = bool(key.k) and whole.draft_tokens >= 0.9 * (key.k or 0) * whole.drafts
        positions = tuple(p / whole.drafts for p in whole.positions) if full else ()
        scatter = per_draft_variance(positions, whole.rate)
        bins = _bins(self._looks[_FLEET])
        return Baseline(
            name=name,
            key=key,
            rate=whole.rate,
            length=1 + whole.accepted / whole.drafts,
            positions=positions,
            drafts=whole.drafts,
            created=datetime.fromtimestamp(whole.at, UTC).isoformat(timespec="seconds"),
            source=source,
            simulated=self.simulated,
            look_s=self.look_s,
            prompt_tokens=whole.prompt_mean,
            output_tokens=whole.output_tokens / whole.requests if whole.requests else None,
            bins=bins,
            fleet=_scatter([self._looks[_FLEET]], bins, whole.rate, scatter),
            engine=self._of_engines(bins, whole.rate, scatter),
            latency=_latency(last),
            speed=self.speed(),
        )

    def _of_engines(self, bins: Sequence[PromptBin], rate: float, scatter: float) -> Dispersion:
        engines = [looks for name, looks in self._looks.items() if name != _FLEET]
        return _scatter(engines, bins, rate, scatter)


_FLEET = "fleet"


def _bins(looks: Iterable[_Seen]) -> tuple[PromptBin, ...]:
    grouped: dict[tuple[float, float], list[_Seen]] = defaultdict(list)
    for seen in looks:
        if seen.prompt is not None:
            grouped[bin_edges(seen.prompt)].append(seen)
    rows = []
    for (low, high), members in sorted(grouped.items()):
        whole = sum((m.look for m in members[1:]), members[0].look)
        prompt = sum((m.prompt or 0.0) * m.look.drafts for m in members) / whole.drafts
        rows.append(
            PromptBin(low, high, prompt, whole.rate, whole.drafts, len(members)),
        )
    return tuple(rows)


def _scatter(
    series: Sequence[Sequence[_Seen]], bins: Sequence[PromptBin], rate: float, per_draft: float
) -> Dispersion:
    """Scatter about what is expected of each look's mix; of several engines, the widest parts."""
    fits = []
    for looks in series:
        left = []
        for seen in looks:
            expected = expected_rate(bins, seen.prompt)
            value = seen.look.rate - (rate if expected is None else expected)
            left.append((seen.look.at, seen.look.drafts, value))
        if left:
            fits.append(fit(left, per_draft))
    if not fits:
        return Dispersion(per_draft=per_draft)
    offsets = [_offset(looks, rate) for looks in series if looks]
    apart = max((abs(offset) for offset in offsets), default=0.0) if len(fits) > 1 else 0.0
    return replace(
        fits[0],
        clustering=max(each.clustering for each in fits),
        wander=max(*(each.wander for each in fits), apart / 2),
        most_drafts=max(each.most_drafts for each in fits),
        looks=sum(each.looks for each in fits),
        span_s=max(each.span_s for each in fits),
    )


def _offset(looks: Sequence[_Seen], rate: float) -> float:
    """How far an engine's own rate lies from the fleet's."""
    whole = sum((seen.look for seen in looks[1:]), looks[0].look)
    return whole.rate - rate


def _latency(snapshot: Snapshot | None) -> tuple[BatchLatency, ...]:
    if snapshot is None:
        return ()
    rows = []
    for row in snapshot.by_batch:
        if row.itl is None:
            continue
        rows.append(
            BatchLatency(
                row.batch,
                round(row.itl.n),
                _bucket(row.itl, 0.5),
                _bucket(row.itl, 0.99),
                _bucket(row.ttft, 0.99),
            )
        )
    return tuple(rows)


def _bucket(histogram: Buckets | None, q: float) -> tuple[float, float] | None:
    if histogram is None:
        return None
    found = quantile(histogram, q)
    if found.state != "value" or found.high is None:
        return None
    return found.low, found.high
