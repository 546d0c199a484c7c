"""From settings to a poller: which source, which window, what is asked of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from speccli.core.config import Settings
from speccli.core.cost import Pricing
from speccli.core.errors import UsageError
from speccli.core.findings.base import Thresholds
from speccli.core.poll import Poller, Tap, stale_of_scraped
from speccli.core.sources.access import Access
from speccli.core.sources.replay import ReplaySource
from speccli.core.sources.scrape import ScrapeSource
from speccli.core.sources.targets import parse_targets
from speccli.core.stats import window
from speccli.core.units import seconds

_PROMETHEUS_WINDOW_S = 60.0
"""A window that holds a few of Prometheus's own scrapes."""
_HINT = (
    "give --endpoint http://host:8000, --prometheus URL, --deployment NAME or --replay FILE "
    "(or specctl.toml)"
)
_DEADLINE_S = 5.0
_SHORTEST_S = 0.1
"""Interval or deadline under which nothing sensible can be measured."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A source ready to be read, and what its numbers are held against."""

    poller: Poller
    thresholds: Thresholds
    live: bool
    """False for a recording."""
    interval_s: float
    window_s: float | None
    """The window asked for; None: the whole recording."""


def thresholds_of(settings: Settings) -> Thresholds:
    """What the settings hold numbers against.

    Raises:
        UsageError: a duration that is none.
    """
    usual = Thresholds()
    return Thresholds(
        expect_speculation=None if settings.method is None else settings.method != "none",
        acceptance_floor=_or(settings.floor, usual.acceptance_floor),
        hold_s=seconds(settings.hold, what="--hold") if settings.hold else usual.hold_s,
        stalled_s=_at_least_1s(settings.stalled, "stalled") or usual.stalled_s,
        drift_every_s=_at_least_1s(settings.drift_every, "drift_every") or usual.drift_every_s,
        drift_min_drafts=settings.drift_min_drafts or usual.drift_min_drafts,
        drift_looks=settings.drift_looks or usual.drift_looks,
        drift_margin=_or(settings.drift_margin, usual.drift_margin),
        slope_fall=_or(settings.slope_fall, usual.slope_fall),
        queue_wait_ms=settings.queue_wait_ms,
        ttft_p99_ms=settings.ttft_p99_ms,
        tpot_p99_ms=settings.tpot_p99_ms,
        cost_per_1m_usd=settings.cost_target,
    )


def _or(given: float | None, usual: float) -> float:
    return usual if given is None else given


def _at_least_1s(text: str | None, what: str) -> float | None:
    """Seconds of a setting, None where it is not set.

    Raises:
        UsageError: not a duration, or one in which nothing can be seen.
    """
    return seconds(text, what=what, least=1) if text else None


def pricing_of(settings: Settings) -> Pricing:
    """What the settings say hardware costs."""
    return Pricing(settings.gpu_hour_usd, settings.gpus_per_engine or 1, settings.baseline_cost)


def access_of(settings: Settings) -> Access:
    """How the settings let us in."""

    def path(text: str | None) -> Path | None:
        try:
            return Path(text).expanduser() if text else None
        except RuntimeError as error:
            raise UsageError(f"{text}: {error}") from error

    return Access(
        token=settings.token,
        token_file=path(settings.token_file),
        ca_file=path(settings.ca),
        cert_file=path(settings.cert),
        key_file=path(settings.key),
        insecure=bool(settings.insecure),
    )


