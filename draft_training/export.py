"""Stage 4: the head in the two forms engines load: Speculators', and the plain one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draft_training.events import tell
from draft_training.job import Job

_TARGETS = ("embed_tokens.", "verifier_norm.", "verifier_lm_head.")
"""Weights that the engine shares with the target."""
_LAYER_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "vocab_size",
    "max_position_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "attention_bias",
    "mlp_bias",
    "initializer_range",
)


def speculators(head: Any, folder: Path) -> None:
    """Writes the folder of Speculators: config.json and model.safetensors, bfloat16."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    own = getattr(head, "own_embeddings", False)
    weights = {
        name: (tensor.detach().to(torch.bfloat16) if tensor.is_floating_point() else tensor)
        .cpu()
        .contiguous()
        for name, tensor in head.state_dict().items()
        if not name.startswith(_TARGETS) or (name == "embed_tokens.weight" and own)
    }
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = head.config.to_dict()
    layer = config["transformer_layer_config"]
    layer = dict(layer) if isinstance(layer, dict) else layer.to_dict()
    layer |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    layer["rope_theta"] = _rope(layer)["rope_theta"]
    config |= {"transformer_layer_config": layer, "torch_dtype": "bfloat16"}
    text = json.dumps(config, indent=1, default=str)
    (folder / "config.json").write_text(text, encoding="utf-8")


def run(job: Job) -> dict[str, Any]:
    """Writes the plain folder from that of Speculators."""
    from safetensors.torch import load_file, save_file

    config = json.loads((job.speculators / "config.json").read_text(encoding="utf-8"))
    weights = {
        name.replace("layers.0.", "midlayer."): tensor
        for name, tensor in load_file(str(job.speculators / "model.safetensors")).items()
    }
    if "mask_hidden" in weights:
        weights["mask_hidden"] = weights["mask_hidden"].view(1, 1, -1)
    job.plain.mkdir(parents=True, exist_ok=True)
    plain = _plain(config)
    (job.plain / "config.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
    file = job.plain / "model.safetensors"
    save_file(weights, str(file), metadata={"format": "pt"})
    facts = {"folder": str(job.plain), "bytes": file.stat().st_size}
    tell("said", stage="export", **facts)
    return facts


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an EAGLE-3 head as vLLM reads it (v1/spec_decode, llama_eagle3.py)."""
    layer = config["transformer_layer_config"]
    aux = config["eagle_aux_hidden_state_layer_ids"]
    rope = _rope(layer)
    scaled = {k: v for k, v in rope.items() if k != "rope_theta"}
    made = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        **{key: layer[key] for key in _LAYER_KEYS if key in layer},
        "rope_theta": rope["rope_theta"],
        "rope_scaling": None if rope["rope_type"] == "default" else scaled,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "draft_vocab_size": config["draft_vocab_size"],
        "target_hidden_size": layer["hidden_size"],
        "norm_before_residual": config["norm_before_residual"],
        "eagle_aux_hidden_state_layer_ids": aux,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": aux, "use_aux_hidden_state": True},
    }
    if config.get("mask_token_id") is not None:
        made["ptd_token_id"] = config["mask_token_id"]
    return made


def _rope(layer: dict[str, Any]) -> dict[str, Any]:
    """The rotary embedding whole, as transformers 5 keeps it; 4 had the base apart."""
    told = layer.get("rope_parameters") or layer.get("rope_scaling") or {}
    kind = told.get("rope_type") or told.get("type") or "default"
    theta = float(told.get("rope_theta") or layer.get("rope_theta") or 10000.0)
    rest = {k: v for k, v in told.items() if k not in ("type", "rope_type", "rope_theta")}
    return {"rope_type": kind, "rope_theta": theta, **rest}
