"""Alerts of which somebody has to say the limit."""

from __future__ import annotations

from speccli.core.alert.rules import expressions as ex
from speccli.core.alert.rules.model import COST, MODEL, OF_MODEL, Alert, Stream, Terms
from speccli.core.sources import derived


def target_alerts(terms: Terms) -> list[Alert]:
    """Those whose limit these terms say."""
    t = terms.thresholds
    found: list[Alert] = []
    if t.queue_wait_ms is not None:
        over, under = 10 * 1.5 * t.queue_wait_ms / 1000, 10 * 0.8 * t.queue_wait_ms / 1000
        found.append(
            Alert(
                "QUEUE_WAIT",
                f"{derived.QUEUE_WAIT} > {t.queue_wait_ms:g}",
                "5m",
                "warning",
                f'{MODEL}: requests wait {{{{ $value | printf "%.0f" }}}} ms '
                f"(target {t.queue_wait_ms:g} ms)",
                "add replicas; a KV cache near 1.0 wants a lower --max-model-len or more memory",
                Stream({"queue_sum": f"0+{over:g}x240"}),
                f"{1.5 * t.queue_wait_ms:.0f}",
                Stream({"queue_sum": f"0+{under:g}x240"}),
                OF_MODEL,
            )
        )
    for field_, limit in (("ttft", t.ttft_p99_ms), ("tpot", t.tpot_p99_ms)):
        if limit is not None:
            found.append(_percentile(field_, limit))
    if t.cost_per_1m_usd is not None and terms.pricing.gpu_hour_usd is not None:
        found.append(_cost(terms, t.cost_per_1m_usd))
    if terms.require_traffic:
        found.append(_traffic())
    return found


def _percentile(name: str, limit_ms: float) -> Alert:
    count = derived.bare(f"specctl:{name}_count:rate2m")
    return Alert(
        "P99_REGRESSION",
        f"{derived.p99(name)} > {limit_ms / 1000:g} and {count} * 120 >= 100",
        "5m",
        "warning",
        f"{MODEL}: the 99th percentile of {name} is over {limit_ms:g} ms (interpolated: "
        "specctl status has the interval)",
        "look at p99 by batch size in specctl top; cap --max-num-seqs or lower K",
        Stream({f"{name}_slow": "0+100x240", f"{name}_all": "0+100x240"}),
        None,
        Stream({f"{name}_slow": "0+10x240", f"{name}_all": "0+10x240"}),
        OF_MODEL,
        name=f"Specctl{name.capitalize()}P99",
    )


def _cost(terms: Terms, limit: float) -> Alert:
    hourly = (terms.pricing.gpu_hour_usd or 0.0) * terms.pricing.gpus_per_engine
    at_limit = hourly / 3600 / limit * 1e6 * 30  # tokens in 30 s that cost just so much
    return Alert(
        "COST_OVER",
        f"{COST} > {limit:g}",
        "15m",
        "warning",
        f"{MODEL}: a million output tokens cost more than {limit:g} USD",
        "scale in where the batch size is small; compare with speculation off at this load",
        Stream({"gen": f"0+{at_limit / 2:.6f}x240"}, at="40m"),
        None,
        Stream({"gen": f"0+{at_limit * 1.2:.6f}x240"}, at="40m"),
        OF_MODEL,
    )


def _traffic() -> Alert:
    return Alert(
        "NO_TRAFFIC",
        ex.idle(),
        "30m",
        "warning",
        f"{MODEL}: no requests arrive",
        "look at the router before it",
        Stream({"gen": "5000x480", "running": "0x480", "waiting": "0x480"}, at="1h"),
        None,
        Stream({"gen": "5000x480", "running": "1x480", "waiting": "0x480"}, at="1h"),
        OF_MODEL,
    )
