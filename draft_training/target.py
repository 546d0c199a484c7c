"""The target in the same process: the hidden states of a batch, made as they are needed.

Nothing is stored: the states of 17 M tokens of a 135M model would be 80 GB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

from draft_training.corpus import Corpus
from draft_training.events import Failed


@dataclass(frozen=True)
class Batch:
    """One padded batch, shifted as Speculators shifts it: at t, what is known once t+1 is drawn."""

    states: torch.Tensor
    """[B, S, aux·H]: what enters the aux layers at t."""
    tokens: torch.Tensor
    """[B, S]: the token at t + 1."""
    last: torch.Tensor
    """[B, S, H]: the target's last hidden state at t + 1, before its norm."""
    learnt: torch.Tensor
    """[N]: flat positions whose token is in the answer and has one after it."""

    @property
    def shape(self) -> tuple[int, int]:
        """(documents, positions)."""
        return self.tokens.shape[0], self.tokens.shape[1]


class Target:
    """A causal language model whose layers are tapped."""

    def __init__(self, name: str, device: str, aux_layers: tuple[int, ...] | None) -> None:
        kind = torch.bfloat16 if device.startswith("cuda") else torch.float32
        self.device = device
        self.model = (
            AutoModelForCausalLM.from_pretrained(name, dtype=kind, attn_implementation="sdpa")
            .to(device)
            .eval()
        )
        self.config = self.model.config.get_text_config()
        body = getattr(self.model, "model", None)
        layers = getattr(body, "layers", None)
        if layers is None:
            raise Failed(
                "unsupported-target",
                f"{type(self.model).__name__} keeps its layers in a place that is not known",
                "train with Speculators' own trainer (--backend speculators)",
            )
        count = len(layers)
        self.aux = aux_layers or (2, count // 2, count - 3)
        if min(self.aux) < 1 or max(self.aux) > count:
            raise Failed(
                "bad-job", f"aux layers {self.aux} of a target with {count}", f"take 1..{count}"
            )
        self._body: Any = body
        self._count = count
        self._taps: dict[int, torch.Tensor] = {}
        for at in {*self.aux, count}:
            # What enters layer i is what leaves layer i - 1.
            layers[at - 1].register_forward_hook(self._tap(at))

    def _tap(self, at: int) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            self._taps[at] = output[0] if isinstance(output, tuple) else output

        return keep

    def batch(self, corpus: Corpus, pack: list[int]) -> Batch:
        """The batch of these documents."""
        documents = [corpus.documents[i] for i in pack]
        lengths = np.array([len(d) for d in documents])
        longest = int(lengths.max())
        ids = np.zeros((len(pack), longest), np.int64)
        for row, document in enumerate(documents):
            ids[row, : len(document)] = document
        prompts = np.array([corpus.prompt_lengths[i] for i in pack])[:, None]
        column = np.arange(1, longest)[None]
        learnt = (column >= prompts) & (column < lengths[:, None] - 1)
        on_device = self._there(ids)
        self._taps.clear()
        with torch.no_grad():
            # Padded on the right, and causal: no mask is needed.
            self._body(on_device, use_cache=False)
        return Batch(
            states=torch.cat([self._taps[i][:, :-1] for i in self.aux], -1),
            tokens=on_device[:, 1:],
            last=self._taps[self._count][:, 1:],
            learnt=self._there(np.flatnonzero(learnt)),
        )

    def _there(self, array: npt.NDArray[np.int64]) -> torch.Tensor:
        """On the device; from pinned memory, or the copy would wait for all that runs there."""
        held = torch.from_numpy(array)
        if self.device.startswith("cuda"):
            held = held.pin_memory()
        return held.to(self.device, non_blocking=True)
