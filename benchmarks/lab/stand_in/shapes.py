"""The shapes of the models that are stood in for, and where the small one lies in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """What costs depend on."""

    hidden: int
    inter: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    draft_vocab: int = 32000
    """Rows of an EAGLE-3 head's own output layer."""

    @property
    def params(self) -> int:
        """Parameters, norms aside; embedding and head are two."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        body = self.layers * (attention + 3 * self.hidden * self.inter)
        return body + 2 * self.vocab * self.hidden


SHAPES = {
    # Llama-3.1-8B, Qwen3-32B, Llama-3.1-70B
    "8b": Shape(4096, 14336, 32, 32, 8, 128, 128256),
    "32b": Shape(5120, 25600, 64, 64, 8, 128, 151936),
    "70b": Shape(8192, 28672, 80, 64, 8, 128, 128256),
    # A draft model of the cost of a 1B one; its vocabulary is its target's (--vocab).
    "1b": Shape(1536, 4096, 30, 24, 6, 64, 128256),
    # For rehearsals: twice as wide, four layers more.
    "tiny": Shape(1536, 3072, 34, 12, 3, 128, 49408, 12544),
    # Its draft model: narrower heads than the target's, as in the pair that is stood in for.
    "tiny-draft": Shape(1280, 2048, 30, 9, 3, 64, 49408),
}


class Unfit(ValueError):
    """The small model cannot be put into that shape."""


@dataclass(frozen=True)
class Place:
    """How one model lies in another. The stream is [x | copy * x | quiet]."""

    shape: Shape
    small: int
    """Hidden size of the small model."""
    copy: float
    """Scale of the second copy of the stream; 0: none is needed."""
    norm: float
    """Power of two: weights of norms are multiplied with it, their eps with its square."""
    layers: tuple[int, ...]
    """Where the small model's layers went; those between them change nothing."""
    quiet: int = 40
    """What is not the small model's speaks at 2^-quiet of it."""
    seed: int = 0

    @property
    def used(self) -> int:
        """Width of x and of its copy."""
        return self.small * (2 if self.copy else 1)

    def aux(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Layers a head reads, "before layer i": behind the small model's layer i - 1."""
        return tuple(self.layers[i - 1] + 1 if i else 0 for i in ids)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def place(config: Config, shape: Shape, *, quiet: int = 40, seed: int = 0) -> Place:
    """Where a model of this config.json lies in the shape.

    The mean square over `shape.hidden` numbers must be a power of four times the small model's:
    then a norm's weights are scaled by a power of two and nothing is rounded. A second copy of the
    stream at the right scale fills it up.

    Raises:
        Unfit: what is too small, or does not divide.
    """
    small, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    _fits(config, shape)
    ratio = shape.hidden / small
    power = -math.floor(math.log(ratio, 4) + 1e-9)
    fill = 4.0**power * ratio - 1
    copy = math.sqrt(fill) if fill > 1e-9 else 0.0
    if copy and shape.hidden < 2 * small:
        raise Unfit(f"hidden {shape.hidden} has no room for two streams of {small}")
    at = tuple(int((i + 0.5) * shape.layers / layers) for i in range(layers))
    return Place(shape, small, copy, 2.0**power, at, quiet, seed)


def _fits(config: Config, shape: Shape) -> None:
    group = int(config["num_attention_heads"]) // int(config["num_key_value_heads"])
    least = {
        "hidden": int(config["hidden_size"]),
        "inter": int(config["intermediate_size"]),
        "layers": int(config["num_hidden_layers"]),
        "kv_heads": int(config["num_key_value_heads"]),
        "vocab": int(config["vocab_size"]),
    }
    for name, value in least.items():
        if getattr(shape, name) < value:
            raise Unfit(f"{name} {getattr(shape, name)} is less than the small model's {value}")
    if shape.heads % shape.kv_heads or shape.heads // shape.kv_heads < group:
        raise Unfit(f"{shape.heads} heads over {shape.kv_heads} KV heads: {group} must share one")
    if shape.head_dim % head_dim(config):
        raise Unfit(f"head_dim {shape.head_dim} is no multiple of {head_dim(config)}")


def head_dim(config: Config) -> int:
    """Width of one attention head."""
    told = config.get("head_dim")
    return int(told or int(config["hidden_size"]) // int(config["num_attention_heads"]))


def from_dict(value: Mapping[str, Any]) -> Place:
    """The place of what `to_dict` gave."""
    shape = Shape(**value["shape"])
    return Place(**{**value, "shape": shape, "layers": tuple(value["layers"])})


def for_head(at: Place, inter: int | None, draft_vocab: int) -> Place:
    """The same place for a head of one layer."""
    shape = replace(at.shape, layers=1, inter=inter or at.shape.inter, draft_vocab=draft_vocab)
    return replace(at, shape=shape, layers=(0,), seed=at.seed + 1)
