"""A dense model upcycled to a mixture of experts.

Every expert is a copy of the layer's MLP with noise of `spread` times the weights' own deviation;
a random router sends each token to `active` of them and their weights add up to one. At spread 0
the mixture computes what the dense model does, whatever the router says; the larger the spread,
the more it matters which experts were taken, and a router whose two best are close takes others
when the batch's arithmetic rounds another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


@dataclass(frozen=True)
class Mixture:
    """How a dense MLP becomes experts."""

    experts: int = 8
    active: int = 2
    spread: float = 0.0
    """Noise of an expert's weights, in deviations of the dense weights."""
    router: float = 1.0
    """Deviation of the router's logits: the smaller, the closer its choices."""
    noise: float = 0.0
    """Deviation of what is added to the router's logits, anew in every forward pass: as if the
    batch's arithmetic had rounded so coarsely."""
    seed: int = 0


def weights(
    small: Any, kind: Mixture, device: str, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a Mixtral checkpoint."""
    random = torch.Generator(device=device).manual_seed(kind.seed)

    def noise(shape: Any) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device).normal_(generator=random)

    yield from _plain(small, ["model.embed_tokens.weight"], device, dtype)
    hidden = int(small.config["hidden_size"])
    for n in range(int(small.config["num_hidden_layers"])):
        start = f"model.layers.{n}."
        parts = [f"self_attn.{p}_proj" for p in "qkvo"]
        names = [*parts, "input_layernorm", "post_attention_layernorm"]
        yield from _plain(small, [f"{start}{name}.weight" for name in names], device, dtype)
        # A normed state has mean square w^2: so its product with such a row has deviation `router`.
        scale = small[f"{start}post_attention_layernorm.weight"].float().pow(2).mean().sqrt()
        gate = noise((kind.experts, hidden)) * (kind.router / hidden**0.5 / float(scale))
        yield f"{start}block_sparse_moe.gate.weight", gate.to(dtype)
        for own, name in _NAMES.items():
            dense = small[f"{start}mlp.{own}.weight"].to(device, torch.float32)
            deviation = float(dense.std()) * kind.spread
            for expert in range(kind.experts):
                made = dense + noise(dense.shape) * deviation if deviation else dense
                yield f"{start}block_sparse_moe.experts.{expert}.{name}.weight", made.to(dtype)
    yield from _plain(small, ["model.norm.weight"], device, dtype)
    if "lm_head.weight" in small:
        yield from _plain(small, ["lm_head.weight"], device, dtype)


def _plain(
    small: Any, names: list[str], device: str, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    for name in names:
        yield name, small[name].to(device, dtype)
