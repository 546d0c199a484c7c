"""What a stand-in computes beside the small model; run by the engine's Python, prints JSON.

    python stand_in_numbers.py FOLDER

A random Llama and a random EAGLE-3 head, in float32, so that nothing but the embedding is judged.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from stand_in import folders, mixture, quantize, shapes
from stand_in.mixture import Mixture
from stand_in.weights import Small

SHAPE = shapes.Shape(192, 384, 7, 12, 3, 32, 300, 72)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
HEAD = CONFIG | {
    "num_hidden_layers": 1,
    "draft_vocab_size": 64,
    "norm_before_residual": True,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
}
IDS = torch.arange(40)[None] * 37 % 256
Weights = dict[str, torch.Tensor]


def small_target(folder: Path) -> LlamaForCausalLM:
    """A random one on disk, norms that are not all one."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).eval()
    for name, weight in model.named_parameters():
        weight.data = weight.data * 4 if "norm" not in name else torch.rand_like(weight) + 0.5
    held = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    _write(folder, CONFIG, held)
    return model


def small_head(folder: Path) -> Weights:
    """A random head of the plain format."""
    torch.manual_seed(1)

    def made(*size: int) -> torch.Tensor:
        return torch.randn(*size) / size[-1] ** 0.5

    names = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    weights = {f"midlayer.{name}.weight": torch.rand(64) + 0.5 for name in names}
    sizes = {"q": (64, 128), "k": (32, 128), "v": (32, 128), "o": (64, 64)}
    weights |= {f"midlayer.self_attn.{n}_proj.weight": made(*s) for n, s in sizes.items()}
    sizes = {"gate": (160, 64), "up": (160, 64), "down": (64, 160)}
    weights |= {f"midlayer.mlp.{n}_proj.weight": made(*s) for n, s in sizes.items()}
    weights |= {"fc.weight": made(64, 192), "norm.weight": torch.rand(64) + 0.5}
    weights |= {"lm_head.weight": made(64, 64) * 4, "d2t": torch.arange(64)}
    _write(folder, HEAD, weights)
    return weights


def _write(folder: Path, config: dict[str, Any], weights: Weights) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, str(folder / "model.safetensors"))


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def attention(config: dict[str, Any], q: Any, k: Any, v: Any) -> torch.Tensor:
    """Causal, grouped, rotated."""
    width, count = config["head_dim"], q.shape[0]
    angle = torch.arange(count)[:, None] / 10000.0 ** (torch.arange(0, width, 2) / width)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(count, -1, width)

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = heads(x).chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    group = config["num_attention_heads"] // config["num_key_value_heads"]
    parts = [turned(q), *(t.repeat_interleave(group, 1) for t in (turned(k), heads(v)))]
    made = torch.nn.functional.scaled_dot_product_attention(
        *(part.transpose(0, 1) for part in parts), is_causal=True
    )
    return made.transpose(0, 1).reshape(count, -1)


def draft(config: dict[str, Any], w: Weights, states: Any, embeddings: Any) -> torch.Tensor:
    """Logits of an EAGLE-3 head as engines compute them."""
    eps, m = config["rms_norm_eps"], "midlayer."
    lead = norm(states @ w["fc.weight"].T, w[f"{m}hidden_norm.weight"], eps)
    x = torch.cat([norm(embeddings, w[f"{m}input_layernorm.weight"], eps), lead], -1)
    q, k, v = (x @ w[f"{m}self_attn.{n}_proj.weight"].T for n in "qkv")
    stream = lead + attention(config, q, k, v) @ w[f"{m}self_attn.o_proj.weight"].T
    x = norm(stream, w[f"{m}post_attention_layernorm.weight"], eps)
    inner = torch.nn.functional.silu(x @ w[f"{m}mlp.gate_proj.weight"].T)
    inner = inner * (x @ w[f"{m}mlp.up_proj.weight"].T)
    stream = stream + inner @ w[f"{m}mlp.down_proj.weight"].T
    return norm(stream, w["norm.weight"], eps) @ w["lm_head.weight"].T


