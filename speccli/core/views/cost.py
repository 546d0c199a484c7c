"""What a pool costs beside hosted APIs, as the `specctl.cost/v1` object and as lines of words."""

from __future__ import annotations

from datetime import date
from typing import Any

from speccli.core.findings._text import plural
from speccli.core.prices import HostedPrice
from speccli.core.values import Number
from speccli.core.views import format as fmt
from speccli.core.views.status import number, rfc3339
from speccli.core.views.text import clean
from speccli.core.worth import Comparison, PoolCost, Worth

SCHEMA = "specctl.cost/v1"


def cost(worth: Worth) -> dict[str, Any]:
    """The whole object."""
    snapshot = worth.snapshot
    return {
        "schema": SCHEMA,
        "at": rfc3339(snapshot.at),
        "window_s": round(snapshot.covered_s, 3),
        "simulated": snapshot.simulated,
        "pool": _pool(worth.pool),
        "prices": {
            "source": worth.priced.package,
            "version": worth.priced.version,
            "priced_at": rfc3339(worth.priced.looked_up.timestamp()),
            "newest_dated_change": _day(worth.priced.newest_change),
        },
        "hosted": [_hosted(each) for each in worth.hosted],
    }


def _pool(pool: PoolCost) -> dict[str, Any]:
    return {
        "model": pool.model,
        "engines": pool.engines,
        "gpus": pool.gpus,
        "gpu_hour_usd": pool.pricing.gpu_hour_usd,
        "usd_per_hour": number(pool.usd_per_hour),
        "output_tokens_per_s": number(pool.output_tokens_per_s),
        "input_tokens_per_s": number(pool.input_tokens_per_s),
        "input_per_output": number(pool.input_per_output),
        "prompt_tokens": number(pool.prompt_tokens),
        "cost_per_1m_output_usd": number(pool.cost_per_1m_output_usd),
        "cost_per_1m_total_usd": number(pool.cost_per_1m_total_usd),
        "without_speculation_per_1m_output_usd": pool.pricing.without_speculation_usd,
        "saving": number(pool.saving),
        "capacity_output_tokens_per_s": pool.capacity_tokens_per_s,
        "utilisation": number(pool.utilisation),
    }


def _hosted(each: Comparison) -> dict[str, Any]:
    price = each.price
    return {
        "asked": price.asked,
        "provider": price.provider,
        "model": price.model,
        "same_model": price.same_model,
        "input_per_1m_usd": each.tier.input_usd,
        "output_per_1m_usd": each.tier.output_usd,
        "tiers": [
            {
                "above_input_tokens": tier.above_input_tokens,
                "input_per_1m_usd": tier.input_usd,
                "output_per_1m_usd": tier.output_usd,
            }
            for tier in price.tiers
        ],
        "since": _day(price.since),
        "changes": _day(price.changes),
        "notes": list(price.notes),
        "cost_per_1m_total_usd": number(each.usd_per_1m_total),
        "cost_per_1m_output_usd": number(each.usd_per_1m_output),
        "ratio": number(each.ratio),
        "break_even_output_tokens_per_s": number(each.break_even_output_tokens_per_s),
        "break_even_utilisation": number(each.break_even_utilisation),
        "break_even_gpu_hour_usd": number(each.break_even_gpu_hour_usd),
    }


def _day(value: date | None) -> str | None:
    return None if value is None else value.isoformat()


def hardware_words(pool: PoolCost) -> str:
    """`2 engines × 4 GPUs × 2.50 USD/h = 20.00 USD/h`."""
    per_engine = pool.pricing.gpus_per_engine
    words = f"{plural(pool.engines, 'engine')} × {plural(per_engine, 'GPU')}"
    hourly = pool.usd_per_hour
    if hourly.value is None or pool.pricing.gpu_hour_usd is None:
        return words
    return f"{words} × {fmt.usd(pool.pricing.gpu_hour_usd)} USD/h = {fmt.usd(hourly.value)} USD/h"


