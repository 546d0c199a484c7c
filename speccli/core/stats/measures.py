"""Every number of the contract, from pooled increases and gauges. Pure.

Formulas: acceptance rate Σ accepted / Σ draft tokens; acceptance length 1 + Σ accepted / Σ drafts
(Leviathan et al. 2023, as vLLM's `v1/spec_decode/metrics.py` defines them); tokens per step
(Δ generation − Δ ttft_count) / Δ itl_count, which holds for every method because vLLM observes its
inter-token latency once per request and step (`v1/metrics/stats.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speccli.core.cost import Pricing
from speccli.core.engines.registry import adapter_named
from speccli.core.stats.histogram import latency
from speccli.core.stats.increase import Pool
from speccli.core.values import LEAST, Latency, Number

_TORN = "the speculation counters contradict each other: intervals were left out"
_SPECULATION = frozenset({"drafts", "draft_tokens", "accepted_tokens"})
_FULL_DRAFTS = 0.9
"""Share of K that drafts must reach for per-position rates to share one denominator."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The METRICS of the contract, for an engine or a pool of them."""

    acceptance_rate: Number
    acceptance_length: Number
    acceptance_by_position: tuple[Number, ...]
    draft_tokens: Number
    drafts: Number
    tokens_per_step: Number
    wasted_draft_tokens_per_s: Number
    running: Number
    waiting: Number
    batch_size: Number
    kv_cache_usage: Number
    queue_wait_ms: Number
    queue_wait_observed_ms: Number
    queue_wait_backlog_ms: Number
    ttft_s: Latency
    itl_s: Latency
    tpot_s: Latency
    e2e_s: Latency
    queue_s: Latency
    output_tokens_per_s: Number
    input_tokens_per_s: Number
    requests_per_s: Number
    cost_per_1m_output_usd: Number
    cost_per_1m_total_usd: Number


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: increases, the newest gauges of every engine in them, and their kind."""

    pool: Pool
    gauges: Sequence[Mapping[str, float]]
    kind: str
    """`engine_kind` that explains absences."""
    several_api_servers: bool = False
    speculating: bool = True
    """False where the engine is known to run without speculation."""
    engines: int | None = None
    """How many engines are paid for; None: as many as there are gauges."""
    partial: bool = False
    """Whether a part of a page could not be used: what lacks may have been there."""


def measure(subject: Subject, pricing: Pricing) -> Metrics:
    """Every metric; what cannot be told says why."""
    pool = subject.pool
    output = _rate(subject, "generation_tokens")
    total = _rate(subject, "generation_tokens", "prompt_tokens")
    observed, backlog = queue_observed_ms(subject), queue_backlog_ms(subject)
    engines = len(subject.gauges) if subject.engines is None else subject.engines
    return Metrics(
        acceptance_rate=acceptance_rate(subject),
        acceptance_length=acceptance_length(subject),
        acceptance_by_position=acceptance_by_position(subject),
        draft_tokens=_count(subject, "draft_tokens"),
        drafts=_count(subject, "drafts"),
        tokens_per_step=tokens_per_step(subject),
        wasted_draft_tokens_per_s=wasted_per_s(subject),
        running=_gauge(subject, "running", sum),
        waiting=_gauge(subject, "waiting", sum),
        batch_size=batch_size(subject),
        kv_cache_usage=_gauge(subject, "kv_cache_usage", max),
        queue_wait_ms=larger(observed, backlog),
        queue_wait_observed_ms=observed,
        queue_wait_backlog_ms=backlog,
        ttft_s=latency(pool.histogram("ttft"), _absent(subject, "ttft")),
        itl_s=latency(pool.histogram("itl"), _absent(subject, "itl")),
        tpot_s=latency(pool.histogram("tpot"), _absent(subject, "tpot")),
        e2e_s=latency(pool.histogram("e2e"), _absent(subject, "e2e")),
        queue_s=latency(pool.histogram("queue"), _absent(subject, "queue")),
        output_tokens_per_s=output,
        input_tokens_per_s=_rate(subject, "prompt_tokens"),
        requests_per_s=_rate(subject, "finished"),
        cost_per_1m_output_usd=_cost(pricing, engines, output),
        cost_per_1m_total_usd=_cost(pricing, engines, total),
    )


def acceptance_rate(subject: Subject) -> Number:
    """Σ accepted / Σ draft tokens, 0..1."""
    slots = ("draft_tokens", "accepted_tokens")
    sums = subject.pool.sums(*reversed(slots))
    if sums is None:
        return _from_gauge(subject, *slots)
    accepted, drafted = sums
    if drafted < LEAST:
        return _no_drafts(subject)
    return _ratio(subject, accepted, drafted)


def acceptance_length(subject: Subject) -> Number:
    """1 + Σ accepted / Σ drafts, tokens per verify step."""
    slots = ("drafts", "accepted_tokens")
    sums = subject.pool.sums(*reversed(slots))
    if sums is None:
        return _from_gauge(subject, *slots)
    accepted, drafts = sums
    if drafts < LEAST:
        return _no_drafts(subject)
    drafted = subject.pool.sums("accepted_tokens", "drafts", "draft_tokens")
    if drafted is not None and drafted[0] > drafted[2]:
        return Number.unknown(
            f"counters contradict each other ({drafted[0]:.0f} of {drafted[2]:.0f})", n=drafts
        )
    return Number.known(1 + accepted / drafts, n=drafts, reason=_since(subject))


def acceptance_by_position(subject: Subject) -> tuple[Number, ...]:
    """Accepted at position i / drafts, unconditional, over the engines that draft that far."""
    pool = subject.pool
    full = pool.sums("draft_tokens", "drafts")
    numbers: list[Number] = []
    for i in range(pool.positions):
        sums = pool.sums(f"accepted_at:{i}", "drafts")
        if sums is None:
            numbers.append(Number.unknown(f"position {i} is not exported beside drafts"))
        elif sums[1] < LEAST:
            numbers.append(_no_drafts(subject))
        elif i > 0 and full and full[1] > 0 and not _drafts_are_full(pool):
            mean = full[0] / full[1]
            numbers.append(
                Number.unknown(
                    f"draft lengths vary ({mean:.1f} of {pool.positions} on average): "
                    "how often this position was tried is not exported",
                    n=sums[1],
                )
            )
        else:
            numbers.append(_ratio(subject, sums[0], sums[1]))
    return tuple(numbers)


def _drafts_are_full(pool: Pool) -> bool:
    """Whether drafts have K tokens nearly always, K taken per engine."""
    drafted = possible = 0.0
    for member in pool.members:
        i, j = member.layout.index.get("draft_tokens"), member.layout.index.get("drafts")
        if i is not None and j is not None:
            drafted += member.values[i]
            possible += member.values[j] * member.layout.positions
    return drafted >= _FULL_DRAFTS * possible


def tokens_per_step(subject: Subject) -> Number:
    """(Δ generation − Δ ttft_count) / Δ itl_count: output tokens per request and decode step."""
    slots = ("itl.count", "ttft.count", "generation_tokens")
    sums = subject.pool.sums(*reversed(slots))
    if sums is None:
        return Number.unknown(_absent(subject, *slots))
    generated, first, steps = sums
    if steps < LEAST:
        return Number.unknown("no decode steps in the window", n=0)
    value = (generated - first) / steps
    if value < 0:
        return Number.unknown("token and latency counts contradict each other", n=steps)
    return Number.known(value, n=steps, reason=_since(subject))


def batch_size(subject: Subject) -> Number:
    """Requests per engine step: Δ (itl_count + ttft_count) / Δ steps."""
    if subject.several_api_servers:
        return Number.unknown(
            "several API servers: each counts its own steps (vLLM PR #51329), so no step count"
        )
    slots = ("steps", "ttft.count", "itl.count")
    sums = subject.pool.sums(*reversed(slots))
    if sums is None:
        return Number.unknown(_absent(subject, *slots))
    itl, ttft, steps = sums
    if steps < LEAST or itl + ttft < LEAST:
        return Number.unknown("no steps in the window", n=0)
    return Number.known((itl + ttft) / steps, n=steps, reason=_since(subject))


def wasted_per_s(subject: Subject) -> Number:
    """Drafted and not accepted, tokens per second."""
    drafted = _rate(subject, "draft_tokens")
    accepted = _rate(subject, "accepted_tokens")
    if drafted.value is None or accepted.value is None:
        return drafted if drafted.value is None else accepted
    return Number.known(max(0.0, drafted.value - accepted.value))


def queue_observed_ms(subject: Subject) -> Number:
    """Mean wait of the requests that finished in the window; it lags by a request's length."""
    sums = subject.pool.sums("queue.sum", "queue.count")
    if sums is None:
        return Number.unknown(_absent(subject, "queue.count"))
    total, n = sums
    if n < LEAST:
        return Number.unknown("no request finished in the window", n=0)
    return Number.known(1000 * total / n, n=n, reason=_since(subject))


