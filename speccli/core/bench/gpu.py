"""What GPUs do while a row is measured: looks at them, and means over the row's window."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any, Protocol

from speccli.core.sources.scrape import explain
from speccli.core.values import Number

_EVERY_S = 0.5
_IN_USE_MIB = 500.0
"""Memory from which on a GPU is taken to hold a model."""
_COVERED = 0.5
"""Share of the window that two readings of an energy counter must lie apart."""


@dataclass(frozen=True, slots=True)
class Look:
    """One GPU at one instant; None where it does not tell."""

    index: str
    utilisation: float | None
    """0..1"""
    power_w: float | None
    sm_clock_mhz: float | None
    memory_mib: float | None
    energy_j: float | None = None
    """Used since its driver was loaded."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a window: means, and the energy used in it."""

    utilisation: Number
    power_w: Number
    sm_clock_mhz: Number
    energy_j: Number

    @classmethod
    def unknown(cls, reason: str) -> Measured:
        """Nothing is known, and why."""
        nothing = Number.unknown(reason)
        return cls(nothing, nothing, nothing, nothing)


class Looker(Protocol):
    """Something that can be asked about GPUs."""

    async def look(self) -> list[Look]:
        """All GPUs, now."""


Seen = Sequence[tuple[float, Sequence[Look]]]
"""Looks, each with its instant of `time.perf_counter`."""


def summarised(seen: Seen, window_s: float, gpus: int | None, reason: str) -> Measured:
    """Utilisation and clock are means over the server's GPUs; power and energy of all of them.

    Args:
        seen: What was seen in the window.
        window_s: Its length.
        gpus: How many the server has; None: all that hold a model are its own.
        reason: Why nothing was seen, where that is known.
    """
    looks = [look for _, look in seen]
    if not looks:
        return Measured.unknown(reason or f"no look at the GPU in {window_s:.1f} s")
    used, why_not = _whose(looks, gpus)
    if why_not:
        return Measured.unknown(why_not)
    words = f"mean of {len(used)} GPU(s) in use"
    power = _mean([[x.power_w for x in at if x.index in used] for at in looks], sum, words)
    return Measured(
        _mean([[x.utilisation for x in at if x.index in used] for at in looks], fmean, words),
        power,
        _mean([[x.sm_clock_mhz for x in at if x.index in used] for at in looks], fmean, words),
        _energy(seen, used, window_s, power),
    )


def _whose(looks: Sequence[Sequence[Look]], gpus: int | None) -> tuple[set[str], str]:
    """The GPUs of the server that was measured; why they cannot be told.

    Other arms' servers are idle meanwhile, so of GPUs that hold a model those that worked are its.
    """
    every = [look for instant in looks for look in instant]
    hold = {x.index for x in every if x.memory_mib is None or x.memory_mib >= _IN_USE_MIB}
    if not hold:
        return set(), "no GPU holds a model"
    if gpus is None or len(hold) == gpus:
        return hold, ""
    worked = {x.index for x in every if x.index in hold and x.utilisation}
    if len(worked) == gpus:
        return worked, ""
    why = f"{len(worked)} GPUs worked and {len(hold)} hold a model, the server has {gpus}"
    return set(), f"{why} (--gpus-per-engine): whose they are cannot be told"


def _mean(instants: Sequence[Sequence[float | None]], over: Any, words: str) -> Number:
    known = [[v for v in instant if v is not None] for instant in instants]
    values = [float(over(instant)) for instant in known if instant]
    if not values:
        return Number.unknown("the GPU does not tell")
    return Number.known(fmean(values), n=len(values), reason=words)


def _energy(seen: Seen, used: set[str], window_s: float, power: Number) -> Number:
    """By the GPUs' counters, else power × time."""
    total = 0.0
    for index in used:
        told = [
            (at, x.energy_j)
            for at, look in seen
            for x in look
            if x.index == index and x.energy_j is not None
        ]
        span = told[-1][0] - told[0][0] if told else 0.0
        if span < _COVERED * window_s or span <= 0:
            break
        if told[-1][1] < told[0][1]:  # the counter began anew
            break
        total += (told[-1][1] - told[0][1]) / span * window_s
    else:
        return Number.known(total, reason=f"energy counter of {len(used)} GPU(s)")
    if power.value is None:
        return Number.unknown(power.reason or "the GPU does not tell")
    return Number.known(power.value * window_s, n=power.n, reason="mean power x time")


@dataclass
class Watch:
    """Looks at the GPUs every half second, as long as the block lasts."""

    looker: Looker | None
    why_not: str
    gpus: int | None = None
    """How many the server has that is measured."""
    _looks: list[tuple[float, list[Look]]] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        """Begin."""
        self._looks = []
        if self.looker is not None:
            self._task = asyncio.create_task(self._keep_looking(self.looker))
        return self

    async def __aexit__(self, *_: object) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _keep_looking(self, looker: Looker) -> None:
        while True:
            try:
                found = await looker.look()
            except Exception as error:  # noqa: BLE001 - a GPU that does not tell is not the bench's end
                self.why_not = f"the GPU cannot be asked: {explain(error)}"
                return
            self._looks.append((perf_counter(), found))
            await asyncio.sleep(_EVERY_S)

    def between(self, begin: float, end: float) -> Measured:
        """What was seen between two instants of `time.perf_counter`."""
        seen = [(at, looks) for at, looks in self._looks if begin <= at <= end]
        return summarised(seen, end - begin, self.gpus, self.why_not)
