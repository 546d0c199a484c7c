"""The head: a Speculators model, its draft vocabulary and its first weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from draft_training import given
from draft_training.corpus import Corpus
from draft_training.events import Failed, tell
from draft_training.job import Job
from draft_training.target import Batch, Target

_MIX = (0.2, 0.3, 1.0)
"""Share of each aux state in the first fused state: the last is nearest to what is predicted."""
_SCALE = 10.0
"""Of the first fused state; the norm after it takes it out again."""


def build(job: Job, target: Target, corpus: Corpus, held_out: int, first: Batch) -> Any:
    """The head to be trained, in float32 on the target's device."""
    kinds = _classes()
    wanted = job.training
    begun = None if job.init is None else _given(job, target, corpus, held_out)
    if begun is None:
        d2t, t2d = _draft_vocabulary(job, corpus, held_out, target.config.vocab_size)
    else:
        d2t, t2d = begun.weights["d2t"], begun.weights["t2d"]
        _covered(corpus, held_out, t2d)
    head = kinds[job.method].from_training_args(
        _layer_config(target.config, begun.layer if begun else {}),
        t2d=t2d,
        d2t=d2t,
        draft_vocab_size=len(d2t),
        norm_before_residual=begun.norm_before_residual if begun else True,
        target_layer_ids=list(target.aux),
        verifier_name_or_path=job.target,
        draft_attn_impl="eager",
        ttt_steps=wanted.unroll,
        ttt_step_loss_decay=wanted.decay,
        num_depths=wanted.unroll,
        loss_fn="kl_div",
        loss_implementation="fused" if wanted.fused_loss else "eager",
        mask_token_id=wanted.mask_token,
    )
    head.config.embed_requires_grad = False
    head.own_embeddings = False
    if begun is None:
        _start(head, first, len(target.aux))
    else:
        _load(head, begun.weights, job.init)
    if job.method == "p-eagle" and not (begun and "mask_hidden" in begun.weights):
        with torch.no_grad():
            ordinary = first.states.flatten(0, 1)[first.learnt].float().mean(0)
            head.mask_hidden.copy_(ordinary.cpu().view_as(head.mask_hidden))
    head = head.to(target.device).float()
    head.embed_tokens.weight.requires_grad_(False)
    # Speculators keeps the target's rows; training them raised acceptance of a small target.
    head.lm_head.weight.requires_grad_(True)
    return head


def _given(job: Job, target: Target, corpus: Corpus, held_out: int) -> given.Given:
    """The head to go on from; with a larger draft vocabulary, if one is asked for."""
    assert job.init is not None
    begun = given.read(job.init, target.config)
    often = torch.from_numpy(corpus.frequencies(held_out, target.config.vocab_size))
    rows = target.model.lm_head.weight.detach().cpu()
    return replace(
        begun, weights=given.widened(begun.weights, often, job.training.draft_vocab, rows)
    )


def _classes() -> dict[str, Any]:
    try:
        from speculators.models.eagle3.core import Eagle3DraftModel
        from speculators.models.peagle.core import PEagleDraftModel
    except ModuleNotFoundError as error:
        missing = error.name or "speculators"
        raise Failed(
            "not-installed",
            f"Speculators is not whole in this Python: no module {missing!r}",
            "pip install 'speculators>=0.9'",
        ) from error
    return {"eagle3": Eagle3DraftModel, "p-eagle": PEagleDraftModel}


def _draft_vocabulary(
    job: Job, corpus: Corpus, held_out: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(draft id → offset to the target's id, whether a target's id is in it)."""
    from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

    often = corpus.frequencies(held_out, vocabulary)
    size = min(job.training.draft_vocab, vocabulary)
    counted = {int(i): int(often[i]) for i in often.nonzero()[0]}
    d2t, t2d = build_vocab_mappings_from_distribution(counted, size, vocabulary)
    _covered(corpus, held_out, t2d)
    return d2t, t2d


def _layer_config(target: Any, own: Mapping[str, Any]) -> Any:
    """The target's layer, but for what a head of its own `own` says."""
    from transformers import LlamaConfig

    left = ("architectures", "dtype", "_name_or_path", "model_type", "transformers_version")
    kept = {k: v for k, v in target.to_dict().items() if k not in left}
    if {"rope_theta", "rope_scaling", "rope_parameters"} & set(own):
        for name in ("rope_theta", "rope_scaling", "rope_parameters"):
            kept.pop(name, None)
    if "num_attention_heads" in own and "head_dim" not in own:
        kept["head_dim"] = target.hidden_size // own["num_attention_heads"]
    made = LlamaConfig(**{**kept, **own})
    made.num_hidden_layers, made.tie_word_embeddings = 1, False
    return made


def _covered(corpus: Corpus, held_out: int, t2d: torch.Tensor) -> None:
    """Says what share of the answers the draft vocabulary holds: it caps acceptance."""
    often = corpus.frequencies(held_out, len(t2d))
    share = float(often[t2d.numpy()].sum() / often.sum())
    tell("said", stage="train", draft_vocabulary=int(t2d.sum()), covers=round(share, 4))


def _load(head: Any, weights: Mapping[str, torch.Tensor], folder: Path | None) -> None:
    """Every tensor of a head that was given, and none left as it was made.

    Raises:
        Failed: one is of another shape, is missing, or has no place.
    """
    own = head.state_dict()
    fix = "start from an EAGLE-3 head of this very target"
    for name, tensor in weights.items():
        if name not in own:
            raise Failed("bad-init", f"{folder}: no place for its tensor {name}", fix)
        if own[name].shape != tensor.shape:
            was, now = tuple(tensor.shape), tuple(own[name].shape)
            raise Failed(
                "tokenizer-mismatch" if name in ("t2d", "embed_tokens.weight") else "bad-init",
                f"{folder}: {name} is {was}, for this target it is {now}",
                fix,
            )
    made = ("embed_tokens.", "verifier_", "mask_hidden")
    missing = [n for n in own if n not in weights and not n.startswith(made)]
    if missing:
        raise Failed("bad-init", f"{folder}: no tensor {missing[0]}", fix)
    embeddings = weights.get("embed_tokens.weight")
    if embeddings is not None:
        shared = own["embed_tokens.weight"].to(embeddings.dtype)
        head.own_embeddings = not torch.equal(shared.cpu(), embeddings)
    head.load_state_dict(dict(weights), strict=False)


def _start(head: Any, first: Batch, aux: int) -> None:
    """Aux states brought to one scale, the target's own norm, and a residual that leads."""
    size = head.fc.weight.shape[0]
    learnt = first.states.flatten(0, 1)[first.learnt].float()
    with torch.no_grad():
        weight = head.fc.weight
        torch.nn.init.normal_(weight, std=0.5 / math.sqrt(size))
        for at, state in enumerate(learnt.chunk(aux, -1)):
            columns = slice(at * size, (at + 1) * size)
            mixed = _MIX[min(at, len(_MIX) - 1)]
            weight[:, columns] += torch.eye(size) * mixed
            weight[:, columns] *= _SCALE / float(state.pow(2).mean().sqrt())
        head.norm.weight.copy_(head.verifier_norm.weight)
        head.layers[0].self_attn.o_proj.weight *= 0.5
        head.layers[0].mlp.down_proj.weight *= 0.5
