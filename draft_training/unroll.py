"""The forward pass of training: what the head would draft, step after step, from every position.

EAGLE-3's training-time test (arXiv:2503.01840, §3.2) and P-EAGLE's parallel depths. Documents are
rows of a padded grid, so step k attends to the causal part of step 0 and to k diagonals; that
needs neither a compiled kernel nor a mask over the whole pack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from draft_training.job import Job
from draft_training.target import Batch, Target


class Unroll:
    """What a head would draft: its loss, and what of it is right."""

    def __init__(self, job: Job, head: Any, target: Target) -> None:
        from speculators.losses.utils import resolve_loss_config

        self.head, self.target, self.wanted = head, target, job.training
        self.parallel = job.method == "p-eagle"
        kind = "fused" if self.wanted.fused_loss else "eager"
        self.losses = resolve_loss_config("kl_div", kind)
        layer = head.config.transformer_layer_config
        self.heads, self.kv_heads = layer.num_attention_heads, layer.num_key_value_heads
        self.width = layer.head_dim

    def __call__(self, batch: Batch) -> torch.Tensor:
        """The loss."""
        with torch.no_grad():
            teacher = self.head.verifier_lm_head(self._last(batch))[None]
        loss = torch.zeros((), device=teacher.device)
        for step, logits in enumerate(self._logits(batch)):
            for function, weight in self.losses.values():
                part = function(logits[None], teacher).mean()
                loss = loss + weight * self.wanted.decay**step * part
        return loss

    def right(self, batch: Batch, tokens: torch.Tensor) -> torch.Tensor:
        """[steps, N]: whether step k, begun k tokens before, says the token after each learnt one.

        `tokens` is [N], by `greedy` or `text`.
        """
        d2t = self.head.d2t
        best = (logits.argmax(-1) for logits in self._logits(batch))
        return torch.stack([ids + d2t[ids] == tokens for ids in best])

    def greedy(self, batch: Batch) -> torch.Tensor:
        """[N]: what the target would say after each learnt token; its whole vocabulary is asked."""
        target = self.target.model
        return target.lm_head(self._last(batch).to(target.dtype)).argmax(-1)

    def text(self, batch: Batch) -> torch.Tensor:
        """[N]: what stands in the answer after each learnt token."""
        return batch.tokens.flatten()[batch.learnt + 1]

    def _last(self, batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            return self.head.verifier_norm(batch.last.flatten(0, 1)[batch.learnt])

    def _logits(self, batch: Batch) -> Iterator[torch.Tensor]:
        """[N, V'] over the draft vocabulary, a step after the other."""
        head = self.head
        count, length = batch.shape
        fused = head.fc(batch.states)
        position = torch.arange(1, length + 1, device=fused.device)[None]
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        hidden = fused
        for step in range(self.wanted.unroll):
            tokens, hidden = self._inputs(batch, step, fused, hidden)
            hidden = self._layer(tokens, hidden, position + step, keys, values)
            chosen = hidden.reshape(count * length, -1)[batch.learnt - step]
            yield head.lm_head(head.norm(chosen))

    def _inputs(
        self, batch: Batch, step: int, fused: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if step == 0:
            return batch.tokens, hidden
        if self.parallel:
            masked = self.head.fc(self.head.mask_hidden.to(fused.dtype)).expand_as(fused)
            return torch.full_like(batch.tokens, self.wanted.mask_token), masked
        return functional.pad(batch.tokens[:, step:], (0, step)), hidden

    def _layer(
        self,
        tokens: torch.Tensor,
        hidden: torch.Tensor,
        position: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        layer = self.head.layers[0]
        attention = layer.self_attn
        with torch.no_grad():
            embedded = self.head.embed_tokens(tokens)
        normed = layer.hidden_norm(hidden)
        residual = normed if self.head.config.norm_before_residual else hidden
        joined = torch.cat([layer.input_layernorm(embedded), normed], -1)
        query = self._split(attention.q_proj(joined), self.heads)
        key = self._split(attention.k_proj(joined), self.kv_heads)
        cos, sin = self.head.rotary_emb(query, position)
        query, key = apply_rotary_pos_emb(query, key, cos.to(query.dtype), sin.to(query.dtype))
        keys.append(key)
        values.append(self._split(attention.v_proj(joined), self.kv_heads))
        mixed = self._attend(query, keys, values).transpose(1, 2).flatten(2)
        residual = residual + attention.o_proj(mixed)
        out: torch.Tensor = residual + layer.mlp(layer.post_attention_layernorm(residual))
        return out

    def _split(self, projected: torch.Tensor, heads: int) -> torch.Tensor:
        count, length, _ = projected.shape
        return projected.view(count, length, heads, self.width).transpose(1, 2)

    def _attend(
        self, query: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
    ) -> torch.Tensor:
        """Causal over step 0, and over the same position of each later step.

        `query` is [B, heads, S, D]; `keys` and `values` hold [B, kv heads, S, D] for each step.
        """
        if len(keys) == 1:
            return functional.scaled_dot_product_attention(
                query, keys[0], values[0], is_causal=True, enable_gqa=True
            )
        count, _, length, width = query.shape
        group = self.heads // self.kv_heads
        query = query * width**-0.5
        folded = query.reshape(count, self.kv_heads, group * length, width)
        scores = (folded @ keys[0].transpose(-1, -2)).view(
            count, self.kv_heads, group, length, length
        )
        ahead = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
        grouped = query.view(count, self.kv_heads, group, length, width)
        later = [(grouped * key[:, :, None]).sum(-1, keepdim=True) for key in keys[1:]]
        every = torch.cat([scores, *(one.to(scores.dtype) for one in later)], -1)
        # Sums are in float32 inside; outside, these [.., S, S] are most of what memory moves.
        with torch.autocast(query.device.type, enabled=False):
            share = torch.softmax(every, -1).to(values[0].dtype)
        causal = share[..., :length].reshape(count, self.kv_heads, group * length, length)
        out = (causal @ values[0]).view(count, self.kv_heads, group, length, width)
        for at, value in enumerate(values[1:]):
            out = out + share[..., length + at : length + at + 1] * value[:, :, None]
        return out.view(count, self.heads, length, width)
