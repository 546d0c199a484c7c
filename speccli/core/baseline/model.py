"""What a baseline is, and its form on disk (`specctl.baseline/v1`)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from speccli.core.errors import UsageError
from speccli.core.stats.drift import Dispersion, per_draft_variance
from speccli.core.stats.mix import PromptBin

SCHEMA = "specctl.baseline/v1"
Origin = Literal["recorded", "imported", "reference"]


@dataclass(frozen=True, slots=True)
class Key:
    """What acceptance depends on besides traffic. None: not told, so not compared."""

    engine: str | None = None
    """`vllm`, `sglang`."""
    version: str | None = None
    """The engine's."""
    runner: str | None = None
    """Model runner, where versions have two (vllm#40551)."""
    target: str | None = None
    target_revision: str | None = None
    draft: str | None = None
    draft_revision: str | None = None
    method: str | None = None
    k: int | None = None
    """Draft tokens a step."""
    sampling: str | None = None
    """Temperature and what else changes what is sampled."""
    dataset: str | None = None
    """Name or hash of a fixed set of prompts; None for live traffic."""

    def over(self, other: Key) -> Key:
        """These parts, and the other's where these are not told."""
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        return Key(**{k: getattr(other, k) if v is None else v for k, v in mine.items()})


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of the key that is not what it was."""

    part: str
    was: str
    now: str

    def __str__(self) -> str:
        """`version 0.32.0 -> 0.33.0`."""
        return f"{self.part.replace('_', ' ')} {self.was} -> {self.now}"


def differences(was: Key, now: Key) -> tuple[Difference, ...]:
    """Parts that both tell and that differ."""
    found = []
    for part in fields(Key):
        old, new = getattr(was, part.name), getattr(now, part.name)
        if old is not None and new is not None and str(old) != str(new):
            found.append(Difference(part.name, str(old), str(new)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """One engine's output at a batch size."""

    batch: float
    """Requests per step, mean."""
    output_tokens_per_s: float
    """Of one engine."""
    seconds: float
    """How long it was watched at it."""


@dataclass(frozen=True, slots=True)
class BatchLatency:
    """Latency at a range of batch sizes; quantiles are buckets, seconds, None where unresolved."""

    batch: str
    n: int
    itl_p50_s: tuple[float, float] | None = None
    itl_p99_s: tuple[float, float] | None = None
    ttft_p99_s: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """An acceptance profile and its key."""

    name: str
    key: Key
    rate: float
    """Accepted / draft tokens, 0..1."""
    length: float
    """1 + accepted / drafts."""
    positions: tuple[float, ...]
    """Accepted at each position / drafts; empty where not exported."""
    drafts: float
    """Drafts it was measured on; 0 where not told."""
    origin: Origin = "recorded"
    created: str | None = None
    """RFC 3339."""
    source: str = ""
    """Where it comes from, for people."""
    simulated: bool = False
    stand_in: str | None = None
    """Words, where the model only stands in for the one that is meant."""
    tolerance: float | None = None
    """Share of the length that may be lost, for a fixed set of prompts; None for live traffic."""
    look_s: float = 300.0
    """Length of its looks, seconds."""
    prompt_tokens: float | None = None
    """Mean prompt."""
    output_tokens: float | None = None
    """Mean output of a request."""
    bins: tuple[PromptBin, ...] = ()
    fleet: Dispersion = field(default_factory=Dispersion)
    """Scatter of the whole fleet's looks."""
    engine: Dispersion = field(default_factory=Dispersion)
    """Scatter of one engine's looks, differences between engines included."""
    latency: tuple[BatchLatency, ...] = ()
    speed: tuple[BatchSpeed, ...] = ()
    plain: tuple[BatchSpeed, ...] = ()
    """The same without speculation: the arm that speculation has to beat."""

    def to_json(self) -> dict[str, Any]:
        """The contract's object."""
        value = asdict(self)
        bins, latency = value.pop("bins"), value.pop("latency")
        acceptance = {
            "rate": value.pop("rate"),
            "length": value.pop("length"),
            "by_position": list(value.pop("positions")),
            "drafts": value.pop("drafts"),
            "look_s": value.pop("look_s"),
        }
        traffic = {
            "prompt_tokens": value.pop("prompt_tokens"),
            "output_tokens": value.pop("output_tokens"),
        }
        dispersion = {"fleet": value.pop("fleet"), "engine": value.pop("engine")}
        speed = {"self": list(value.pop("speed")), "plain": list(value.pop("plain"))}
        return {
            "schema": SCHEMA,
            **value,
            "acceptance": acceptance,
            "by_prompt": list(bins),
            "traffic": traffic,
            "dispersion": dispersion,
            "by_batch": list(latency),
            "speed": speed,
        }


