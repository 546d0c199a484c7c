"""Is the pool worth its price: what its tokens cost, beside what others charge for the same. Pure.

The pool is paid by the hour and takes in and puts out tokens in some mix. A hosted API would bill
those same tokens at two prices; ours divided by that bill is the ratio, whether both are told per
1M output tokens or per 1M tokens of either kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speccli.core.cost import Pricing
from speccli.core.prices import HostedPrice, PriceDate, PriceTier
from speccli.core.stats.snapshot import Snapshot
from speccli.core.values import Number

_HOUR_S = 3600.0
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class PoolCost:
    """What the pool does and costs."""

    engines: int
    pricing: Pricing
    output_tokens_per_s: Number
    input_tokens_per_s: Number
    requests_per_s: Number
    cost_per_1m_output_usd: Number
    """All of the cost on output tokens."""
    cost_per_1m_total_usd: Number
    """The cost spread over input and output tokens alike."""
    model: str | None = None
    capacity_tokens_per_s: float | None = None
    """Output tokens/s that the pool yields at full load; None: not given."""

    @property
    def gpus(self) -> int:
        """GPUs that are paid for."""
        return self.engines * self.pricing.gpus_per_engine

    @property
    def usd_per_hour(self) -> Number:
        """What the pool costs, busy or idle."""
        if self.pricing.gpu_hour_usd is None:
            return Number.unknown("no GPU price given (--gpu-hour-usd)")
        if not self.engines:
            return Number.unknown("no engine could be read")
        return Number.known(self.gpus * self.pricing.gpu_hour_usd)

    @property
    def input_per_output(self) -> Number:
        """Input tokens for each output token."""
        return _quotient(self.input_tokens_per_s, self.output_tokens_per_s, "no output tokens")

    @property
    def prompt_tokens(self) -> Number:
        """Mean length of a prompt, tokens, where requests finished."""
        return _quotient(self.input_tokens_per_s, self.requests_per_s, "no request finished")

    @property
    def utilisation(self) -> Number:
        """Output tokens/s over the capacity."""
        if self.capacity_tokens_per_s is None:
            return Number.unknown("full-load rate not given (--capacity)")
        return _scaled(self.output_tokens_per_s, 1 / self.capacity_tokens_per_s)

    @property
    def saving(self) -> Number:
        """Share of the cost per output token that speculation saves; negative where it adds."""
        without = self.pricing.without_speculation_usd
        if without is None:
            return Number.unknown("cost without speculation not given (--baseline-cost)")
        if without <= 0:
            return Number.unknown("--baseline-cost is 0")
        ours = self.cost_per_1m_output_usd
        if ours.value is None:
            return ours
        return Number(1 - ours.value / without, ours.state, ours.reason, ours.n)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One hosted model beside the pool."""

    price: HostedPrice
    tier: PriceTier
    """The tier that the pool's mean prompt falls in."""
    usd_per_1m_total: Number
    """The hosted price of 1M tokens in the pool's own mix of input and output."""
    usd_per_1m_output: Number
    """The hosted price of 1M output tokens with the input that goes with them in the pool's mix."""
    ratio: Number
    """Ours divided by theirs for the same tokens; under 1 the pool is cheaper."""
    break_even_output_tokens_per_s: Number
    """Output tokens/s, in the same mix, at which both cost the same."""
    break_even_utilisation: Number
    """The same as a share of the capacity; over 1 the pool cannot get there."""
    break_even_gpu_hour_usd: Number
    """Price of a GPU hour at which the pool, as busy as it is now, would cost the same."""


@dataclass(frozen=True, slots=True)
class Worth:
    """The pool beside the market."""

    snapshot: Snapshot
    pool: PoolCost
    hosted: tuple[Comparison, ...]
    priced: PriceDate

    @property
    def why_none(self) -> str:
        """Why there is no cost; the first thing to put right."""
        if not self.pool.engines:
            down = [f"{e.target}: {e.reason}" for e in self.snapshot.engines[:3]]
            return f"no engine could be read ({'; '.join(down) or 'no targets'})"
        return self.pool.cost_per_1m_output_usd.reason or "unknown"

    @property
    def what_to_do(self) -> str:
        """What would bring a cost."""
        if not self.pool.engines:
            return "`specctl doctor` looks closer"
        if self.pool.pricing.gpu_hour_usd is None:
            return "give --gpu-hour-usd, what one GPU costs for an hour"
        return "watch for longer (--window 1m), while there is traffic"


