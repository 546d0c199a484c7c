"""A model's shape as its config.json tells it: parameters, weight bytes, KV bytes per token.

Linear layers are quantized, embeddings and the head are not (llm-compressor's and AutoAWQ's
default, and MXFP4's); norms are left out, they are a millionth of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BYTES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "awq": 0.5 + 2.5 / 128,
    "gptq": 0.5 + 2.5 / 128,
    "mxfp4": 0.5 + 1 / 32,
}
"""Bytes a quantized weight takes, scales and zero points of groups of 128 (32 for MXFP4) in it."""
KV_BYTES: Mapping[str, int] = {"auto": 2, "bfloat16": 2, "float16": 2}
"""Bytes of one cached number; every FP8 dtype takes one."""
_MXFP4_PAD = 256
"""The kernels pad an expert's width up to this: vllm#33155 loads 64.4 GiB, vllm#23278 66.0 GiB of
gpt-oss-120b, whose checkpoint is 60.8."""


class ShapeError(ValueError):
    """The configuration lacks what a size cannot be told without."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers that sizes depend on."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Width of the dense MLP, or of one expert."""
    vocab: int
    max_positions: int | None
    experts: int = 0
    active_experts: int = 0
    shared_intermediate: int = 0
    sliding_layers: int = 0
    """Layers that see a window only: their cache does not grow with the text."""
    window: int = 0
    tied: bool = False
    quantization: str = "bf16"
    attention_bias: bool = False

    @property
    def moe(self) -> bool:
        """Whether it is a mixture of experts."""
        return self.experts > 0

    @property
    def attention_params(self) -> int:
        """Of all layers."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.layers * (self.hidden * (2 * q + 2 * kv))

    @property
    def _expert_params(self) -> int:
        return 3 * self.hidden * self.intermediate

    @property
    def mlp_params(self) -> int:
        """Of all layers, every expert."""
        shared = 3 * self.hidden * self.shared_intermediate
        one = self.experts * self._expert_params if self.moe else self._expert_params
        return self.layers * (one + shared)

    @property
    def router_params(self) -> int:
        """What chooses the experts; not quantized."""
        return self.layers * self.hidden * self.experts

    @property
    def embedding_params(self) -> int:
        """The input embedding."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All, norms and biases aside."""
        head = 0 if self.tied else self.embedding_params
        return (
            self.attention_params
            + self.mlp_params
            + self.router_params
            + self.embedding_params
            + head
        )

    def active_mlp_params(self, tokens: float) -> float:
        """Weights of the MLPs that a step over so many tokens must read: experts are shared.

        With e experts and k chosen a token at random, a share 1 - (1 - k/e)^tokens is touched.
        """
        if not self.moe:
            return float(self.mlp_params)
        missed: float = (1 - self.active_experts / self.experts) ** tokens
        shared = self.layers * 3 * self.hidden * self.shared_intermediate
        return (self.mlp_params - shared) * (1 - missed) + shared

    @property
    def params_per_token(self) -> int:
        """Weights that one token is multiplied with, the head in it."""
        mlp = self.layers * self._expert_params * (self.active_experts if self.moe else 1)
        shared = self.layers * 3 * self.hidden * self.shared_intermediate
        return self.attention_params + mlp + shared + self.router_params + self.embedding_params

    def linear_bytes(self) -> tuple[float, float]:
        """Bytes a weight takes in attention and in the MLPs."""
        each = BYTES[self.quantization]
        return (BYTES["bf16"] if self.quantization == "mxfp4" else each), each

    def weight_bytes(self, tensor_parallel: int = 1) -> float:
        """Bytes of weights on one GPU."""
        attention, mlp = self.linear_bytes()
        shared_kv = max(1, tensor_parallel // self.kv_heads)
        kv = 2 * self.layers * self.hidden * self.kv_heads * self.head_dim
        body = (self.attention_params + kv * (shared_kv - 1)) * attention
        body += self.mlp_params * mlp * self._padding(tensor_parallel)
        ends = self.embedding_params * (1 if self.tied else 2) * BYTES["bf16"]
        return (body + ends) / tensor_parallel + self.router_params * BYTES["bf16"]

    def _padding(self, tensor_parallel: int) -> float:
        if self.quantization != "mxfp4":
            return 1.0
        own = self.intermediate / tensor_parallel
        return float(-(-own // _MXFP4_PAD) * _MXFP4_PAD / own)

    def step_bytes(self, tokens: float) -> float:
        """Bytes of weights that a step over so many tokens reads, on all GPUs together."""
        attention, mlp = self.linear_bytes()
        return (
            self.attention_params * attention
            + self.active_mlp_params(tokens) * mlp
            + (self.router_params + self.embedding_params) * BYTES["bf16"]
        )

    def kv_bytes_per_token(self, tensor_parallel: int, kv_dtype: str) -> int:
        """Bytes that one more token takes on one GPU, in the layers whose cache grows."""
        return (self.layers - self.sliding_layers) * self.kv_layer_bytes(tensor_parallel, kv_dtype)

    def kv_window_bytes(self, tensor_parallel: int, kv_dtype: str, block: int = 16) -> int:
        """Bytes that one request takes on one GPU in the layers that see a window only."""
        if not self.sliding_layers:
            return 0
        tokens = (-(-self.window // block) + 1) * block
        return self.sliding_layers * tokens * self.kv_layer_bytes(tensor_parallel, kv_dtype)

    def kv_layer_bytes(self, tensor_parallel: int, kv_dtype: str) -> int:
        """Bytes of one token in one layer on one GPU; KV heads that do not divide are copied."""
        heads = max(1, self.kv_heads // tensor_parallel)
        return 2 * heads * self.head_dim * KV_BYTES.get(kv_dtype, 1)


def shape_of(config: Mapping[str, Any], quantization: str | None = None) -> Shape:
    """The shape a config.json describes; text models inside multimodal ones too.

    Raises:
        ShapeError: what is missing.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {**config, **text}
    hidden, heads = _need(config, "hidden_size"), _need(config, "num_attention_heads")
    layers = _need(config, "num_hidden_layers")
    experts = _int(config, "num_experts", "num_local_experts", "n_routed_experts")
    per_expert = _int(config, "moe_intermediate_size") if experts else 0
    kinds = config.get("layer_types")
    sliding = sum(kind == "sliding_attention" for kind in kinds) if isinstance(kinds, list) else 0
    architectures = config.get("architectures") or ["unknown"]
    return Shape(
        architecture=str(architectures[0]),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_int(config, "num_key_value_heads") or heads,
        head_dim=_int(config, "head_dim") or hidden // heads,
        intermediate=per_expert or _need(config, "intermediate_size"),
        vocab=_need(config, "vocab_size"),
        max_positions=_int(config, "max_position_embeddings") or None,
        experts=experts,
        active_experts=_int(config, "num_experts_per_tok", "experts_per_token"),
        shared_intermediate=_int(config, "shared_expert_intermediate_size"),
        sliding_layers=sliding,
        window=_int(config, "sliding_window") if sliding else 0,
        tied=bool(config.get("tie_word_embeddings", False)),
        quantization=quantization or quantization_of(config),
        attention_bias=bool(config.get("attention_bias", False)),
    )


def quantization_of(config: Mapping[str, Any]) -> str:
    """How a checkpoint's weights are stored, in the words of `BYTES`."""
    told = config.get("quantization_config")
    if not isinstance(told, Mapping):
        return "bf16"
    method = str(told.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _compressed(told)
    if method in BYTES:
        return method
    return "fp8" if "fp8" in method else "bf16"


def _compressed(told: Mapping[str, Any]) -> str:
    groups = told.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return "bf16"
    bits, kind = weights.get("num_bits"), weights.get("type")
    return {(8, "float"): "fp8", (8, "int"): "int8", (4, "int"): "gptq"}.get((bits, kind), "bf16")  # type: ignore[arg-type]


def _need(config: Mapping[str, Any], key: str) -> int:
    value = _int(config, key)
    if value <= 0:
        raise ShapeError(f"config.json has no usable {key}")
    return value


def _int(config: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0
