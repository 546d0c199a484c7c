"""A head to go on from: as Speculators keeps it, or in the plain form that engines load.

Published EAGLE-3 heads are of the plain form. Both hold the same tensors: names differ, and what
the plain form may leave out (`t2d`, or both vocabulary maps) follows from the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draft_training.events import Failed
from draft_training.job import Job

_FROM_TARGET = ("verifier_norm.", "verifier_lm_head.")
_POINTER = b"version https://git-lfs"
_NOT_TRAINED = ("norm_before_fc", "fc_norm", "norm_output")
"""Variants of the architecture that the unroll does not compute."""
_LAYER = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "attention_bias",
    "mlp_bias",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
)
"""What of a head's configuration its layer is built from; what it leaves out is the target's."""


@dataclass(frozen=True)
class Given:
    """A head as it was found."""

    weights: Mapping[str, torch.Tensor]
    """By the names of Speculators; `d2t` and `t2d` are always among them."""
    layer: Mapping[str, Any]
    """Of the layer's configuration, where the head says it."""
    norm_before_residual: bool


def read(folder: Path, target: Any) -> Given:
    """The head of a folder, for a target with this configuration.

    Raises:
        Failed: no EAGLE-3 or P-EAGLE head, or not one of this target.
    """
    with _blamed(folder):
        return _read(folder, target)


