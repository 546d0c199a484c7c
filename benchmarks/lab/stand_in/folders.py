"""Folders that an engine loads: config.json, tokenizer, recipe, and the small weights beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from stand_in import mixture, quantize, shapes, weights
from stand_in.mixture import Mixture
from stand_in.shapes import Place, Shape
from stand_in.weights import Small

RECIPE = "stand-in.json"
_TEXT = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
)


def target(small: Path, out: Path, shape: Shape, kind: str, seed: int = 0) -> Place:
    """A stand-in of this shape for a target."""
    config = _read(small)
    at = shapes.place(config, shape, quiet=quantize.QUIET[kind], seed=seed)
    config |= {"num_hidden_layers": shape.layers, "tie_word_embeddings": False}
    _write(small, out, _resized(config, at) | _quantization(kind), _recipe("target", at, kind))
    return at


def head(small: Path, out: Path, at: Place, inter: int | None = None) -> None:
    """The target's EAGLE-3 or P-EAGLE head, in the same place; never quantized."""
    config = _read(small)
    known = int(config.get("draft_vocab_size") or config["vocab_size"])
    room = at.shape.vocab - int(config["vocab_size"])
    ids = tuple(config["eagle_aux_hidden_state_layer_ids"])
    told = {"eagle_aux_hidden_state_layer_ids": list(at.aux(ids))}
    at = shapes.for_head(at, inter, min(max(at.shape.draft_vocab, known), known + room))
    if config.get("norm_before_fc") or config.get("fc_norm"):
        raise shapes.Unfit("heads that norm what they read are not handled")
    config |= told | {
        "target_hidden_size": at.shape.hidden,
        "draft_vocab_size": at.shape.draft_vocab,
    }
    if config.get("eagle_config"):
        config["eagle_config"] = dict(config["eagle_config"]) | told
    _write(small, out, _resized(config, at), _recipe("head", at, "bf16"))


def upcycled(small: Path, out: Path, kind: Mixture) -> None:
    """The dense model as a mixture of experts, in its own shape."""
    config = _read(small) | {
        "architectures": ["UpcycledForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": kind.experts,
        "num_experts_per_tok": kind.active,
        "sliding_window": None,
        "router_noise": kind.noise,
    }
    _write(small, out, config, {"role": "mixture", "mixture": asdict(kind)})


def tensors(folder: Path, device: str, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """What the engine's loader is given."""
    recipe = json.loads((folder / RECIPE).read_text())
    small = Small(folder / "small")
    if recipe["role"] == "mixture":
        yield from mixture.weights(small, Mixture(**recipe["mixture"]), device, dtype)
        return
    make = weights.head if recipe["role"] == "head" else weights.target
    for name, tensor in make(small, shapes.from_dict(recipe["place"]), device, dtype):
        yield from quantize.quantized(recipe["weights"], name, tensor)


def _recipe(role: str, at: Place, kind: str) -> dict[str, Any]:
    return {"role": role, "weights": kind, "place": at.to_dict()}


def _read(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return {k: v for k, v in config.items() if not k.startswith("_")}


def _resized(config: dict[str, Any], at: Place) -> dict[str, Any]:
    shape = at.shape
    return config | {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inter,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "rms_norm_eps": config["rms_norm_eps"] * at.norm**2,
    }


def _quantization(kind: str) -> dict[str, Any]:
    told = quantize.config(kind)
    return {"quantization_config": told} if told else {}


def _write(small: Path, out: Path, config: dict[str, Any], recipe: dict[str, Any]) -> None:
    kept = out / "small"
    kept.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out / RECIPE).write_text(json.dumps(recipe, indent=1) + "\n")
    for name in _TEXT:
        if (small / name).exists():
            shutil.copy(small / name, out / name)
    shutil.copy(small / "config.json", kept / "config.json")
    for file in small.glob("*.safetensors"):
        # Another ending: no other loader is to take the small weights for the large ones.
        link = kept / f"{file.stem}.small"
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())
