"""What hosted APIs charge: prices that the package genai-prices bundles, found by name, offline.

The package's types end here: what leaves are floats, USD per 1M tokens. It dates neither its
snapshot nor most of its prices, so what is said is its version, the date on which a price was
looked up, and the dates that it does give.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from speccli.core.errors import UsageError

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider, TieredPrices

PACKAGE = "genai-prices"
_PER_PROVIDER = 3
"""Models of one provider in the default set."""
_NAMED = 4
"""Hosts or models named in a hint before it says that there are more."""
_CHAT = {
    "anthropic": re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d+)(?:-(?P<minor>\d+))?"),
    "openai": re.compile(r"gpt-(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:-(?P<family>[a-z]+))?"),
}
"""How the makers of the default set name the models they sell for chat; no other forms count."""


@dataclass(frozen=True, slots=True)
class PriceTier:
    """The price of every token of a request whose prompt is longer than a limit."""

    above_input_tokens: int
    """Prompt tokens beyond which the tier holds; 0 for the first."""
    input_usd: float
    """USD per 1M input tokens."""
    output_usd: float
    """USD per 1M output tokens."""


@dataclass(frozen=True, slots=True)
class HostedPrice:
    """What one provider charges for one model."""

    asked: str
    """The name it was asked for by; the model's own where nobody asked."""
    provider: str
    model: str
    tiers: tuple[PriceTier, ...]
    """Ascending by prompt length; one where the price does not depend on it."""
    since: date | None = None
    """Since when this price holds; None where the package does not say."""
    changes: date | None = None
    """When the package knows the next price to begin; None: it knows of none."""
    same_model: bool = False
    """Whether this is the pool's own model, hosted."""
    notes: tuple[str, ...] = ()
    """What else the price depends on."""

    @property
    def name(self) -> str:
        """`provider:model`, which `--model` takes."""
        return f"{self.provider}:{self.model}"

    def at_prompt(self, tokens: float | None) -> PriceTier:
        """The tier of a request with a prompt of this length; the first where it is unknown."""
        if tokens is None:
            return self.tiers[0]
        return [
            t for t in self.tiers if t.above_input_tokens == 0 or tokens > t.above_input_tokens
        ][-1]


@dataclass(frozen=True, slots=True)
class PriceDate:
    """How old the prices are, as far as the package tells."""

    version: str
    """The package's version."""
    looked_up: datetime
    """The moment whose prices were taken."""
    newest_change: date | None
    """The newest dated price change at or before that moment, over all of its models."""
    package: str = PACKAGE