def queue_backlog_ms(subject: Subject) -> Number:
    """Waiting lately / rate of first tokens: what the last in the queue has before it (Little)."""
    waiting = _gauge(subject, "waiting", sum)
    if waiting.value is None:
        return waiting
    lately = waiting.value if subject.pool.waiting is None else subject.pool.waiting
    if waiting.value == 0 and lately == 0:
        return Number.known(0.0)
    departures = subject.pool.rate("ttft.count")
    if departures is None:
        return Number.unknown("departure rate unknown: one scrape, or no first-token count")
    if departures < LEAST:
        return Stuck.unknown(f"{waiting.value or lately:.0f} waiting and none left the queue")
    return Number.known(1000 * lately / departures)


@dataclass(frozen=True, slots=True)
class Stuck(Number):
    """A backlog that has no end: what waits does not leave. No known wait is larger."""


def larger(observed: Number, backlog: Number) -> Number:
    """The larger of two; the known one where only one is known."""
    if observed.value is None and backlog.value is None:
        return backlog if isinstance(backlog, Stuck) else observed
    if observed.value is None:
        return backlog if backlog.value else Number.known(0.0, reason="nothing waits")
    if backlog.value is None:
        return backlog if isinstance(backlog, Stuck) else observed
    return observed if observed.value >= backlog.value else backlog


