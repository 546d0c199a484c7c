"""What the two kinds of simulated engine share: time, a ledger, and changes that befall them."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from speccli.core.sim.config import Acceptance, SimConfig
from speccli.core.sim.families import known_version
from speccli.core.sim.ledger import Ledger

Clock = Callable[[], float]
ChangeKind = Literal[
    "acceptance",
    "later_positions",
    "prompts",
    "traffic",
    "stall",
    "resume",
    "restart",
    "down",
    "up",
    "version",
]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happens to an engine."""

    kind: ChangeKind
    value: float = 1.0
    """A factor on the designed acceptance, traffic or prompt length; for restart, seconds out of
    reach."""
    text: str = ""
    """The new version, for `version`."""


class BaseEngine(ABC):
    """One engine process: a clock it follows, a ledger it fills, changes it undergoes.

    Nothing runs by itself. `advance` brings the engine to an instant; what it does up to there
    depends on the configuration, the seed and the changes alone, not on how often it is called.
    """

    def __init__(self, config: SimConfig, clock: Clock, seed: int = 0) -> None:
        self.config = config
        self.clock = clock
        self.rng = random.Random(seed)
        self.version = config.version
        self.acceptance: Acceptance = config.acceptance
        self.traffic_scale = 1.0
        self.stalled = False
        self.now = clock()
        self.started_at = self.now
        self.down_until = -math.inf
        self.revision = 0
        self._every = 1.0
        self._later = 1.0
        self._prompt_mean = config.traffic.prompt_mean
        self._timeline: list[tuple[float, int, Change]] = []
        self._order = count()
        self.ledger = self._new_ledger()

    @property
    def labels(self) -> dict[str, str]:
        """The labels engine and model_name."""
        return {"engine": self.config.engine, "model_name": self.config.model}

    @property
    def positions(self) -> int:
        """How many draft positions it has; 0 without speculation."""
        return self.config.k

    @property
    def max_model_len(self) -> int:
        """The longest request it takes."""
        return self.config.max_model_len

    @property
    def cache_info(self) -> dict[str, str]:
        """The labels of cache_config_info for the running version."""
        return self.config.cache_info(self.version)

    @property
    def down(self) -> bool:
        """Whether the process is gone, so that connections are refused."""
        return self.now < self.down_until

    def schedule(self, at: float, change: Change) -> None:
        """Let something happen to the engine at an instant of its clock.

        Changes of the same instant happen in the order in which they were scheduled.
        """
        insort(self._timeline, (at, next(self._order), change), key=lambda entry: entry[:2])

    def advance(self, to: float | None = None) -> None:
        """Simulate up to an instant, by default the clock's present."""
        until = self.clock() if to is None else to
        while self._timeline and self._timeline[0][0] <= until:
            at, _, change = self._timeline.pop(0)
            self._run_to(at)
            self.apply(change)
        self._run_to(until)

    def apply(self, change: Change) -> None:
        """Undergo a change now."""
        match change.kind:
            case "acceptance":
                self._every = change.value
            case "later_positions":
                self._later = change.value
            case "traffic":
                self.traffic_scale = change.value
                self._traffic_changed()
            case "prompts":
                mean = self._prompt_mean * change.value
                traffic = replace(self.config.traffic, prompt_mean=mean)
                self.config = replace(self.config, traffic=traffic)
            case "stall":
                self.stalled = True
            case "resume":
                self.stalled = False
            case "restart":
                self._restart(self.now + change.value)
            case "down":
                self._restart(math.inf)
            case "up":
                self._restart(self.now)
            case "version":
                known_version(change.text)
                self.version = change.text
                self._restart(self.now)
        self.acceptance = self.config.acceptance.scaled(self._every, self._later)
        self._acceptance_changed()

    def _restart(self, back_at: float) -> None:
        """Lose everything a process holds; come back as a new one."""
        self.down_until = back_at
        self.stalled = False
        self.started_at = back_at if math.isfinite(back_at) else self.now
        self.ledger = self._new_ledger()
        self.revision += 1
        self._forget()

    def _run_to(self, to: float) -> None:
        if self.now < self.down_until:
            self.now = max(self.now, min(to, self.down_until))
            if self.now < self.down_until:
                return
            self._forget()
        if to <= self.now:
            return
        if self.stalled:
            self._stand_still(to)
            self.now = to
        else:
            self._run(to)

    def _new_ledger(self) -> Ledger:
        return Ledger(self.config.k, self.config.max_model_len)

    def _lognormal(self, mean: float, sigma: float) -> float:
        return self.rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)

    @abstractmethod
    def _run(self, to: float) -> None:
        """Serve from `now` up to an instant and leave `now` there."""

    @abstractmethod
    def _stand_still(self, to: float) -> None:
        """Hang from `now` up to an instant: requests come, nothing leaves."""

    @abstractmethod
    def _forget(self) -> None:
        """Start anew at `now` with no requests."""

    def _acceptance_changed(self) -> None:  # noqa: B027 - an engine may have no use for it
        """Take note of a new `acceptance`."""

    def _traffic_changed(self) -> None:  # noqa: B027 - likewise
        """Take note of a new `traffic_scale`."""
