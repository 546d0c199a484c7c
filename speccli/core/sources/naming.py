"""What the targets of a Prometheus are called: by their address, and by more where that is not one.

Behind one Thanos two clusters may have the same pod addresses. What is theirs must not be counted
as one engine's; yet a pod that took over an address, and a server scraped by two jobs, is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speccli.core.engines.registry import PROCESS_START
from speccli.core.sources.promapi import Series
from speccli.core.sources.promql import TARGET

_APART = tuple(label for label in TARGET if label != "instance")


@dataclass(slots=True)
class _Seen:
    """One of the targets at an address."""

    labels: tuple[str, ...]
    first: float
    last: float
    started: str | None = None
    """When its process began, as its page says."""

    def is_not(self, other: _Seen) -> bool:
        """Whether it is known to be another server than one seen at the same address."""
        if self.first > other.last or other.first > self.last:
            return False  # one after the other: it was restarted
        if self.started is not None and self.started == other.started:
            return False
        mine, its = (dict(zip(_APART, each.labels, strict=True)) for each in (self, other))
        one_pod = bool(mine["pod"]) and all(mine[n] == its[n] for n in _APART if n != "job")
        return not one_pod


class Names:
    """Names of targets. What was told apart once stays so."""

    def __init__(self) -> None:
        self._apart: dict[str, tuple[str, ...]] = {}
        self.dropped: frozenset[str] = frozenset()
        """Names that no target has any more since the last `learn`."""

    def of(self, labels: Mapping[str, str]) -> str:
        """The URL of the target that a series belongs to; after a `#`, what else tells it apart."""
        name = target_of(labels)
        more = [f"{n}={v}" for n in self._apart.get(name, ()) if (v := labels.get(n))]
        return f"{name}#{','.join(more)}" if more else name

    def learn(self, engines: Iterable[Series], targets: Iterable[Series]) -> None:
        """See which addresses stand for several servers at once."""
        seen: dict[str, dict[tuple[str, ...], _Seen]] = {}
        for series in engines:
            if not series.samples:
                continue
            labels = tuple(series.labels.get(name, "") for name in _APART)
            first, last = series.samples[0][0], series.samples[-1][0]
            one = seen.setdefault(target_of(series.labels), {}).setdefault(
                labels, _Seen(labels, first, last)
            )
            one.first, one.last = min(one.first, first), max(one.last, last)
        several = {name: found for name, found in seen.items() if len(found) > 1}
        self.dropped = frozenset()
        if not several:
            return
        for series in targets:
            if series.labels.get("__name__") == PROCESS_START and series.samples:
                labels = tuple(series.labels.get(name, "") for name in _APART)
                known = several.get(target_of(series.labels), {}).get(labels)
                if known is not None:
                    known.started = series.samples[-1][1]
        for name, found in several.items():
            self._tell_apart(name, list(found.values()))

    def _tell_apart(self, name: str, found: list[_Seen]) -> None:
        before = self._apart.get(name, ())
        differ = set(before)
        for i, one in enumerate(found):
            for other in found[:i]:
                if one.is_not(other):
                    pairs = zip(_APART, one.labels, other.labels, strict=True)
                    differ |= {label for label, mine, its in pairs if mine != its}
        if differ == set(before):
            return
        self._apart[name] = tuple(label for label in _APART if label in differ)
        called = {self.of({"instance": name, **_labels(one)}) for one in found}
        self.dropped |= {name} - called


def _labels(seen: _Seen) -> dict[str, str]:
    return dict(zip(_APART, seen.labels, strict=True))


def without_page(engines: Iterable[Series], targets: Iterable[Series]) -> bool:
    """Whether a target that engines are of is up at a time later than its newest page."""
    newest: dict[str, float] = {}
    for series in engines:
        name = target_of(series.labels)
        newest[name] = max(newest.get(name, 0.0), series.samples[-1][0] if series.samples else 0.0)
    return any(
        at > newest.get(target_of(series.labels), at) and float(value) > 0
        for series in targets
        if series.labels.get("__name__") == "up"
        for at, value in series.samples[-1:]
    )


def target_of(labels: Mapping[str, str]) -> str:
    """The address of the target that a series belongs to, as a URL."""
    name = labels.get("instance") or labels.get("pod") or labels.get("job") or "unnamed"
    return name if "://" in name else f"http://{name}"


def address_of(target: str) -> str:
    """A target's name without what else tells it apart."""
    return target.partition("#")[0]