def _check_method(method: str | None) -> None:
    """A mistyped method would be shown as if it were one.

    Raises:
        UsageError: no engine has a method of that name.
    """
    if method is None:
        return
    import difflib

    from speccli.core.engines.vllm_speculative import METHODS

    known = ["none", "p-eagle", *METHODS]
    if method not in known:
        close = difflib.get_close_matches(method, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
        raise UsageError(f"--method {method}: no method of that name", hint=hint)


def open_source(
    settings: Settings,
    *,
    replay: Path | None,
    default_window_s: float,
    pace: float = 0.0,
    tap: Tap | None = None,
) -> Opened:
    """The poller for what was asked.

    Raises:
        UsageError: no source, more than one, or one that cannot be.
    """
    given = [
        name
        for name, value in (
            ("--endpoint", settings.endpoint),
            ("--prometheus", settings.prometheus),
            ("--deployment", settings.deployment),
            ("--replay", replay),
        )
        if value
    ]
    if not given:
        raise UsageError("no source of metrics", hint=_HINT)
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} together: one source at a time", hint=_HINT)
    _check_method(settings.method)
    asked = seconds(settings.window, what="--window") if settings.window else None
    deadline = seconds(settings.deadline, what="--deadline") if settings.deadline else None
    if deadline is not None and deadline < _SHORTEST_S:
        raise UsageError(f"--deadline {settings.deadline}: at least 0.1 s", hint="try 5s")
    if replay:
        return _open_replay(settings, replay, asked, pace)
    window_s = default_window_s if asked is None else asked
    if settings.prometheus:
        return _open_prometheus(settings, settings.prometheus, asked, default_window_s, tap)
    interval = _interval(settings) or 1.0
    answer_s = _DEADLINE_S if deadline is None else deadline
    source = _scraping(settings, interval, answer_s)
    counted = window.Window(_window(settings, window_s, interval, answer_s))
    poller = Poller(source, counted, now=time.time, tap=tap)
    return Opened(poller, thresholds_of(settings), True, interval, window_s)


def _scraping(settings: Settings, interval_s: float, deadline_s: float) -> ScrapeSource:
    """Servers that are asked themselves, or through their cluster's API server."""
    if settings.deployment:
        # The Kubernetes client takes a quarter of a second to import.
        from speccli.core.kube.open import open_pods

        return open_pods(
            settings.deployment,
            kubeconfig=settings.kubeconfig,
            context=settings.context,
            namespace=settings.namespace,
            interval_s=interval_s,
            deadline_s=deadline_s,
        )
    return ScrapeSource(
        parse_targets(list(settings.endpoint or ())),
        interval_s=interval_s,
        deadline_s=deadline_s,
        access=access_of(settings),
    )


def _interval(settings: Settings) -> float | None:
    """The interval asked for."""
    interval = seconds(settings.interval, what="--interval") if settings.interval else None
    if interval is not None and interval < _SHORTEST_S:
        raise UsageError(f"--interval {settings.interval}: at least 0.1 s", hint="try 1s")
    return interval


def _open_prometheus(
    settings: Settings, url: str, asked: float | None, default_window_s: float, tap: Tap | None
) -> Opened:
    # Importing the client costs a fifth of a second and 20 MB that direct scraping need not pay.
    from speccli.core.poll_prometheus import open_prometheus

    window_s = max(default_window_s, _PROMETHEUS_WINDOW_S) if asked is None else asked
    interval = _interval(settings)
    poller = open_prometheus(
        url,
        _window(settings, window_s, interval or 1.0),
        selector=settings.selector,
        access=access_of(settings),
        deadline_s=seconds(settings.deadline, what="--deadline") if settings.deadline else 10.0,
        interval_s=interval,
        tap=tap,
    )
    return Opened(poller, thresholds_of(settings), True, interval or 5.0, window_s)


def _open_replay(settings: Settings, path: Path, asked: float | None, pace: float) -> Opened:
    source = ReplaySource(path, pace=pace)
    interval = source.recorded_interval_s
    asked_of_window = _window(settings, asked, interval, span_s=None)
    header = source.recording.header
    if header.source == "prometheus":
        asked_of_window = replace(asked_of_window, stale_s=stale_of_scraped(interval))
    counted = window.Window(asked_of_window, simulated=header.simulated, source=header.source)
    return Opened(Poller(source, counted), thresholds_of(settings), False, interval, asked)


def _window(
    settings: Settings,
    window_s: float | None,
    interval: float,
    deadline: float = _DEADLINE_S,
    span_s: float | None = 3600.0,
) -> window.Settings:
    """A sample stands for now until the next two are missing, or the next takes all it may."""
    thresholds = thresholds_of(settings)
    return window.Settings(
        window_s=window_s,
        span_s=None if span_s is None else max(span_s, 1.1 * (window_s or 0.0)),
        stale_s=max(5.0, 3.5 * interval, interval + deadline + 1.0),
        floor=thresholds.acceptance_floor,
        pricing=pricing_of(settings),
        method=settings.method,
    )
