"""Mixtral with the states that an EAGLE-3 head reads. For eager runs: it is not compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.models.interfaces import EagleModelMixin, SupportsEagle3
from vllm.model_executor.models.mixtral import MixtralForCausalLM, MixtralModel


class UpcycledModel(EagleModelMixin, MixtralModel):  # type: ignore[misc]
    """Keeps what enters the layers that are asked for."""

    def forward(
        self,
        input_ids: Any,
        positions: Any,
        intermediate_tensors: Any = None,
        inputs_embeds: Any = None,
    ) -> Any:
        """States, and those kept, if any."""
        hidden = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        residual = None
        kept: list[Any] = self._maybe_add_hidden_state([], 0, hidden, residual)
        for n, layer in enumerate(self.layers, start=1):
            hidden, residual = layer(positions, hidden, residual)
            self._maybe_add_hidden_state(kept, n, hidden, residual)
        hidden, _ = self.norm(hidden, residual)
        return (hidden, kept) if kept else hidden


class UpcycledForCausalLM(MixtralForCausalLM, SupportsEagle3):  # type: ignore[misc]
    """The whole model."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.model.__class__ = UpcycledModel
        noise = float(getattr(vllm_config.model_config.hf_config, "router_noise", 0.0))
        for layer in self.model.layers if noise else ():
            layer.block_sparse_moe.gate.register_forward_hook(_noisy(noise))


def _noisy(deviation: float) -> Callable[[Any, Any, Any], Any]:
    """A router whose logits are off by chance, in each pass by something else."""

    def add(_module: Any, _given: Any, made: Any) -> Any:
        logits, *more = made
        return logits + deviation * torch.randn_like(logits), *more

    return add
