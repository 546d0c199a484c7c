"""What a visit to a server amounts to: one small function a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from speccli.core.doctor.base import Check, State
from speccli.core.doctor.probe import Visit
from speccli.core.engines import advice
from speccli.core.metrics.counters import Counters
from speccli.core.sources.body import WARN
from speccli.core.views.format import duration

MAX_SKEW_S = 5.0
_EXPIRES_SOON_S = 14 * 86400.0
_SLOW_S = 0.5
"""Half of the usual interval: a scrape slower than this cannot keep up for long."""
_COARSE_S = 0.1
"""First bucket of a request latency from which a queue wait in milliseconds cannot be resolved."""
_DASHES = {"SERVER": "look at the server's log", "AUTH": "give --token, --token-file or --cert"}


def check(seen: Visit, name: str, state: State, what: str, why: str = "", fix: str = "") -> Check:
    """A check of this server."""
    return Check("source", name, state, what, why, fix, subject=seen.target.name)


def name(seen: Visit) -> Iterable[Check]:
    """Does its name resolve?"""
    host = seen.target.host
    if seen.unresolved:
        fix = "check the spelling, /etc/resolv.conf and the VPN"
        yield check(seen, "name", "unknown", f"{host}: {seen.unresolved}", fix=fix)
    elif seen.addresses and seen.addresses != (host,):
        yield check(seen, "name", "ok", f"{host} is {', '.join(seen.addresses[:3])}")


def tls(seen: Visit) -> Iterable[Check]:
    """Is its certificate accepted, and for how long?"""
    if seen.tls is None:
        return
    shaken, ends = seen.tls, seen.tls.expires
    left = None if ends is None else (ends - datetime.now(UTC)).total_seconds()
    said = "" if ends is None else f"ends {ends:%Y-%m-%d %H:%M} UTC"
    if not shaken.accepted:
        yield _not_accepted(seen, shaken.reason or "not accepted", left, said)
    elif seen.insecure:
        why = "anyone between here and there could answer"
        what = f"not verified: --insecure; {said}".rstrip("; ")
        yield check(seen, "TLS", "warn", what, why, "give --ca FILE instead")
    elif left is not None and left < _EXPIRES_SOON_S:
        what = f"accepted, {said}: in {duration(left)}"
        yield check(seen, "TLS", "warn", what, "it cannot be read after that", "renew it")
    else:
        yield check(seen, "TLS", "ok", f"certificate accepted, {said or 'no end known'}")


def _not_accepted(seen: Visit, reason: str, left: float | None, said: str) -> Check:
    if left is not None and left < 0:
        what = f"certificate expired: {said}, {duration(-left)} ago"
        return check(seen, "TLS", "fail", what, fix="renew it on the server (or --insecure)")
    if said:
        what = f"certificate not accepted: {reason}; {said}"
        fix = "give its authority with --ca FILE, or a name that it is made out to"
        return check(seen, "TLS", "fail", what, fix=fix)
    if reason.startswith("no TLS here"):
        return check(
            seen, "TLS", "fail", reason, fix="write http:// if the server speaks plain http"
        )
    return check(seen, "reach", "unknown", reason, fix="is it running, is the port-forward up?")


def reach(seen: Visit) -> Iterable[Check]:
    """Does it answer, and is what it answers a metrics page?"""
    scrape = seen.scrape
    if scrape is None:
        if seen.addresses and not seen.finished and (seen.tls is None or seen.tls.accepted):
            what = "no answer before the deadline"
            yield check(seen, "reach", "unknown", what, fix="give a longer --deadline")
        return
    if scrape.error is not None:
        fix = "is it running, is the port-forward up, does a firewall drop it?"
        yield check(seen, "reach", "unknown", scrape.error, fix=fix)
        return
    if not seen.counters:
        reason = next((e.reason for e in seen.engines if e.reason), "no metrics")
        fix = _DASHES.get(reason.partition(":")[0], "is this the engine's own port?")
        yield check(seen, "metrics", "fail", reason, fix=fix)
        return
    for engine in seen.engines:
        if engine.state == "partial":
            why = "what is missing is unknown, never 0"
            yield check(seen, "metrics", "warn", f"partial: {engine.reason}", why)
            return
    counts = f"{len(seen.counters)} engine{'s' * (len(seen.counters) != 1)}"
    simulated = ", SIMULATED" if any(c.simulated for c in seen.counters) else ""
    yield check(seen, "metrics", "ok", f"readable, {counts}{simulated}")


def engine(seen: Visit) -> Iterable[Check]:
    """Which engine, which version?"""
    for first in seen.engines[: bool(seen.counters)]:
        model = first.model or "model unknown"
        if first.version:
            yield check(seen, "engine", "ok", f"{first.kind} {first.version}, {model}")
        else:
            why = "version-bound advice cannot be given"
            what = f"{first.kind}, version not told, {model}"
            yield check(seen, "engine", "ok", what, why)


def speculation(seen: Visit) -> Iterable[Check]:
    """Does it draft, by which method, and does it say so?"""
    if not seen.counters:
        return
    first = seen.engines[0]
    has_metrics = any(c.layout.spec or "acceptance_length" in c.gauges for c in seen.counters)
    if has_metrics and first.method in {"unknown", "none"}:
        what = "drafts are counted, but the method is not told"
        why = "rules that depend on it (K, parallel drafting) stay silent"
        yield check(seen, "speculation", "warn", what, why, advice.TELL_METHOD)
    elif has_metrics:
        k = f", K={first.k}" if first.k else ""
        draft = f", draft {first.draft}" if first.draft else ""
        yield check(seen, "speculation", "ok", f"{first.method}{k}{draft}")
    elif advice.hides_speculation(first.kind, first.version, len(seen.counters)):
        what = f"no metrics of it: {first.kind} {first.version} has none for several engines"
        yield check(seen, "speculation", "warn", what, "nothing can be told", "upgrade vLLM")
    elif seen.scrape is not None and seen.scrape.info.get("method") == "none":
        yield check(seen, "speculation", "ok", "off: the server says that it runs without a draft")
    elif first.method in {"unknown", "none"}:
        what = "no speculation metrics: the engine runs without a draft"
        fix = "start it with --speculative-config"
        yield check(seen, "speculation", "warn", what, "there is nothing to watch", fix)
    else:
        what = f"{first.method} is configured, but nothing about drafts is on the page"
        fix = "look for a log line about speculation being disabled"
        yield check(seen, "speculation", "fail", what, "it is not active", fix)


def buckets(seen: Visit) -> Iterable[Check]:
    """Are the histogram buckets fine enough for the quantiles that are shown?"""
    for counters in seen.counters[:1]:
        slots = counters.layout.histograms.get("queue") or counters.layout.histograms.get("e2e")
        if slots is None or len(slots.bounds) < 2:
            continue
        first_s = slots.bounds[0]
        if first_s < _COARSE_S:
            what = f"request latencies are resolved from {first_s * 1000:g} ms on"
            yield check(seen, "buckets", "ok", what)
            continue
        what = f"the first bucket of request latencies ends at {first_s * 1000:g} ms"
        why = "shorter waits and p99s stay unresolved; means are exact"
        settable = advice.takes_custom_buckets(counters.kind, seen.engines[0].version)
        if settable:
            yield check(
                seen, "buckets", "warn", what, why, f"start it with {advice.CUSTOM_BUCKETS}"
            )
        else:
            fix = "vLLM can set them from 0.32 on" if settable is None else "0.32 can set them"
            fix = fix if counters.kind == "vllm" else ""
            yield check(seen, "buckets", "ok", what, why, fix)


def api_servers(seen: Visit) -> Iterable[Check]:
    """Do several API servers stand before one engine?"""
    if any(c.several_api_servers for c in seen.counters):
        what = "several API servers write this page (--api-server-count)"
        why = "its step counter does not count steps (vLLM #51329): batch size is unknown"
        yield check(seen, "API servers", "warn", what, why, "run one, if batch size matters")


def balancer(seen: Visit) -> Iterable[Check]:
    """Does one process answer at this URL, or several by turns?"""
    if not seen.looks:
        return
    order = [seen.counters, *(look.engines for look in seen.looks)]
    starts = [c.started for page in order for c in page[:1]]
    known = [start for start in starts if start is not None]
    fell = any(_fell(a, b) for a, b in zip(order, order[1:], strict=False))
    distinct = len(set(known))
    if distinct > 1 or (fell and not known):
        what = f"{distinct} processes answered" if distinct > 1 else "its counters run backwards"
        why = f"in {len(order)} scrapes: a load balancer, so no rate can be told"
        fix = "give --endpoint for each server behind it, or --prometheus"
        yield check(seen, "one process", "fail", what, why, fix)
    elif known:
        yield check(seen, "one process", "ok", f"the same in {len(order)} scrapes")
    else:
        what = "the page does not tell its process's start"
        why = "a restart is seen by counters that fall"
        yield check(seen, "one process", "ok", what, why)


def _fell(before: tuple[Counters, ...], after: tuple[Counters, ...]) -> bool:
    """Whether an engine had made more tokens in the earlier scrape."""
    made = {c.engine: c.get("generation_tokens") or 0.0 for c in before}
    return any((c.get("generation_tokens") or 0.0) < made.get(c.engine, 0.0) for c in after)


def clock(seen: Visit) -> Iterable[Check]:
    """Do both clocks agree?"""
    told = [(look.skew_s, look.skew_error_s) for look in seen.looks if look.skew_s is not None]
    if not told:
        if seen.looks:
            yield check(seen, "clock", "skip", "the server sends no Date")
        return
    skew, error = min(told, key=lambda pair: pair[1])
    if abs(skew) - error > MAX_SKEW_S:
        way = "ahead of" if skew > 0 else "behind"
        what = f"the server is {duration(abs(skew))} {way} this machine"
        why = "ages, uptimes and events are off by as much"
        yield check(seen, "clock", "warn", what, why, "run NTP on both")
    else:
        yield check(seen, "clock", "ok", f"within {abs(skew) + error:.1f} s of this machine's")


def page(seen: Visit) -> Iterable[Check]:
    """How long does a scrape take, and how large is it?"""
    if not seen.looks:
        return
    seconds = sorted(look.seconds for look in seen.looks)[len(seen.looks) // 2]
    size = max(look.size for look in seen.looks)
    what = f"{seconds * 1000:,.0f} ms for {size / 1000:,.0f} kB"
    if size > WARN:
        why = "a label that carries a whole configuration? (vLLM #44691)"
        yield check(seen, "scrape", "warn", what, why, "find the largest family, drop or fix it")
    elif seconds > _SLOW_S:
        why = "a scrape a second cannot keep up"
        yield check(seen, "scrape", "warn", what, why, "give --interval 5s, or ask a Prometheus")
    else:
        yield check(seen, "scrape", "ok", what)


SERVER: tuple[Callable[[Visit], Iterable[Check]], ...] = (
    name,
    tls,
    reach,
    engine,
    speculation,
    buckets,
    api_servers,
    balancer,
    clock,
    page,
)
"""Every check of a server that is scraped directly."""