def _ratio(subject: Subject, part: float, whole: float) -> Number:
    value = part / whole
    if not 0.0 <= value <= 1.0:
        return Number.unknown(
            f"counters contradict each other ({part:.0f} of {whole:.0f})", n=whole
        )
    return Number.known(value, n=whole, reason=_since(subject))


def _from_gauge(subject: Subject, *slots: str) -> Number:
    """Acceptance of an engine that exports only a gauge of its length (SGLang).

    `slots`: the counters that it would be made of.
    """
    rate = "draft_tokens" in slots
    lengths = [g["acceptance_length"] for g in subject.gauges if "acceptance_length" in g]
    if not lengths:
        return Number.unknown(_absent(subject, *slots))
    if len(lengths) > 1:
        return Number.unknown(
            "gauges of several engines cannot be pooled: their weights are unknown"
        )
    if lengths[0] < 1:
        return Number.unknown("the engine reports no verify step in its interval")
    if not rate:
        return Number.known(lengths[0], reason="the engine's own gauge, over its log interval")
    drafted = next((g.get("verified_tokens_per_step", 0) - 1 for g in subject.gauges), 0)
    value = (lengths[0] - 1) / drafted if drafted > 0 else -1.0
    if not 0 <= value <= 1:
        return Number.unknown("the engine exports no draft length to relate its gauge to")
    return Number.known(value, reason="from the engine's own gauge, over its log interval")


def _no_drafts(subject: Subject) -> Number:
    """No drafts counted: none were made, or what was counted cannot be believed."""
    reason = _TORN if subject.pool.torn else "no drafts in the window"
    return Number.unknown(reason, n=None if subject.pool.torn else 0)


def _count(subject: Subject, slot: str) -> Number:
    sums = subject.pool.sums(slot)
    if sums is None:
        return Number.unknown(_absent(subject, slot))
    if subject.pool.torn:
        return Number.unknown(_TORN)
    return Number.known(sums[0], reason=_since(subject))


def _rate(subject: Subject, *slots: str) -> Number:
    if subject.pool.sums(*slots) is None:
        return Number.unknown(_absent(subject, *slots))
    if subject.pool.torn and slots[0] in _SPECULATION:
        return Number.unknown(_TORN)
    rate = subject.pool.rate(*slots)
    if rate is None:
        return Number.unknown("a rate needs two scrapes")
    return Number.known(rate, reason=_since(subject))


def _gauge(subject: Subject, name: str, pooled: object) -> Number:
    values = [gauges[name] for gauges in subject.gauges if name in gauges]
    if not values:
        return Number.unknown(_absent(subject, name))
    return Number.known(max(values) if pooled is max else sum(values))


def _cost(pricing: Pricing, engines: int, rate: Number) -> Number:
    if pricing.gpu_hour_usd is not None and rate.value is None:
        return Number.unknown(rate.reason or "token rate unknown")
    return pricing.per_million(engines, rate.value)


def _absent(subject: Subject, *slots: str) -> str:
    """Why there is no sum of them all: the first that no engine has, as a rule."""
    if not subject.pool.members:
        return "no data in the window"
    lacking = [slot for slot in slots if subject.pool.sums(slot) is None]
    field = (lacking or slots)[0].partition(".")[0]
    if field in subject.pool.absent:
        return subject.pool.absent[field]
    if field in {"drafts", "draft_tokens", "accepted_tokens"} and not subject.speculating:
        return "no speculation metrics: speculation is off"
    why = adapter_named(subject.kind).why_absent(field)
    if not lacking and len(slots) > 1:
        return f"no engine has all of {', '.join(slots)}"
    return f"{why}, or could not be read" if subject.partial else why


def _since(subject: Subject) -> str | None:
    return "since the process started: one scrape only" if subject.pool.since_start else None
