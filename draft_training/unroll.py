"""The forward pass of training: what the head would draft, step after step, from every position.

EAGLE-3's training-time test (arXiv:2503.01840, §3.2) and P-EAGLE's parallel depths. Documents are
rows of a padded grid, so step k attends to the causal part of step 0 and to k diagonals; that
needs neither a compiled kernel nor a mask over the whole pack.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from draft_training.job import Job
from draft_training.target import Batch, Target


class Hits(NamedTuple):
    """[steps, N]: whether step k, begun k tokens before, has the token after each learnt one."""

    greedy: torch.Tensor
    """As the target would take it greedily."""
    text: torch.Tensor
    """As it stands in the answer."""


class Unroll:
    """Loss and hits of a head."""

    def __init__(self, job: Job, head: Any, target: Target) -> None:
        from speculators.losses.utils import resolve_loss_config

        self.head, self.target, self.wanted = head, target, job.training
        self.parallel = job.method == "p-eagle"
        kind = "fused" if self.wanted.fused_loss else "eager"
        self.losses = resolve_loss_config("kl_div", kind)
        layer = head.config.transformer_layer_config
        self.heads, self.kv_heads = layer.num_attention_heads, layer.num_key_value_heads
        self.width = layer.head_dim

    def __call__(self, batch: Batch, *, hits: bool = False) -> tuple[torch.Tensor, Hits | None]:
        """The loss; what the head had right, if asked for."""
        head = self.head
        count, length = batch.shape
        teacher, taken = self._teacher(batch, hits)
        fused = head.fc(batch.states)
        position = torch.arange(1, length + 1, device=fused.device)[None]
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        hidden, loss, top = fused, torch.zeros((), device=fused.device), []
        for step in range(self.wanted.unroll):
            tokens, hidden = self._inputs(batch, step, fused, hidden)
            hidden = self._layer(tokens, hidden, position + step, keys, values)
            chosen = hidden.reshape(count * length, -1)[batch.learnt - step]
            logits = head.lm_head(head.norm(chosen))[None]
            for function, weight in self.losses.values():
                loss = loss + weight * self.wanted.decay**step * function(logits, teacher).mean()
            if hits:
                best = logits[0].argmax(-1)
                top.append(best + head.d2t[best])
        if taken is None:
            return loss, None
        drafted = torch.stack(top)
        follows = batch.tokens.flatten()[batch.learnt + 1]
        return loss, Hits(drafted == taken, drafted == follows)

    def _teacher(self, batch: Batch, hits: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(the target's logits over the draft vocabulary [1, N, V'], its greedy choice [N])."""
        head, target = self.head, self.target.model
        with torch.no_grad():
            last = head.verifier_norm(batch.last.flatten(0, 1)[batch.learnt])
            taken = target.lm_head(last.to(target.dtype)).argmax(-1) if hits else None
            return head.verifier_lm_head(last)[None], taken

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
