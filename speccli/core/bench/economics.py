"""What a million tokens costs at each load that was measured, beside what hosted APIs charge.

The rate is one server's at full load; a pool that is busy half of the time pays twice as much. The
price of a GPU hour is given, list prices come dated from a package, and nothing else enters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from speccli.core.bench.compare import load_order
from speccli.core.bench.pairing import Load
from speccli.core.bench.results import Arm, Result, Row, Statistic
from speccli.core.bench.spread import mean
from speccli.core.cost import Pricing
from speccli.core.prices import HostedPrice, PriceBook, PriceDate
from speccli.core.values import Number
from speccli.core.worth import Comparison, PoolCost, compare

UTILISATIONS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Shares of full load at which the cost is told."""
NO_PRICE = "no GPU price given (--gpu-hour-usd)"


@dataclass(frozen=True, slots=True)
class Level:
    """One arm at one load, over all datasets."""

    arm: str
    load: Load
    tokens_per_s: Statistic
    """Output tokens per second of one server, mean over rows; its interval is of rows."""
    input_per_output: Number
    pool: PoolCost
    """One server at this rate, all of the time."""

    @property
    def usd_per_1m_output(self) -> Number:
        """At full load."""
        return self.pool.cost_per_1m_output_usd

    def usd_at(self, utilisation: float) -> Number:
        """USD per 1M output tokens where the server is busy this share of the time."""
        full = self.usd_per_1m_output
        if full.value is None:
            return full
        return Number.known(full.value / utilisation)


@dataclass(frozen=True, slots=True)
class Economics:
    """All levels, and the market beside the cheapest of each arm."""

    levels: tuple[Level, ...]
    hosted: dict[str, tuple[Comparison, ...]]
    """By arm: each hosted model beside the arm's cheapest level."""
    priced: PriceDate
    gpu_hour_usd: float | None
    why_none: str | None
    """Why there is no cost; None where there is."""

    def cheapest(self, arm: str) -> Level | None:
        """The level with the highest rate for the money; None where no cost is known."""
        own = [e for e in self.levels if e.arm == arm and e.usd_per_1m_output.value is not None]
        return min(own, key=lambda each: each.usd_per_1m_output.value or 0.0, default=None)

    @property
    def arms(self) -> list[str]:
        """In order."""
        return list(dict.fromkeys(level.arm for level in self.levels))


def economics(
    result: Result,
    book: PriceBook,
    *,
    gpu_hour_usd: float | None = None,
    models: Sequence[HostedPrice] = (),
) -> Economics:
    """What each arm costs; `gpu_hour_usd` is laid over what the file says.

    Args:
        result: The bench.
        book: Prices of hosted models.
        gpu_hour_usd: Price of one GPU for an hour.
        models: Hosted models to compare with; none: the newest of Anthropic and OpenAI.
    """
    rows: dict[tuple[str, Load], list[Row]] = defaultdict(list)
    for row in result.rows:
        if row.usable and row.output_tokens_per_s.value and row.batch is not None:
            rows[row.arm, (row.batch, row.rate)].append(row)
    order = {arm.name: i for i, arm in enumerate(result.arms)}
    keys = sorted(rows, key=lambda key: (order[key[0]], load_order(key[1])))
    levels = tuple(
        _level(result.arm(arm), load, rows[arm, load], gpu_hour_usd) for arm, load in keys
    )
    names = {arm.model for arm in result.arms if arm.model}
    prices = list(models) or book.usual(names.pop() if len(names) == 1 else None)
    known = any(level.usd_per_1m_output.value is not None for level in levels)
    made = Economics(
        levels,
        {},
        book.date,
        next((level.pool.pricing.gpu_hour_usd for level in levels), None),
        None if known else NO_PRICE if levels else _why_none(result),
    )
    hosted = {
        arm: tuple(compare(level.pool, price) for price in prices)
        for arm in made.arms
        if (level := made.cheapest(arm)) is not None
    }
    return replace(made, hosted=hosted)


def _why_none(result: Result) -> str:
    if result.load.kind == "open":
        return "in an open loop the arrivals fix the rate: what a server can do was not measured"
    return "no row has a rate"


def _level(arm: Arm, load: Load, rows: Sequence[Row], gpu_hour_usd: float | None) -> Level:
    rates = [row.output_tokens_per_s.value or 0.0 for row in rows]
    pricing = Pricing(
        gpu_hour_usd=arm.price if gpu_hour_usd is None else gpu_hour_usd,
        gpus_per_engine=arm.gpu_count,
    )
    rate = fmean(rates)
    mix = _mix(rows)
    input_rate = Number.unknown(mix.reason or "") if mix.value is None else _times(mix, rate)
    requests = _requests(rows, rate)
    total = None if input_rate.value is None else rate + input_rate.value
    pool = PoolCost(
        engines=1,
        pricing=pricing,
        output_tokens_per_s=Number.known(rate),
        input_tokens_per_s=input_rate,
        requests_per_s=requests,
        cost_per_1m_output_usd=pricing.per_million(1, rate),
        cost_per_1m_total_usd=pricing.per_million(1, total),
        model=arm.model,
        capacity_tokens_per_s=rate,
    )
    return Level(arm.name, load, mean(rates), mix, pool)


def _mix(rows: Sequence[Row]) -> Number:
    told = [(r.input_tokens, r.output_tokens) for r in rows if r.input_tokens and r.output_tokens]
    into, out = (sum(each[i] or 0 for each in told) for i in (0, 1))
    return Number.known(into / out, n=out) if out else Number.unknown("input tokens are not known")


def _requests(rows: Sequence[Row], rate: float) -> Number:
    """Requests per second at this rate, by the length of an answer."""
    tokens = sum(row.output_tokens or 0 for row in rows)
    requests = sum(row.requests for row in rows)
    return Number.known(rate * requests / tokens) if tokens else Number.unknown("no tokens")


def _times(number: Number, factor: float) -> Number:
    return Number.known((number.value or 0.0) * factor, n=number.n)