class PriceBook:
    """The prices of one moment."""

    def __init__(self, snapshot: DataSnapshot, version: str, now: datetime) -> None:
        """`now`: the moment whose prices count."""
        self._snapshot = snapshot
        self._providers = snapshot.providers
        self._now = now.astimezone(UTC)
        self.date = PriceDate(version, self._now, self._newest_change())

    @classmethod
    def bundled(cls, now: datetime | None = None) -> PriceBook:
        """The snapshot that came with the package; nothing is fetched.

        Raises:
            UsageError: the package is not installed.
        """
        try:
            import genai_prices
            from genai_prices.data_snapshot import get_snapshot
        except ImportError as error:
            raise UsageError(
                f"the price list cannot be loaded: {error}", hint=f"pip install {PACKAGE}"
            ) from error
        return cls(get_snapshot(), genai_prices.__version__, now or datetime.now(UTC))

    def find(self, name: str) -> HostedPrice:
        """The price of `claude-sonnet-5`, `openai/gpt-5` or `openrouter:meta-llama/llama-3.3-70b`.

        Raises:
            UsageError: no such model, several that it may mean, or one not sold by the token.
        """
        found = self._lookup(name.strip())
        if not found:
            near = self._nearest(name)
            hint = f"did you mean {_or(near)}?" if near else "write --model PROVIDER:MODEL"
            raise UsageError(f"no price for a model {name!r} in {PACKAGE}", hint=hint)
        priced = [price for provider, model in found if (price := self._price(provider, model))]
        if not priced:
            raise UsageError(f"{name!r} is not sold by the token", hint="name a text model")
        if len(priced) > 1:
            raise UsageError(
                f"{name!r} is sold by {len(priced)} providers",
                hint=f"say which: --model {_or([price.name for price in priced])}",
            )
        return replace(priced[0], asked=name)

    def defaults(self) -> list[HostedPrice]:
        """The three cheapest of each maker's newest generation, newest of each family."""
        chosen: list[HostedPrice] = []
        for provider_id, form in _CHAT.items():
            provider = next((p for p in self._providers if p.id == provider_id), None)
            if provider is not None:
                priced = [self._price(provider, model) for model in _newest(provider, form)]
                known = [price for price in priced if price is not None and _costs(price)]
                chosen += sorted(known, key=lambda p: p.tiers[0].output_usd)[:_PER_PROVIDER]
        return chosen

    def usual(self, own_model: str | None) -> list[HostedPrice]:
        """What to compare with where nobody says: the pool's own model hosted, then the makers'."""
        own = self.same_model(own_model)
        return [*([own] if own else []), *self.defaults()]

    def same_model(self, name: str | None) -> HostedPrice | None:
        """Who hosts the pool's own model at the lowest price; None where nobody is known to."""
        if not name:
            return None
        priced = [
            price
            for provider in self._providers
            for model in provider.models
            if model.id.lower() == name.lower() and not model.deprecated
            if (price := self._price(provider, model)) and _costs(price)
        ]
        if not priced:
            return None
        cheapest = min(priced, key=lambda p: (p.tiers[0].output_usd + p.tiers[0].input_usd, p.name))
        return replace(cheapest, same_model=True)

    def _lookup(self, name: str) -> list[tuple[Provider, ModelInfo]]:
        from genai_prices.data_snapshot import find_provider_by_id

        for separator in (":", "/"):
            head, found, rest = name.partition(separator)
            if found and rest and re.fullmatch(r"[\w.-]+", head):
                provider = find_provider_by_id(self._providers, head)
                model = (
                    provider.find_model(rest, all_providers=self._providers) if provider else None
                )
                if provider and model:
                    return [(provider, model)]
        try:
            return [self._snapshot.find_provider_model(name, None, None, None)]
        except LookupError:
            pass
        return [
            (provider, model)
            for provider in self._providers
            for model in provider.models
            if model.id.lower() == name.lower()
        ]

    def _nearest(self, name: str) -> list[str]:
        """Names that would be understood, nearest first."""
        names: dict[str, str] = {}
        sold = [(provider, model.id) for provider in self._providers for model in provider.models]
        if ":" in name:
            names = {f"{p.id}:{model}".lower(): f"{p.id}:{model}" for p, model in sold}
        else:  # a model's maker before those who sell it on
            for p, model in sold:
                if p.model_match is not None and p.model_match.is_match(model):
                    names.setdefault(model.lower(), model)
            for p, model in sold:
                names.setdefault(model.lower(), f"{p.id}:{model}")
        wanted = name.lower()
        near = difflib.get_close_matches(wanted, names, n=6, cutoff=0.6)
        return list(dict.fromkeys(names[each] for each in near))[:3]

    def _price(self, provider: Provider, model: ModelInfo) -> HostedPrice | None:
        """None where tokens in and out have no price of their own."""
        prices = model.get_prices(self._now)
        if prices.input_mtok is None or prices.output_mtok is None:
            return None
        since, changes = self._dates(model)
        return HostedPrice(
            asked=model.id,
            provider=provider.id,
            model=model.id,
            tiers=_tiers(prices.input_mtok, prices.output_mtok),
            since=since,
            changes=changes,
            notes=tuple(_notes(model, prices.requests_kcount)),
        )

    def _dates(self, model: ModelInfo) -> tuple[date | None, date | None]:
        """Since when the price in force holds, and when the next one begins."""
        starts = sorted(_starts([model]))
        today = self._now.date()
        return (
            max((start for start in starts if start <= today), default=None),
            min((start for start in starts if start > today), default=None),
        )

    def _newest_change(self) -> date | None:
        models = (model for provider in self._providers for model in provider.models)
        return max((d for d in _starts(models) if d <= self._now.date()), default=None)


def _starts(models: Iterable[ModelInfo]) -> Iterable[date]:
    for model in models:
        if isinstance(model.prices, list):
            for conditional in model.prices:
                start = getattr(conditional.constraint, "start_date", None)
                if start is not None:
                    yield start


def _notes(model: ModelInfo, per_requests: object) -> Iterable[str]:
    if model.deprecated:
        yield "deprecated by its provider"
    if isinstance(model.prices, list) and any(
        hasattr(conditional.constraint, "start_time") for conditional in model.prices
    ):
        yield "priced by the time of day: this is the price now"
    if isinstance(per_requests, Decimal) and per_requests > 0:
        yield f"plus ${float(per_requests):g} per 1,000 requests, not counted here"


def _tiers(input_: Decimal | TieredPrices, output: Decimal | TieredPrices) -> tuple[PriceTier, ...]:
    """Input and output prices on the limits of either."""
    limits = {0, *_steps(input_), *_steps(output)}
    return tuple(PriceTier(at, _at(input_, at), _at(output, at)) for at in sorted(limits))


def _steps(price: Decimal | TieredPrices) -> list[int]:
    return [] if isinstance(price, Decimal) else [tier.start for tier in price.tiers]


def _at(price: Decimal | TieredPrices, limit: int) -> float:
    if isinstance(price, Decimal):
        return float(price)
    reached = [tier.price for tier in price.tiers if 0 < tier.start <= limit]
    return float(reached[-1] if reached else price.base)


def _newest(provider: Provider, form: re.Pattern[str]) -> list[ModelInfo]:
    """The newest of each family in the newest generation; without a window it is a special one."""
    newest: dict[str, tuple[tuple[int, int], ModelInfo]] = {}
    for model in provider.models:
        match = form.fullmatch(model.id)
        if match is None or model.deprecated or not model.context_window:
            continue
        version = (int(match["major"]), int(match["minor"] or 0))
        family = match["family"] or ""
        if family not in newest or newest[family][0] < version:
            newest[family] = (version, model)
    generation = max((version[0] for version, _ in newest.values()), default=0)
    return [model for version, model in newest.values() if version[0] == generation]


def _costs(price: HostedPrice) -> bool:
    return price.tiers[0].output_usd > 0


def _or(names: list[str]) -> str:
    shown, more = names[:_NAMED], len(names) - _NAMED
    if more > 0:
        return f"{', '.join(shown)} or {more} more"
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
