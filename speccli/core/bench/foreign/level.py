"""What any of them tells of one load on one server."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speccli.core.bench.results import Acceptance, Row, Samples, Spread, Statistic
from speccli.core.bench.spread import spread
from speccli.core.errors import UsageError
from speccli.core.values import Number


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long requests took."""

    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    chunk_gap_s: Spread


@dataclass(frozen=True, slots=True)
class Level:
    """One run of another tool: a load on a server."""

    tool: str
    """`vllm-bench`, `aiperf`, `guidellm`."""
    version: str | None
    where: str
    """The file, for messages."""
    model: str | None
    endpoint: str | None
    batch: int | None
    rate: float | None
    started: str | None
    duration_s: float
    requests: int
    errors: int
    output_tokens: int
    input_tokens: int | None
    output_tokens_per_s: float
    samples: Samples
    latencies: Latencies
    acceptance: Acceptance = field(default=Acceptance.unknown("the file holds no acceptance"))
    error_kinds: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)
    """What the file says of the run beside numbers: `arm`, `method`, `dataset`."""

    def row(self, arm: str, dataset: str, repeat: int) -> Row:
        """The same as a row of a bench."""
        whole = self.requests + self.errors
        state, reason = "ok", None
        if self.errors:
            state = "partial" if self.requests else "failed"
            reason = f"{self.errors} of {whole} requests failed"
        elif not self.requests:
            state, reason = "failed", "no request was answered"
        return Row(
            arm=arm,
            batch=self.batch,
            rate=self.rate,
            dataset=dataset,
            repeat=repeat,
            state=state,  # type: ignore[arg-type]
            reason=reason,
            started=self.started,
            duration_s=self.duration_s,
            requests=self.requests,
            errors=self.errors,
            error_kinds=self.error_kinds,
            output_tokens=self.output_tokens,
            input_tokens=self.input_tokens,
            output_tokens_per_s=Number.known(self.output_tokens_per_s, n=self.output_tokens),
            ttft_s=self.latencies.ttft_s,
            tpot_s=self.latencies.tpot_s,
            e2e_s=self.latencies.e2e_s,
            chunk_gap_s=self.latencies.chunk_gap_s,
            acceptance=self.acceptance,
            gpu_utilisation=Number.unknown("the tool does not tell it"),
            power_w=Number.unknown("the tool does not tell it"),
            sm_clock_mhz=Number.unknown("the tool does not tell it"),
            energy_j=Number.unknown("the tool does not tell it"),
            energy_j_per_token=Number.unknown("the tool does not tell it"),
            contaminated_reason="the tool does not look for others' traffic",
            samples=self.samples,
        )


def latencies(samples: Samples, chunk_gap_s: Spread) -> Latencies:
    """Of single requests; TPOT is (e2e - TTFT) / (output tokens - 1), whoever measured."""
    each = zip(samples.e2e_s, samples.ttft_s, samples.output_tokens, strict=True)
    tpot = [(e2e - ttft) / (n - 1) for e2e, ttft, n in each if n > 1]
    return Latencies(
        spread(samples.ttft_s),
        spread(tpot) if tpot else Spread.unknown("no answer had two tokens"),
        spread(samples.e2e_s),
        chunk_gap_s,
    )


def summary(told: Sequence[Any], n: int) -> Spread:
    """A spread without intervals, of p50, p95, p99 and mean in milliseconds."""
    p50, p95, p99, mean = (_statistic(each, n) for each in told)
    return Spread(p50, p95, p99, mean)


def _statistic(value_ms: Any, n: int) -> Statistic:
    if not isinstance(value_ms, int | float) or not math.isfinite(value_ms):
        return Statistic.unknown("the file does not tell it", n=n)
    return Statistic(value_ms / 1000, None, None, n)


ID_LENGTH = 12
"""Of ids made of a text; a tool that keeps none has prompts told by their place."""


def prompt_id(text: str) -> str:
    """An id by which the same prompt is found again, whoever sent it."""
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def text_sha(text: str) -> str:
    """As a bench of ours keeps it."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Fields:
    """A document's values by path, each of the kind that is wanted."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        """`where` names the file in errors."""
        self._document = document
        self.where = where

    def at(self, *path: str) -> Any:
        """What lies there; None where nothing does."""
        found: Any = self._document
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def number(self, *path: str) -> float:
        """A finite number.

        Raises:
            UsageError: there is none.
        """
        value = self.maybe(*path)
        if value is None:
            raise UsageError(
                f"{self.where}: {'.'.join(path)} is {self.at(*path)!r}, not a number",
                hint="is the file whole?",
            )
        return value

    def maybe(self, *path: str) -> float | None:
        """A finite number, or None."""
        value = self.at(*path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) else None

    def text(self, *path: str) -> str | None:
        """Text that is not empty, or None."""
        value = self.at(*path)
        return value if isinstance(value, str) and value else None

    def numbers(self, name: str, length: int) -> Sequence[float] | None:
        """A list of numbers of this length; None where the file has no such list.

        Raises:
            UsageError: it has one, and it is another.
        """
        value = self.at(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise UsageError(
                f"{self.where}: {name} is not a list of {length}", hint="is the file whole?"
            )
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in value):
            raise UsageError(f"{self.where}: {name} holds what is no number")
        return value