def traffic_words(pool: PoolCost) -> str:
    """`1,204 tok/s out, 3,612 tok/s in (3.0 in for each one out)`."""
    out, in_, mix = pool.output_tokens_per_s, pool.input_tokens_per_s, pool.input_per_output
    parts = [
        f"{fmt.count(rate.value)} tok/s {way}" if rate.value is not None else f"— tok/s {way}"
        for rate, way in ((out, "out"), (in_, "in"))
    ]
    words = ", ".join(parts)
    if mix.value is not None:
        words += f" ({fmt.hundredths(mix.value)} in for each one out)"
    if pool.utilisation.value is not None:
        words += f", {fmt.percent(pool.utilisation.value)} of full load"
    return words


def speculation_words(pool: PoolCost) -> str | None:
    """What speculation saves; None where its absence was never measured."""
    without = pool.pricing.without_speculation_usd
    if without is None:
        return None
    words = f"{fmt.usd(without)} USD per 1M output without speculation"
    if pool.saving.value is None:
        return words
    share = abs(pool.saving.value)
    what = "saves" if pool.saving.value >= 0 else "adds"
    return f"{words}: speculation {what} {fmt.percent(share)}"


def ratio_words(ratio: Number) -> str:
    """`0.41 cheaper`; a word, so that it does not take colour to see which."""
    if ratio.value is None:
        return "—"
    word = (
        "the same" if abs(ratio.value - 1) < 0.005 else "cheaper" if ratio.value < 1 else "dearer"
    )
    digits = f"{ratio.value:.2f}" if ratio.value < 9.995 else f"{ratio.value:,.0f}"
    return f"{digits} {word}"


def price_notes(worth: Worth) -> list[str]:
    """What the reader should know of the prices, one line each."""
    priced = worth.priced
    newest = f"the newest change it dates is of {priced.newest_change}"
    lines = [
        f"prices: {priced.package} {priced.version}, as of {priced.looked_up:%Y-%m-%d} UTC"
        + (f"; {newest}" if priced.newest_change else ""),
    ]
    for each in worth.hosted:
        lines += [clean(f"{each.price.model}: {note}") for note in _notes(each)]
    lines.append(
        "list prices per token: no batch or cached-input discount, no free quota; "
        "ours counts GPUs alone"
    )
    return lines


def _notes(each: Comparison) -> list[str]:
    price = each.price
    notes = list(price.notes)
    if price.asked not in {price.model, price.name}:
        notes.insert(0, f"is what {price.asked!r} was taken for")
    for tier in price.tiers:
        if tier == each.tier:
            continue
        side = "over" if tier.above_input_tokens > each.tier.above_input_tokens else "under"
        limit = max(tier.above_input_tokens, each.tier.above_input_tokens)
        notes.append(
            f"{fmt.usd(tier.input_usd)} in / {fmt.usd(tier.output_usd)} out "
            f"for prompts {side} {limit:,} tokens"
        )
    if price.since:
        notes.append(f"this price since {price.since}")
    if price.changes:
        notes.append(f"another price from {price.changes} on")
    return notes


def missing_words(worth: Worth) -> list[str]:
    """Why a number is a dash, one line a reason."""
    pool = worth.pool
    reasons: dict[str, list[str]] = {}
    told = [("cost", pool.cost_per_1m_output_usd), ("our mix", pool.input_per_output)]
    told += [("ratio", each.ratio) for each in worth.hosted]
    for name, value in told:
        names = reasons.setdefault(value.reason or "unknown", []) if value.value is None else [name]
        if name not in names:
            names.append(name)
    return [f"— {', '.join(names)}: {clean(reason)}" for reason, names in reasons.items()]


def unread_words(worth: Worth) -> str | None:
    """Engines that are not in the numbers though they may well be paid for."""
    engines = worth.snapshot.engines
    if worth.snapshot.pooled is not None or not worth.pool.engines:
        return None
    left = len(engines) - worth.pool.engines
    return f"{plural(left, 'engine')} not read: not in these numbers" if left > 0 else None


def provider_model(price: HostedPrice) -> str:
    """The model's name for a table; the provider's before it where the name does not tell."""
    return clean(price.model if price.provider in {"anthropic", "openai"} else price.name)