@contextmanager
def _blamed(folder: Path) -> Iterator[None]:
    """Others made it: whatever stumbles over it says what is wrong with it."""
    try:
        yield
    except (Failed, MemoryError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _bad(folder, f"it cannot be read as a head: {what}") from error


def _read(folder: Path, target: Any) -> Given:
    config = _config(folder)
    weights = {
        name: tensor
        for name, tensor in map(_named, _tensors(folder).items())
        if not name.startswith(_FROM_TARGET) and not name.endswith("rotary_emb.inv_freq")
    }
    _is_eagle3(folder, weights, target.hidden_size)
    _same_tokens(folder, target)
    for name in _NOT_TRAINED:
        if config.get(name):
            raise _bad(folder, f"{name} is set in its config.json, which is not trained here")
    weights |= _vocabulary(folder, config, weights, target.vocab_size)
    weights |= _ascending(weights)
    if "mask_hidden" in weights:
        weights["mask_hidden"] = weights["mask_hidden"].reshape(1, 1, -1)
    layer = config.get("transformer_layer_config") or config
    return Given(
        weights,
        {k: layer[k] for k in _LAYER if layer.get(k) is not None},
        bool(config.get("norm_before_residual", False)),
    )


def widened(
    weights: Mapping[str, torch.Tensor], often: torch.Tensor, size: int, rows: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The head with a draft vocabulary of `size`, if that is more than it has.

    Args:
        weights: of the head.
        often: how often each of the target's tokens is in the answers; the most frequent are added,
            and none that is not in them.
        size: tokens that the draft vocabulary may have.
        rows: the target's own rows, which new tokens start from.
    """
    before = weights["t2d"]
    counts = often.masked_fill(before, -1)
    new = counts.topk(max(0, min(size, len(before)) - int(before.sum()))).indices
    t2d = before.clone()
    t2d[new[counts[new] > 0]] = True
    ids = t2d.nonzero().flatten()
    own = weights["lm_head.weight"]
    made = rows[ids].to(own.dtype)
    made[before[ids]] = own
    return {
        **weights,
        "d2t": ids - torch.arange(len(ids)),
        "t2d": t2d,
        "lm_head.weight": made,
    }


def _ascending(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Draft ids in the order of the target's, in which the target's own rows are taken."""
    ids = weights["d2t"] + torch.arange(len(weights["d2t"]))
    order = ids.argsort()
    return {
        "d2t": ids[order] - torch.arange(len(ids)),
        "lm_head.weight": weights["lm_head.weight"][order],
    }


def aux_layers(folder: Path) -> tuple[int, ...] | None:
    """Layers of the target whose states the head reads; None: it does not say.

    Raises:
        Failed: its config.json cannot be read.
    """
    config, name = _config(folder), "eagle_aux_hidden_state_layer_ids"
    within = config.get("eagle_config") or {}
    if not isinstance(within, dict):
        raise _bad(folder, "eagle_config in its config.json is no object")
    found = config.get(name) or within.get(name)
    if not found:
        return None
    if not isinstance(found, list) or not all(type(at) is int for at in found):
        raise _bad(folder, f"{name} in its config.json is {found!r}, and not a list of layers")
    return tuple(found)


def layers_for(job: Job) -> tuple[int, ...] | None:
    """Those that were asked for, or that the head to go on from reads; None: as is usual.

    Raises:
        Failed: the head reads others than were asked for.
    """
    if job.init is None:
        return job.aux_layers
    own = aux_layers(job.init)
    if own and job.aux_layers and own != job.aux_layers:
        raise Failed(
            "bad-init",
            f"{job.init} reads the layers {own}, and aux_layers are {job.aux_layers}",
            "leave aux_layers out",
        )
    return own or job.aux_layers


def judge(job: Job, target: Any) -> None:
    """That the head to go on from is one of a target with this configuration, before any work.

    Raises:
        Failed: it is none; a tensor is missing, has no place or is of another shape.
    """
    if job.init is None:
        return
    found, layers, count = read(job.init, target), layers_for(job), int(target.num_hidden_layers)
    if layers and not 1 <= min(layers) <= max(layers) <= count:
        raise _bad(job.init, f"it reads the layers {layers} of a target with {count}")
    with _blamed(job.init):
        shapes = _shapes(found, target, len(layers or (0, 0, 0)))
    fix = "start from an EAGLE-3 head of this very target"
    if missing := [name for name in shapes if name not in found.weights]:
        raise _bad(job.init, f"no tensor {missing[0]}", fix)
    embeddings = (int(target.vocab_size), int(target.hidden_size))
    shapes |= {"embed_tokens.weight": embeddings}
    if job.method == "p-eagle":
        shapes["mask_hidden"] = (1, 1, shapes["fc.weight"][1])
    for name, tensor in found.weights.items():
        if name in ("d2t", "t2d", "lm_head.weight"):
            continue
        if name not in shapes:
            raise _bad(job.init, f"no place for its tensor {name}", fix)
        if tuple(tensor.shape) != shapes[name]:
            what = f"{name} is {tuple(tensor.shape)}, for this target it is {shapes[name]}"
            raise _other(job.init, what) if "embed" in name else _bad(job.init, what, fix)


def _shapes(found: Given, target: Any, states: int) -> dict[str, tuple[int, ...]]:
    """Of every tensor that such a head has, but for its maps and what the maps size."""
    layer, width = found.layer, int(target.hidden_size)
    heads = int(layer.get("num_attention_heads", target.num_attention_heads))
    own = None if "num_attention_heads" in layer else getattr(target, "head_dim", None)
    each = int(layer.get("head_dim") or own or width // heads)
    of_target = getattr(target, "num_key_value_heads", None) or heads
    shared = each * int(layer.get("num_key_value_heads", of_target))
    inner = int(layer.get("intermediate_size", target.intermediate_size))
    linear = {
        "self_attn.q_proj": (heads * each, 2 * width),
        "self_attn.k_proj": (shared, 2 * width),
        "self_attn.v_proj": (shared, 2 * width),
        "self_attn.o_proj": (width, heads * each),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    made: dict[str, tuple[int, ...]] = {"fc.weight": (width, states * width)}
    made["norm.weight"] = (width,)
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        made[f"layers.0.{name}.weight"] = (width,)
    for name, shape in linear.items():
        made[f"layers.0.{name}.weight"] = shape
        key = "attention_bias" if name.startswith("self_attn") else "mlp_bias"
        if layer.get(key, getattr(target, key, False)):
            made[f"layers.0.{name}.bias"] = shape[:1]
    return made


def _bad(folder: Path, what: str, fix: str = "give the folder of an EAGLE-3 head") -> Failed:
    return Failed("bad-init", f"{folder}: {what}", fix)


def _other(folder: Path, what: str) -> Failed:
    return Failed("tokenizer-mismatch", f"{folder}: {what}", "start from a head of this target")


def _config(folder: Path) -> dict[str, Any]:
    return _object(folder, folder / "config.json")


def _object(folder: Path, file: Path) -> dict[str, Any]:
    """A JSON object of a file of the head or of its target."""
    where = f"its {file.name}" if file.parent == folder else str(file)
    _whole(folder, file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _bad(folder, f"{where} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise _bad(folder, f"{where} is no object")
    return found


def _whole(folder: Path, file: Path) -> None:
    """That a file is itself, and not what git keeps in its place."""
    if file.is_file():
        with file.open("rb") as opened:
            begins = opened.read(len(_POINTER))
        if begins == _POINTER:
            told = f"{file.name} is a pointer of git-LFS and not the file"
            raise _bad(folder, told, f"git lfs pull in {file.parent}, or download the file")


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = {}
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise _bad(folder, "no *.safetensors and no pytorch_model.bin there")
    for file in files:
        _whole(folder, file)
        try:
            if file.suffix == ".safetensors":
                found |= load_file(str(file))
            else:
                found |= torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # of the file: pickle, zip and torch have each their own
            raise _bad(folder, f"{file.name} cannot be read: {error}") from error
    if any(not isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise _bad(folder, f"{files[0].name} holds more than tensors, or none")
    return found


def _named(item: tuple[str, torch.Tensor]) -> tuple[str, torch.Tensor]:
    """A tensor by the name that Speculators gives it."""
    name, tensor = item
    name = name.removeprefix("model.")
    if name.startswith("midlayer."):
        name = "layers.0." + name.removeprefix("midlayer.")
    return name, tensor


def _is_eagle3(folder: Path, weights: Mapping[str, torch.Tensor], width: int) -> None:
    if "lm_head.weight" not in weights and "fc.weight" in weights:
        raise _bad(
            folder,
            "no lm_head.weight: a head that shares its embeddings' rows is not trained here",
            "give one that has an lm_head of its own",
        )
    missing = [n for n in ("fc.weight", "lm_head.weight", "norm.weight") if n not in weights]
    if missing:
        raise _bad(folder, f"no tensor {missing[0]}: no EAGLE-3 head")
    for name in ("fc.weight", "lm_head.weight"):
        if weights[name].ndim != 2:
            raise _bad(folder, f"{name} is {tuple(weights[name].shape)}, and no matrix")
    rows, columns = weights["fc.weight"].shape
    if columns == 2 * rows:
        raise _bad(folder, "its fc joins two states, so it is an EAGLE head of before EAGLE-3")
    if rows != width or columns % width:
        raise _bad(
            folder,
            f"fc.weight is {(rows, columns)}, and the target's states are {width} wide",
            "start from a head of this target",
        )


def _same_tokens(folder: Path, target: Any) -> None:
    """Token ids mean the same, as far as both folders hold a tokenizer."""
    own, of = folder / "tokenizer.json", Path(str(target.name_or_path)) / "tokenizer.json"
    if not own.is_file() or not of.is_file():
        return
    mine, theirs = (_ids(_object(folder, file)) for file in (own, of))
    if mine != theirs:
        raise _other(folder, "its tokenizer.json gives other ids than the target's")


def _ids(tokenizer: Mapping[str, Any]) -> Any:
    model = tokenizer.get("model")
    return model.get("vocab") if isinstance(model, dict) else None


def _vocabulary(
    folder: Path, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], target: int
) -> dict[str, torch.Tensor]:
    """Both maps, and that they fit each other, the head and the target."""
    size = len(weights["lm_head.weight"])
    said = config.get("draft_vocab_size")
    if said not in (None, size):
        raise _bad(folder, f"draft_vocab_size is {said}, and lm_head has {size} rows")
    t2d = weights.get("t2d")
    if t2d is not None and len(t2d) != target:
        raise _other(folder, f"its t2d is for {len(t2d)} tokens, and the target has {target}")
    if "d2t" in weights:
        d2t = weights["d2t"].long()
    elif t2d is not None:
        d2t = t2d.bool().nonzero().flatten() - torch.arange(int(t2d.bool().sum()))
    elif size == target:
        d2t = torch.zeros(size, dtype=torch.long)
    else:
        raise _bad(folder, f"no d2t, and its {size} tokens are not all {target} of the target")
    if len(d2t) != size:
        raise _bad(folder, f"its vocabulary map is of {len(d2t)} tokens, its lm_head of {size}")
    ids = d2t + torch.arange(size)
    if wrong := [i for i in (int(ids.max()), int(ids.min())) if not 0 <= i < target]:
        raise _other(folder, f"its d2t names token {wrong[0]}, and the target has {target}")
    made = torch.zeros(target, dtype=torch.bool)
    made[ids] = True
    if int(made.sum()) != size:
        raise _bad(folder, "its d2t names a token twice")
    if t2d is not None and not torch.equal(t2d.bool(), made):
        raise _bad(folder, "its d2t and t2d name different tokens")
    return {"d2t": d2t, "t2d": made}