def from_json(value: Any, where: str) -> Baseline:
    """The baseline of an object of the contract's form.

    Raises:
        UsageError: it is of no such form; `where` is named.
    """
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise UsageError(f"{where} is not a baseline: schema {schema!r}", hint=f"want {SCHEMA}")
    try:
        baseline = _read(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where} is not a whole baseline: {error!r}") from error
    if not 0 <= baseline.rate <= 1 or not all(0 <= p <= 1 for p in baseline.positions):
        raise UsageError(f"{where}: acceptance outside 0..1")
    return baseline


def loads(text: str, where: str) -> Baseline:
    """The baseline of a file's text.

    Raises:
        UsageError: it is none.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    return from_json(value, where)


def dumps(baseline: Baseline) -> str:
    """Its text on disk."""
    return json.dumps(baseline.to_json(), indent=1, allow_nan=False) + "\n"


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number here")


def _read(value: Mapping[str, Any]) -> Baseline:
    acceptance, traffic = value["acceptance"], value["traffic"]
    positions = tuple(float(p) for p in acceptance["by_position"])
    rate = _number(acceptance["rate"])
    assumed = Dispersion(per_draft=per_draft_variance(positions, rate))
    dispersion, speed = value.get("dispersion") or {}, value.get("speed") or {}
    return Baseline(
        name=str(value["name"]),
        key=Key(**{f.name: value["key"].get(f.name) for f in fields(Key)}),
        rate=rate,
        length=_number(acceptance["length"]),
        positions=positions,
        drafts=_number(acceptance["drafts"]),
        origin=value.get("origin", "imported"),
        created=value.get("created"),
        source=str(value.get("source", "")),
        simulated=bool(value.get("simulated", False)),
        stand_in=None if not value.get("stand_in") else str(value["stand_in"]),
        tolerance=_maybe(value.get("tolerance")),
        look_s=_number(acceptance.get("look_s", 300.0)),
        prompt_tokens=_maybe(traffic.get("prompt_tokens")),
        output_tokens=_maybe(traffic.get("output_tokens")),
        bins=tuple(PromptBin(**b) for b in value.get("by_prompt", ())),
        fleet=_dispersion(dispersion.get("fleet"), assumed),
        engine=_dispersion(dispersion.get("engine"), assumed),
        latency=tuple(_latency(row) for row in value.get("by_batch", ())),
        speed=tuple(_speed(row) for row in speed.get("self", ())),
        plain=tuple(_speed(row) for row in speed.get("plain", ())),
    )


def _dispersion(value: Any, assumed: Dispersion) -> Dispersion:
    if not value:
        return assumed
    parts = {f.name: _number(value[f.name]) for f in fields(Dispersion) if f.name != "looks"}
    read = Dispersion(**parts, looks=int(value["looks"]))
    if read.per_draft <= 0 or read.clustering < 1 or read.wander < 0:
        raise ValueError("a dispersion out of bounds")
    return read


def _latency(row: Mapping[str, Any]) -> BatchLatency:
    def pair(name: str) -> tuple[float, float] | None:
        found = row.get(name)
        return None if found is None else (_number(found[0]), _number(found[1]))

    quantiles = {name: pair(name) for name in ("itl_p50_s", "itl_p99_s", "ttft_p99_s")}
    return BatchLatency(str(row["batch"]), int(row["n"]), **quantiles)


def _speed(row: Mapping[str, Any]) -> BatchSpeed:
    speed = BatchSpeed(**{f.name: _number(row[f.name]) for f in fields(BatchSpeed)})
    if speed.batch <= 0:
        raise ValueError("a batch of none")
    return speed


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def _maybe(value: Any) -> float | None:
    return None if value is None else _number(value)
