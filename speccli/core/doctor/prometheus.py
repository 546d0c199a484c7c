"""A Prometheus: does it answer, know the pool, have fresh samples, and does its clock agree?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from speccli.core.doctor.base import Check, State
from speccli.core.doctor.probe import resolve, shake_hands
from speccli.core.doctor.server import MAX_SKEW_S
from speccli.core.engines.registry import ADAPTERS
from speccli.core.errors import DeadlineError, SourceError, UnreachableError, UsageError
from speccli.core.sources.promapi import Answer, PrometheusApi
from speccli.core.sources.promql import RULES_VERSION, rules_there
from speccli.core.sources.recorded import loaded
from speccli.core.sources.scrape import Access
from speccli.core.views.format import duration

_STALE_S = 120.0
_GAUGE = "running"
"""What every engine exposes from its first second on."""


async def look(
    url: str, selector: str | None, access: Access, *, deadline_s: float
) -> AsyncIterator[Check]:
    """Checks of one Prometheus, as they come in."""
    try:
        api = PrometheusApi(url, access=access, deadline_s=deadline_s)
    except UsageError as error:
        yield Check("source", "URL", "fail", error.message, fix=error.hint or "")
        return
    try:
        unreached = await _unreached(api, access, deadline_s)
        if unreached is not None:
            yield unreached
            return
        async for check in _asked(api, selector):
            yield check
    except (UnreachableError, DeadlineError) as error:
        yield _check(api, "reach", "unknown", error.message, fix=error.hint or "")
    except SourceError as error:
        yield _check(api, "reach", "fail", error.message, fix=error.hint or "")
    finally:
        await api.aclose()


async def _unreached(api: PrometheusApi, access: Access, deadline_s: float) -> Check | None:
    """Why it cannot be asked at all; None when it can."""
    parts = urlsplit(api.url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    addresses, why = await resolve(host, port, deadline_s)
    if not addresses:
        fix = "check the spelling, /etc/resolv.conf and the VPN"
        return _check(api, "name", "unknown", f"{host}: {why}", fix=fix)
    if parts.scheme != "https":
        return None
    tls = await shake_hands(host, port, access, deadline_s)
    if tls.accepted:
        return None
    ends = "" if tls.expires is None else f"; ends {tls.expires:%Y-%m-%d %H:%M} UTC"
    if ends or (tls.reason or "").startswith("no TLS here"):
        fix = "renew it, give its authority with --ca FILE, or correct the scheme"
        return _check(api, "TLS", "fail", f"{tls.reason}{ends}", fix=fix)
    fix = "is it running, is the port-forward up?"
    return _check(api, "reach", "unknown", tls.reason or "no answer", fix=fix)


async def _asked(api: PrometheusApi, selector: str | None) -> AsyncIterator[Check]:
    await api.query("vector(0)")  # the client's first question also loads it and connects
    sent = time.time()
    began = time.monotonic()
    probe = await api.query("vector(time())")
    seconds = time.monotonic() - began
    yield _check(api, "reach", "ok", f"answers PromQL in {seconds * 1000:,.0f} ms")
    yield _clock(api, probe, sent + seconds / 2, seconds / 2)
    series = _series(selector)
    count, age, rules = await asyncio.gather(
        api.query(f"count({series})"),
        api.query(f"min(time() - timestamp({series}))"),
        api.query(rules_there()),
    )
    pool = f"with {selector}" if selector else "of vLLM or SGLang"
    engines = _value(count)
    if not engines:
        fix = "check --selector and the scrape configuration (up == 1?)"
        yield _check(api, "engines", "fail", f"knows no engine {pool}", fix=fix)
        return
    if count.note:
        why = "what it leaves out is not counted"
        yield _check(api, "engines", "warn", count.note, why, "look at its stores")
    else:
        yield _check(api, "engines", "ok", f"{engines:,.0f} {pool}")
    old = _value(age) or 0.0
    if old > _STALE_S:
        what = f"the newest sample is {duration(old)} old"
        yield _check(
            api, "freshness", "warn", what, "numbers are of then", "is its scraping stuck?"
        )
    else:
        yield _check(api, "freshness", "ok", f"the newest sample is {duration(old)} old")
    if rules.series:
        yield _rules(api, rules)


def _rules(api: PrometheusApi, answer: Answer) -> Check:
    there = loaded(answer.series)
    if there.note is None:
        what = f"recording rules are version {RULES_VERSION}, as this specctl reads"
        return _check(api, "rules", "ok", what)
    what, _, fix = there.note.partition(": ")
    why = "a large fleet is summed anew at every look, by Prometheus"
    return _check(api, "rules", "warn", what, why, fix)


def _clock(api: PrometheusApi, probe: Answer, here: float, error: float) -> Check:
    told = _value(probe)
    if told is None:
        return _check(api, "clock", "skip", "it does not tell the time")
    skew = told - here
    if abs(skew) - error <= MAX_SKEW_S:
        return _check(api, "clock", "ok", f"within {abs(skew) + error:.1f} s of this machine's")
    way = "ahead of" if skew > 0 else "behind"
    what = f"the server is {duration(abs(skew))} {way} this machine"
    why = "specctl asks by the server's clock; times shown are off by as much"
    return _check(api, "clock", "warn", what, why, "run NTP on both")


def _series(selector: str | None) -> str:
    """One gauge of every engine, under any of its names."""
    gauges = (gauge for adapter in ADAPTERS for gauge in adapter.gauges)
    names = [name for gauge in gauges if gauge.field == _GAUGE for name in gauge.names]
    matchers = f'__name__=~"{"|".join(names)}"'
    return f"{{{matchers},{selector}}}" if selector else f"{{{matchers}}}"


def _value(answer: Answer) -> float | None:
    return answer.series[0].value if answer.series else None


def _check(
    api: PrometheusApi, name: str, state: State, what: str, why: str = "", fix: str = ""
) -> Check:
    return Check("source", name, state, what, why, fix, subject=api.url)