def wide_target(folder: Path) -> LlamaForCausalLM:
    """The stand-in, as transformers loads it."""
    config = json.loads((folder / "config.json").read_text())
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    weights = dict(folders.tensors(folder, "cpu", torch.float32))
    model.load_state_dict(weights, strict=True)
    return model


def main(work: Path) -> None:
    """All of it, as one JSON object."""
    model = small_target(work / "small")
    weights = small_head(work / "head")
    at = folders.target(work / "small", work / "wide/target", SHAPE, "bf16")
    folders.head(work / "head", work / "wide/eagle3", at)
    wide = wide_target(work / "wide/target")
    with torch.no_grad():
        a = model(IDS, output_hidden_states=True)
        b = wide(IDS, output_hidden_states=True)
        config = json.loads((work / "wide/eagle3/config.json").read_text())
        large = dict(folders.tensors(work / "wide/eagle3", "cpu", torch.float32))
        ids = config["eagle_aux_hidden_state_layer_ids"]
        small_states = torch.cat([a.hidden_states[i][0] for i in (1, 2, 3)], -1)
        wide_states = torch.cat([b.hidden_states[i][0] for i in ids], -1)
        given = model.model.embed_tokens.weight[IDS[0]]
        c = draft(HEAD, weights, small_states, given)
        d = draft(config, large, wide_states, wide.model.embed_tokens.weight[IDS[0]])
    told: dict[str, Any] = {"target": _beside(a.logits[0], b.logits[0]), "head": _beside(c, d)}
    told |= {"params": sum(p.numel() for p in wide.parameters() if p.dim() > 1)}
    told |= {"said": SHAPE.params, "quiet": float(b.hidden_states[-2][0][:, 128:].abs().max())}
    told |= {"loud": float(wide.model.norm(b.hidden_states[-2])[0][:, 128:-1].abs().mean())}
    told |= _kinds() | _experts(work / "small")
    sys.stdout.write(json.dumps(told) + "\n")


def _beside(small: torch.Tensor, large: torch.Tensor) -> dict[str, Any]:
    own = large[:, : small.shape[1]]
    return {
        "difference": float((small - own).abs().max()),
        "largest": float(small.abs().max()),
        "same": bool((small.argmax(-1) == large.argmax(-1)).all()),
        "others": float(large[:, small.shape[1] :].max()),
    }


def _kinds() -> dict[str, float]:
    """How far FP8 and INT4 are off, of the largest weight of a row or group."""
    weight = torch.randn(16, 256, generator=torch.Generator().manual_seed(2))
    kept = dict(quantize.quantized("fp8", "a_proj.weight", weight))
    back = kept["a_proj.weight"].float() * kept["a_proj.weight_scale"]
    held = dict(quantize.quantized("int4", "a_proj.weight", weight))
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    numbers = (held["a_proj.weight_packed"][..., None] >> shifts & 15) - 8
    four = numbers.reshape(16, 2, 128) * held["a_proj.weight_scale"][..., None]
    most = weight.reshape(16, 2, 128).abs().amax(-1, keepdim=True)
    return {
        "fp8": float(((back - weight).abs() / weight.abs().amax(1, keepdim=True)).max()),
        "int4": float(((four - weight.reshape(16, 2, 128)).abs() / most).max()),
    }


def _experts(folder: Path) -> dict[str, float]:
    small = Small(folder)
    dense = small["model.layers.1.mlp.up_proj.weight"]
    name = "model.layers.1.block_sparse_moe.experts.{}.w3.weight"
    told = {}
    for spread in (0.0, 0.1):
        made = dict(mixture.weights(small, Mixture(spread=spread), "cpu", torch.float32))
        apart = [made[name.format(e)] - dense for e in range(8)]
        told[f"spread {spread}"] = float(torch.stack(apart).std() / dense.std())
    return told


if __name__ == "__main__":
    main(Path(sys.argv[1]))
