"""`--prometheus URL`: the fleet as a Prometheus, Thanos or Mimir has scraped it.

A small fleet is read raw: every sample in the window with its own time, turned back into the page
it was scraped from, so that it takes the same path as a direct scrape. `increase()` is not asked,
because it extrapolates to the edges of the window. A large one is pooled (`pooled.py`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from speccli.core.errors import SourceError
from speccli.core.sources import promql
from speccli.core.sources.base import NO_ENGINES, Scrape
from speccli.core.sources.census import INTERVAL_S, Census, take_census
from speccli.core.sources.naming import Names, without_page
from speccli.core.sources.promapi import PrometheusApi, Series

RAW_ENGINES = 64
"""Engines up to which every sample is fetched."""
DOWN = "Prometheus says it is down (up 0)"
_CENSUS_EVERY_S = 30.0
_SERIES_PER_ENGINE = 170
_SAMPLES_A_QUERY = 60_000
_SAMPLES_AT_ONCE = 300_000
"""Raw samples the first round fetches at most; with more, the window fills as time goes."""
_TARGET_LABELS = frozenset(
    {"job", "instance", "namespace", "pod", "container", "service", "endpoint", "node", "cluster"}
    | {"prometheus", "prometheus_replica", "replica", "metrics_path"}
)
"""Labels that Prometheus adds to tell targets apart; those on `up` are added to them."""


class PrometheusSource:
    """Raw samples as scrapes: the whole window in the first round, then only what is newer."""

    whole_window_at_once = True

    def __init__(
        self,
        api: PrometheusApi,
        *,
        window_s: float,
        selector: promql.Selector | None = None,
        interval_s: float | None = None,
        most_engines: int | None = RAW_ENGINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`interval_s`: seconds between rounds; None: a third of the scrape interval, 1 to 10 s."""
        self.api = api
        self.window_s = window_s
        self.selector = selector or promql.Selector()
        self.interval_s = interval_s or 5.0
        self.simulated = False
        self.census: Census | None = None
        self.targets: tuple[str, ...] = ()
        """Targets with a sample in the last five minutes or the window, whichever is longer."""
        self.note: str | None = None
        """What the reader should know of the last round."""
        self.newest = 0.0
        """Time of the newest sample so far, Unix seconds."""
        self.background: set[asyncio.Task[None]] = set()
        """Work that ends with the source."""
        self._asked_interval = interval_s
        self._most = most_engines
        self._instances: tuple[str, ...] = ()
        self._names = Names()
        self._clock = clock
        self._counted_at = -math.inf
        self._delivered: dict[str, float] = {}
        self._reached: float | None = None
        self._since = math.inf
        """From when on samples were fetched, Unix seconds."""
        self._wants_all = True
        self._anew = 0
        """How often everything was wanted anew; how often it was fetched so:"""
        self._anew_done = 0
        self.began_anew = False
        """Whether the last round brought everything again, older samples included."""

    def restrict(self, instances: Sequence[str]) -> None:
        """Fetch these instances alone from the next round on, each with its whole window."""
        if set(instances) != set(self._instances):
            self._instances = tuple(instances)
            self._wants_all = True

    def widen(self, window_s: float) -> bool:
        """Look back over a longer window; whether the next round brings it whole, from its start.

        Not where it would bring less than is known: what one round fetches has a bound.
        """
        self.window_s = max(self.window_s, window_s)
        if self.census is None or self._reached is None:
            return False
        begins = self.api.now() - self._whole(self.census)
        if begins > self._since - 2 * self.census.interval_s:
            return False
        self._anew += 1
        return True

    @property
    def scraped_every_s(self) -> float | None:
        """Seconds between two scrapes of a target, once that is known."""
        return self.census.interval_s if self.census else None

    def assume(self, census: Census) -> None:
        """Take over a count that was made elsewhere."""
        self.census, self._counted_at = census, self._clock()
        self.simulated = census.simulated
        if self._asked_interval is None:
            self.interval_s = min(10.0, max(1.0, census.interval_s / 3))

    async def count(self) -> Census:
        """The fleet's size and jobs, counted anew every half minute, and while there is none.

        Raises:
            SourceError: Prometheus gives no usable answer.
        """
        known = self.census is not None and self.census.jobs
        if not known or self._clock() - self._counted_at > _CENSUS_EVERY_S:
            self.assume(await take_census(self.api, self.selector))
        assert self.census is not None
        return self.census

    async def scrapes(self) -> list[Scrape]:
        """What has been scraped since the last round.

        Raises:
            SourceError: Prometheus gives no usable answer, or has more engines than are read raw.
        """
        census = await self.count()
        if self._most is not None and census.total > 2 * self._most:
            raise SourceError(
                f"{census.total} engines: too many to fetch every sample of",
                hint=f"narrow the pool to {self._most} engines with --selector",
            )
        now = self.api.now()
        if not census.jobs:
            return [self._nothing(now, census.note)]
        self.note = census.note
        anew = self._anew
        self.began_anew = anew != self._anew_done
        if self.began_anew or self._reached is None:
            self._delivered.clear()  # of a round that failed half way
        found: list[Scrape] = []
        spans = self._spans(now, census)
        for end, span in spans:
            found += await self._fetch(end, span, census)
        self._reached, self._wants_all, self._anew_done = now, False, anew
        self._since = min(self._since, spans[0][0] - spans[0][1])
        self._forget(now)
        return found if found or self._delivered else [self._nothing(now, census.note)]

    async def aclose(self) -> None:
        """Stop what still runs and close the connections."""
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)
        await self.api.aclose()

    def now(self) -> float:
        """The time against which age is told.

        The newest sample's, so that a store that lags (Thanos, Mimir) does not make a fleet look
        dead; the server's clock where the lag is longer than any that is usual.
        """
        present = self.api.now()
        interval = self.census.interval_s if self.census else INTERVAL_S
        return present if present - self.newest > max(60.0, 5 * interval) else self.newest

    def _nothing(self, now: float, note: str | None) -> Scrape:
        where = f" that matches {{{self.selector}}}" if self.selector.matchers else ""
        words = note or f"{NO_ENGINES}{where}"
        self.targets = (self.api.url,)
        self.note = None
        self.newest = max(self.newest, now)
        return Scrape(now, self.api.url, 200, b"", note=words)

    def _spans(self, now: float, census: Census) -> list[tuple[float, float]]:
        """Ends and lengths of the stretches of time to ask for, oldest first."""
        slack = 2 * census.interval_s + 1.0
        if self._reached is not None and not (self._wants_all or self.began_anew):
            # A store that lags shows a sample late: look back over more than has passed.
            return [(now, min(now - self._reached + slack + 15.0, self.window_s + slack))]
        span = self._whole(census)
        pieces = max(1, math.ceil(span * self._per_second(census) / _SAMPLES_A_QUERY))
        step = span / pieces
        return [(now - step * (pieces - 1 - i), step) for i in range(pieces)]

    def _whole(self, census: Census) -> float:
        """Seconds that a round fetches which brings everything."""
        slack = 2 * census.interval_s + 1.0
        most = _SAMPLES_AT_ONCE / self._per_second(census)
        return min(self.window_s + slack, max(slack, most))

    def _per_second(self, census: Census) -> float:
        """Samples of the fleet in a second."""
        engines = len(self._instances) or max(1, census.total)
        return engines * _SERIES_PER_ENGINE / census.interval_s

    async def _fetch(self, end: float, span: float, census: Census) -> list[Scrape]:
        # Whole milliseconds, and one more: no sample falls between two stretches.
        pages = promql.raw_engines(self.selector, span + 0.001, self._instances)
        engines = await self.api.query(pages, at=end)
        targets = await self.api.query(
            promql.raw_targets(self.selector, span + 0.001, census.jobs, self._instances), at=end
        )
        if without_page(engines.series, targets.series):
            # A scrape ended between the two questions, or the target has no engine any more.
            engines = await self.api.query(pages, at=end)
        note = engines.note or targets.note
        self.note = note or self.note
        names = self._names
        found = to_scrapes(engines.series, targets.series, self._delivered, names=names, note=note)
        for name in names.dropped:
            self._delivered.pop(name, None)
        for scrape in found:
            self._delivered[scrape.target] = max(scrape.at, self._delivered.get(scrape.target, 0.0))
            self.newest = max(self.newest, scrape.at)
        return found

    def _forget(self, now: float) -> None:
        keep_s = max(300.0, self.window_s)
        alive = {t: at for t, at in self._delivered.items() if now - at <= keep_s}
        self._delivered = alive
        self.targets = tuple(alive)


