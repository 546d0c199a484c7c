"""Scripts of what befalls a fleet: at which second, to which server, what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from speccli.core.sim.base import Change, ChangeKind
from speccli.core.sim.config import nearest


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens."""

    at_s: float
    """Seconds after the scenario began."""
    change: Change
    target: str = "all"
    """`all`, `first`, `last`, or the name of a server."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named script with a line that says what it shows."""

    name: str
    description: str
    events: tuple[Event, ...] = ()

    @staticmethod
    def named(name: str, *, speed: float = 1.0, target: str | None = None) -> Scenario:
        """Return a built-in scenario.

        Args:
            name: One of `Scenario.names()`.
            speed: How many times faster than written its script runs.
            target: The server it befalls; None for the scenario's own choice.

        Raises:
            ValueError: If there is none of that name; the message gives the nearest.
        """
        if name not in _BUILT_IN:
            raise ValueError(f"unknown scenario {name!r}: {nearest(name, list(_BUILT_IN))}")
        description, usual, events = _BUILT_IN[name]
        whole = Scenario(name, description, events(target or usual))
        return whole.faster(speed)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of the built-in scenarios."""
        return tuple(_BUILT_IN)

    def faster(self, speed: float) -> Scenario:
        """Return the same script run so many times faster; the engines keep their pace."""
        if speed <= 0:
            raise ValueError(f"a speed must be above 0, got {speed}")
        return replace(self, events=tuple(_hasten(event, speed) for event in self.events))

    def after(self, seconds: float) -> Scenario:
        """Return the same script begun so many seconds later."""
        events = tuple(replace(event, at_s=event.at_s + seconds) for event in self.events)
        return replace(self, events=events)

    def __add__(self, other: Scenario) -> Scenario:
        """Return both scripts run together."""
        return Scenario(
            f"{self.name}+{other.name}",
            f"{self.description}; {other.description}",
            self.events + other.events,
        )


def _hasten(event: Event, speed: float) -> Event:
    change = event.change
    if change.kind == "restart":
        change = replace(change, value=change.value / speed)
    return replace(event, at_s=event.at_s / speed, change=change)


_Script = Callable[[str], tuple[Event, ...]]


def _one(at_s: float, kind: ChangeKind, value: float = 1.0, text: str = "") -> _Script:
    return lambda target: (Event(at_s, Change(kind, value, text), target),)


def _then(*scripts: _Script) -> _Script:
    return lambda target: tuple(event for script in scripts for event in script(target))


def _ramp(begin: float, end: float, kind: ChangeKind, last: float, steps: int = 60) -> _Script:
    """Return a slide from 1 to the last value in small steps."""
    return lambda target: tuple(
        Event(
            begin + (end - begin) * step / steps,
            Change(kind, 1.0 + (last - 1.0) * step / steps),
            target,
        )
        for step in range(1, steps + 1)
    )


_BUILT_IN: Final[dict[str, tuple[str, str, _Script]]] = {
    "steady": ("Nothing happens: a healthy fleet under even traffic.", "all", lambda _: ()),
    "drift": (
        "Acceptance slides over ten minutes to two thirds of its design, on every server.",
        "all",
        _ramp(30.0, 630.0, "acceptance", 0.66),
    ),
    "traffic-shift": (
        "Prompts become four times as long, and acceptance is what the draft has on such prompts.",
        "all",
        _then(_one(30.0, "prompts", 4.0), _one(30.0, "acceptance", 0.85)),
    ),
    "cliff": (
        "Parallel drafting breaks on every server: position 0 is fine, later ones collapse.",
        "all",
        _one(30.0, "later_positions", 0.15),
    ),
    "drop": (
        "Acceptance of one server falls at once to a third of its design.",
        "last",
        _one(20.0, "acceptance", 0.33),
    ),
    "zero": (
        "One server's draft produces garbage: nothing is accepted any more.",
        "last",
        _one(20.0, "acceptance", 0.0),
    ),
    "stall": (
        "One server hangs: requests running, none leaves, /health still answers 200.",
        "last",
        _then(_one(20.0, "stall"), _one(140.0, "resume")),
    ),
    "restart": (
        "One server restarts: 8 s of refused connections, then its counters begin again.",
        "last",
        _one(20.0, "restart", 8.0),
    ),
    "down": ("One server goes away and does not come back.", "last", _one(20.0, "down")),
    "version-skew": (
        "One server runs vLLM 0.8.5, with the old names for token latency and KV cache.",
        "last",
        _one(0.0, "version", text="0.8.5"),
    ),
    "no-traffic": ("Requests stop coming, on every server.", "all", _one(20.0, "traffic", 0.0)),
}
