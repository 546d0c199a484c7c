"""Names and tensors of a stand-in, in the order in which engines like to have them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from stand_in.filler import Filler
from stand_in.shapes import Config, Place, head_dim

Named = Iterator[tuple[str, torch.Tensor]]


class Small:
    """A checkpoint's folder, read one tensor at a time."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self.folder = folder
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self._where: dict[str, Any] = {}
        for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.small")]):
            opened = safe_open(str(file), "pt")
            self._where |= dict.fromkeys(opened.keys(), opened)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._where[name].get_tensor(name)
        return tensor


class _Heads:
    """Where the small model's attention heads lie among the large one's."""

    def __init__(self, config: Config, at: Place, fill: Filler) -> None:
        small, large = head_dim(config), at.shape.head_dim
        kv = int(config["num_key_value_heads"])
        group = int(config["num_attention_heads"]) // kv
        wide = at.shape.heads // at.shape.kv_heads
        step = large // small
        half = torch.arange(small // 2) * step
        # RoPE turns the pair (i, i + d/2) by theta^(-2i/d): the same angle is `step` times as far.
        turned = torch.cat([half, large // 2 + half])
        queries = [(i // group) * wide + i % group for i in range(kv * group)]
        plain = torch.arange(small)
        self.q = fill.indices(torch.cat([i * large + turned for i in queries]))
        self.k = fill.indices(torch.cat([i * large + turned for i in range(kv)]))
        self.v = fill.indices(torch.cat([i * large + plain for i in range(kv)]))
        self.o = fill.indices(torch.cat([i * large + plain for i in queries]))
        whole = torch.cat([i * large + torch.arange(large) for i in queries])
        self.q_rest = fill.indices(whole[~torch.isin(whole, self.q.cpu())])
        self.scale = math.sqrt(large / small)
        """The large head divides scores by sqrt(its own width)."""


def layer(
    fill: Filler,
    config: Config,
    at: Place,
    small: Mapping[str, Any],
    start: str,
    *,
    alive: bool = True,
) -> Named:
    """Attention and MLP of one layer; not `alive`: one that the small model lacks."""
    heads, shape = _Heads(config, at, fill), at.shape
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    inner = fill.indices(range(int(config["intermediate_size"])))

    def get(name: str) -> torch.Tensor:
        tensor: torch.Tensor = small[f"{start}{name}.weight"]
        return tensor

    def real(places: torch.Tensor) -> torch.Tensor | None:
        return places if alive else None

    name = "self_attn.q_proj"
    silent = heads.q_rest if alive else None
    yield name, fill.reads(get(name), q, real(heads.q), silent=silent, scale=heads.scale)
    yield "self_attn.k_proj", fill.reads(get("self_attn.k_proj"), kv, real(heads.k))
    yield "self_attn.v_proj", fill.reads(get("self_attn.v_proj"), kv, real(heads.v))
    yield "self_attn.o_proj", fill.writes(get("self_attn.o_proj"), q, heads.o, alive=alive)
    for name in ("mlp.gate_proj", "mlp.up_proj"):
        yield name, fill.reads(get(name), shape.inter, real(inner))
    yield "mlp.down_proj", fill.writes(get("mlp.down_proj"), shape.inter, inner, alive=alive)


def target(small: Any, at: Place, device: str, dtype: torch.dtype) -> Named:
    """A whole target, by the names of Llama checkpoints."""
    fill, config, shape = Filler(at, device, dtype), small.config, at.shape
    embeddings = small["model.embed_tokens.weight"]
    yield "model.embed_tokens.weight", fill.embeds(embeddings, shape.vocab)
    own = {place: i for i, place in enumerate(at.layers)}
    like = 0
    for n in range(shape.layers):
        like = own.get(n, like)
        start, name = f"model.layers.{like}.", f"model.layers.{n}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}{norm}.weight", fill.norm(small[f"{start}{norm}.weight"])
        for part, tensor in layer(fill, config, at, small, start, alive=n in own):
            yield f"{name}{part}.weight", tensor
    yield "model.norm.weight", fill.norm(small["model.norm.weight"])
    own_head = "lm_head.weight" in small
    yield (
        "lm_head.weight",
        fill.scores(small["lm_head.weight"] if own_head else embeddings, shape.vocab),
    )


def head(small: Any, at: Place, device: str, dtype: torch.dtype) -> Named:
    """An EAGLE-3 or P-EAGLE head of the plain format, for a target in the same place."""
    fill, config = Filler(at, device, dtype), small.config
    yield "fc.weight", fill.joins(small["fc.weight"])
    if "mask_hidden" in small:
        yield "mask_hidden", _mask(fill, small["mask_hidden"])
    # With norm_before_residual what this norm gives becomes the stream: quiet must stay quiet.
    loud = not config.get("norm_before_residual")
    yield "midlayer.hidden_norm.weight", fill.norm(small["midlayer.hidden_norm.weight"], loud=loud)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"midlayer.{norm}.weight", fill.norm(small[f"midlayer.{norm}.weight"])
    for part, tensor in layer(fill, config, at, small, "midlayer."):
        yield f"midlayer.{part}.weight", tensor
    yield "norm.weight", fill.norm(small["norm.weight"])
    yield "lm_head.weight", fill.scores(small["lm_head.weight"], at.shape.draft_vocab)
    if "d2t" in small:
        yield "d2t", _unused(small["d2t"], config, at).to(fill.device)


def _mask(fill: Filler, small: torch.Tensor) -> torch.Tensor:
    streams = small.numel() // fill.small
    given = fill.here(small).reshape(streams, fill.small)
    made = fill.noise(streams, fill.width, float(given.std()) * fill.hush)
    made[:, : fill.small] = given.to(fill.dtype)
    if fill.at.copy:
        made[:, fill.small : 2 * fill.small] = (given * fill.at.copy).to(fill.dtype)
    return made.reshape(1, 1, -1)


def _unused(d2t: torch.Tensor, config: Config, at: Place) -> torch.Tensor:
    """Offsets from draft ids to the target's; draft ids that do not exist go to such tokens."""
    known, vocabulary = len(d2t), int(config["vocab_size"])
    extra = torch.arange(known, at.shape.draft_vocab)
    return torch.cat([d2t.to(torch.int64), vocabulary - known + torch.zeros_like(extra)])
