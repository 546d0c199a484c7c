"""What a fallback watch says of itself to Prometheus: /metrics, /healthz."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from speccli.core.alert.endpoint import Endpoint, Families, escaped
from speccli.core.fallback.terms import Moved, Situation, State

_UNLED_S = 180.0
"""Without anybody who is known to decide, after which it is not healthy."""
_LATE = 3.0
"""Intervals without a look after which it is not healthy."""


class Gauges(Endpoint):
    """Counts looks and moves, and remembers where the deployment stands."""

    unwell = "no look of late, or nobody is known to lead"

    def __init__(
        self,
        deployment: str,
        interval_s: float,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`steady`: a clock that nobody sets."""
        self._deployment, self._interval_s = deployment, interval_s
        self._clock, self._steady = clock, steady
        self._last = self._led_at = steady()
        self._looked_at: float | None = None
        self._looks = self._blind = self._proposals = self._untold = 0
        self._moves: Counter[tuple[str, str, str, str]] = Counter()
        self._leads = self._led = False
        self._why: str | None = None
        self._state = State()
        self._situation: Situation | None = None

    def looked(self, *, leads: bool, blind: bool, led: bool | None, untold: int = 0) -> None:
        """A look was made, whatever it showed.

        Args:
            leads: Whether this process decides.
            blind: Whether nothing could be seen.
            led: Whether anybody is known to decide; None: the cluster could not be asked, which
                no restart of this process mends.
            untold: Channels that could not be told.
        """
        self._looks += 1
        self._blind += blind
        self._untold += untold
        self._leads, self._led = leads, bool(led)
        if led is not False:
            self._led_at = self._steady()
        self._last, self._looked_at = self._steady(), self._clock()

    def stands(self, state: State, situation: Situation, why: str) -> None:
        """Where it stands, and what was decided: a `Why`, or `moving`."""
        self._state, self._situation, self._why = state, situation, why

    def proposed(self) -> None:
        """A proposal was made."""
        self._proposals += 1

    def moved(self, made: Moved) -> None:
        """A move ended."""
        self._moves[made.kind, made.source, made.target, made.outcome] += 1

    @property
    def healthy(self) -> bool:
        """Whether it still looks, and somebody decides."""
        at, late = self._steady(), _LATE * self._interval_s
        return at - self._last <= max(60.0, late) and at - self._led_at <= max(_UNLED_S, late)

    def page(self) -> str:
        """The metrics."""
        families = Families(self._deployment)
        add, state = families.add, self._state
        last = None if self._looked_at is None else round(self._looked_at, 3)
        name = "specctl_fallback_"
        add(f"{name}leader", "gauge", "Whether this process decides.", ("", int(self._leads)))
        add(f"{name}led", "gauge", "Whether anybody is known to decide.", ("", int(self._led)))
        add(f"{name}last_look_timestamp_seconds", "gauge", "When it last looked.", ("", last))
        add(f"{name}looks_total", "counter", "Looks.", ("", self._looks))
        add(f"{name}blind_looks_total", "counter", "Looks that showed nothing.", ("", self._blind))
        add(f"{name}proposals_total", "counter", "Proposals made.", ("", self._proposals))
        add(
            f"{name}notify_failures_total",
            "counter",
            "Notifications that could not be delivered.",
            ("", self._untold),
        )
        add(
            f"{name}moves_total",
            "counter",
            "Moves by what they came to: done, unproven, failed, refused, inconclusive.",
            *(
                (
                    f'kind="{kind}",from="{escaped(source)}",to="{escaped(target)}",'
                    f'outcome="{outcome}"',
                    count,
                )
                for (kind, source, target, outcome), count in sorted(self._moves.items())
            ),
        )
        if self._situation is not None:
            rungs = self._situation.ladder
            add(
                f"{name}rung",
                "gauge",
                "1 for the rung that serves.",
                *(
                    (f'rung="{escaped(step.name)}"', int(i == self._situation.at))
                    for i, step in enumerate(rungs)
                ),
            )
            pending = int(state.proposal is not None)
            add(f"{name}proposal", "gauge", "Whether a proposal waits for a yes.", ("", pending))
            refusals = state.refusals
            add(f"{name}refusals", "gauge", "Refusals of this configuration.", ("", refusals))
            add(f"{name}state", "gauge", "What it does, and why.", (f'why="{self._why}"', 1))
        return families.text