def pool_cost(snapshot: Snapshot, capacity_tokens_per_s: float | None = None) -> PoolCost:
    """What a snapshot says of the pool."""
    fleet = snapshot.fleet
    engines = snapshot.pooled_engines
    models = {engine.model for engine in snapshot.engines if engine.model}
    return PoolCost(
        engines=len(snapshot.subject.gauges) if engines is None else engines,
        pricing=snapshot.pricing,
        output_tokens_per_s=fleet.output_tokens_per_s,
        input_tokens_per_s=fleet.input_tokens_per_s,
        requests_per_s=fleet.requests_per_s,
        cost_per_1m_output_usd=fleet.cost_per_1m_output_usd,
        cost_per_1m_total_usd=fleet.cost_per_1m_total_usd,
        model=models.pop() if len(models) == 1 else None,
        capacity_tokens_per_s=capacity_tokens_per_s,
    )


def compare(pool: PoolCost, price: HostedPrice) -> Comparison:
    """The pool beside one hosted model."""
    tier = price.at_prompt(pool.prompt_tokens.value)
    mix = pool.input_per_output
    per_output = _map(mix, lambda r: tier.output_usd + tier.input_usd * r)
    break_even = _break_even(pool.usd_per_hour, per_output)
    ratio = _quotient(break_even, pool.output_tokens_per_s, "no output tokens")
    return Comparison(
        price=price,
        tier=tier,
        usd_per_1m_total=_map(mix, lambda r: (tier.output_usd + tier.input_usd * r) / (1 + r)),
        usd_per_1m_output=per_output,
        ratio=ratio,
        break_even_output_tokens_per_s=break_even,
        break_even_utilisation=_break_even_utilisation(pool, break_even),
        break_even_gpu_hour_usd=_break_even_gpu_hour(pool, per_output),
    )


def worth(
    snapshot: Snapshot,
    prices: Sequence[HostedPrice],
    priced: PriceDate,
    capacity_tokens_per_s: float | None = None,
) -> Worth:
    """The pool beside every hosted model asked for."""
    pool = pool_cost(snapshot, capacity_tokens_per_s)
    return Worth(snapshot, pool, tuple(compare(pool, price) for price in prices), priced)


def _break_even(usd_per_hour: Number, usd_per_1m_output: Number) -> Number:
    """Output tokens/s at which an hourly price equals a price per token."""
    if usd_per_hour.value is None:
        return usd_per_hour
    if usd_per_1m_output.value is None:
        return usd_per_1m_output
    if usd_per_1m_output.value <= 0:
        return Number.unknown("the hosted model costs nothing")
    return Number.known(usd_per_hour.value / _HOUR_S / usd_per_1m_output.value * _MILLION)


def _break_even_utilisation(pool: PoolCost, break_even: Number) -> Number:
    if pool.capacity_tokens_per_s is None:
        return Number.unknown("full-load rate not given (--capacity)")
    return _scaled(break_even, 1 / pool.capacity_tokens_per_s)


def _break_even_gpu_hour(pool: PoolCost, usd_per_1m_output: Number) -> Number:
    rate = pool.output_tokens_per_s
    if rate.value is None:
        return rate
    if usd_per_1m_output.value is None or not pool.gpus:
        return Number.unknown(usd_per_1m_output.reason or "no engine could be read")
    return Number.known(usd_per_1m_output.value * rate.value * _HOUR_S / _MILLION / pool.gpus)


def _quotient(above: Number, below: Number, why_none: str) -> Number:
    if above.value is None:
        return above
    if below.value is None:
        return Number.unknown(below.reason or "unknown")
    if below.value <= 0:
        return Number.unknown(f"{why_none} in the window")
    return Number.known(above.value / below.value)


def _scaled(number: Number, factor: float) -> Number:
    return _map(number, lambda value: value * factor)


def _map(number: Number, change: Callable[[float], float]) -> Number:
    if number.value is None:
        return Number.unknown(number.reason or "unknown")
    return Number(change(number.value), number.state, number.reason)
