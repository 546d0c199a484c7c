"""What each setting of a job may be: one that cannot work is found before anything is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_WEEK_S = 7 * 86400.0
_MOST = 1_000_000


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`."""

    low: float
    high: float
    whole: bool = False
    above: bool = False
    """`low` itself is none."""

    def takes(self, value: object) -> bool:
        """Whether it is one of these; no number (NaN) is none."""
        kinds = (int,) if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        first = f"above {self.low:,g}" if self.above else f"from {self.low:,.10g}"
        return f"{kind} {first} {'and at most' if self.above else 'to'} {self.high:,.10g}"


def _count(low: int, high: int = _MOST) -> Number:
    return Number(low, high, whole=True)


_SHARE = Number(0, 1)
_SOME = Number(0, 1, above=True)
_TIME_S = Number(0, _WEEK_S, above=True)

ANSWERS: Mapping[str, Number] = {
    "samples": _count(0, 256),
    "temperature": Number(0, 5, above=True),
    "top_p": _SOME,
    "max_tokens": _count(8),
    "max_prompt_tokens": _count(1),
    "seconds": _TIME_S,
    "chunk": _count(1),
    "gpu_memory": _SOME,
    "at_once": _count(1),
    "held_tokens": _count(8),
    "engines": _count(1, 64),
}
"""By name; what is no number is on or off. Answers below 8 tokens are not used."""
TRAINING: Mapping[str, Number] = {
    "minutes": Number(0, _WEEK_S / 60, above=True),
    "steps": _count(1, 100 * _MOST),
    "batch_tokens": _count(1, 10 * _MOST),
    "unroll": _count(1, 64),
    "decay": _SHARE,
    "draft_vocab": _count(1),
    "lr": _SOME,
    "head_lr": _SHARE,
    "warmup": _SHARE,
    "weight_decay": _SHARE,
    "validation": _count(0),
    "mask_token": _count(0),
    "save_every_s": _TIME_S,
    "measure_every_s": _TIME_S,
    "k": _count(1, 64),
}
SEED = _count(0, 2**32 - 1)
"""numpy takes no other."""
LAYER = _count(1, 1000)


class OutOfBoundsError(ValueError):
    """A setting that cannot be."""

    def __init__(self, name: str, value: object, wanted: object) -> None:
        super().__init__(f"{name} is {value!r}: {wanted} is wanted")
        self.name, self.value, self.wanted = name, value, wanted


def check(job: Any) -> None:
    """That every setting of a job can be.

    Raises:
        OutOfBoundsError: the first that cannot.
    """
    for name, value, bound, optional in _settings(job):
        if value is None and optional:
            continue
        if bound is None and not isinstance(value, bool):
            raise OutOfBoundsError(name, value, "true or false")
        if bound is not None and not bound.takes(value):
            raise OutOfBoundsError(name, value, bound)
    layers = job.aux_layers
    if layers is not None and (not all(map(LAYER.takes, layers)) or len(set(layers)) < len(layers)):
        raise OutOfBoundsError("aux_layers", list(layers), "a list of layers, each once,")
    if not job.answers.greedy and not job.answers.samples:
        raise OutOfBoundsError("answers.samples", 0, "a number above 0, or answers.greedy,")


def _settings(job: Any) -> Iterator[tuple[str, object, Number | None, bool]]:
    yield "seed", job.seed, SEED, False
    for section, bounds in (("answers", ANSWERS), ("training", TRAINING)):
        given = getattr(job, section)
        for name, default in type(given).__dataclass_fields__.items():
            optional = default.default is None
            yield f"{section}.{name}", getattr(given, name), bounds.get(name), optional