def to_scrapes(
    engines: Iterable[Series],
    targets: Iterable[Series],
    delivered: Mapping[str, float],
    *,
    names: Names | None = None,
    note: str | None = None,
) -> list[Scrape]:
    """The pages that raw samples were scraped from, oldest first.

    Prometheus gives every sample of one scrape the same time, so target and time name a page.

    Args:
        engines: Series that engines write.
        targets: `up` and `process_start_time_seconds`.
        delivered: Per target, the time up to which pages were made before.
        names: What targets are called, as learned so far.
        note: What to say of each page.
    """
    engines, targets, names = tuple(engines), tuple(targets), names or Names()
    names.learn(engines, targets)
    added = set[str]().union(*(s.labels for s in targets if s.labels.get("__name__") == "up"))
    strip = _TARGET_LABELS | (added - promql.ENGINE_LABELS)
    pages: dict[tuple[str, float], list[str]] = {}
    for series in engines:
        _spread(series, names.of(series.labels), strip, delivered, pages)
    known = {target for target, _ in pages} | delivered.keys()
    states: dict[tuple[str, float], bool] = {}
    pools: dict[str, str | None] = {}
    for series in targets:
        target = names.of(series.labels)
        if series.labels.get("__name__") == "up":
            pools[target] = series.labels.get("pool")
            since = delivered.get(target, 0.0)
            states |= {(target, at): float(v) > 0 for at, v in series.samples if at > since}
    for series in targets:
        if series.labels.get("__name__") != "up":
            target = names.of(series.labels)
            _spread(series, target, strip, delivered, pages, only_known=True)
    found = [
        Scrape(
            at, target, 200, ("\n".join(lines) + "\n").encode(), note=note, pool=pools.get(target)
        )
        for (target, at), lines in pages.items()
    ]
    for (target, at), is_up in states.items():
        if (target, at) in pages:
            continue
        if not is_up:
            found.append(Scrape(at, target, error=DOWN, note=note))
        elif target in known:
            found.append(Scrape(at, target, 200, b"", note=note or "up, without engine metrics"))
    return sorted(found, key=lambda scrape: (scrape.at, scrape.target))


def rounds_of(scrapes: Iterable[Scrape]) -> Iterator[list[Scrape]]:
    """Scrapes in order of time, cut into rounds with at most one of each target."""
    part: list[Scrape] = []
    seen: set[str] = set()
    for scrape in scrapes:
        if scrape.target in seen:
            yield part
            part, seen = [], set()
        part.append(scrape)
        seen.add(scrape.target)
    if part:
        yield part


def _spread(
    series: Series,
    target: str,
    strip: frozenset[str],
    delivered: Mapping[str, float],
    pages: dict[tuple[str, float], list[str]],
    *,
    only_known: bool = False,
) -> None:
    since = delivered.get(target, 0.0)
    head = _head(series.labels, strip)
    for at, value in series.samples:
        if at <= since:
            continue
        page = pages.get((target, at))
        if page is None:
            if only_known:
                continue
            page = pages[target, at] = []
        page.append(f"{head} {value}")


def _head(labels: Mapping[str, str], strip: frozenset[str]) -> str:
    kept = ",".join(
        f'{name}="{_escaped(value)}"'
        for name, value in sorted(labels.items())
        if name != "__name__" and name not in strip
    )
    return f"{labels['__name__']}{{{kept}}}" if kept else labels["__name__"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
