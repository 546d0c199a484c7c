"""The head: a Speculators model, its draft vocabulary and its first weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

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
    given: dict[str, torch.Tensor] = {}
    if job.init is not None:
        given = _weights(job.init)
        d2t, t2d = given["d2t"], given["t2d"].bool()
    else:
        d2t, t2d = _draft_vocabulary(job, corpus, held_out, target.config.vocab_size)
    head = kinds[job.method].from_training_args(
        _layer_config(target.config),
        t2d=t2d,
        d2t=d2t,
        draft_vocab_size=len(d2t),
        norm_before_residual=True,
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
    if given:
        _load(head, given, job.init)
    else:
        _start(head, first, len(target.aux))
    if job.method == "p-eagle" and "mask_hidden" not in given:
        with torch.no_grad():
            ordinary = first.states.flatten(0, 1)[first.learnt].float().mean(0)
            head.mask_hidden.copy_(ordinary.cpu().view_as(head.mask_hidden))
    head = head.to(target.device).float()
    head.embed_tokens.weight.requires_grad_(False)
    # Speculators keeps the target's rows; training them raised acceptance of a small target.
    head.lm_head.weight.requires_grad_(True)
    return head


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
    share = float(often[t2d.numpy()].sum() / often.sum())
    tell("said", stage="train", draft_vocabulary=size, covers=round(share, 4))
    return d2t, t2d


def _layer_config(target: Any) -> Any:
    from transformers import LlamaConfig

    own = ("architectures", "dtype", "_name_or_path", "model_type", "transformers_version")
    made = LlamaConfig(**{k: v for k, v in target.to_dict().items() if k not in own})
    made.num_hidden_layers, made.tie_word_embeddings = 1, False
    return made


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    try:
        return dict(load_file(str(folder / "model.safetensors")))
    except OSError as error:
        raise Failed("bad-init", f"{folder}: {error}", "give a Speculators folder") from error


def _load(head: Any, given: dict[str, torch.Tensor], folder: Path | None) -> None:
    own = head.state_dict()
    for name, tensor in given.items():
        if name in own and own[name].shape != tensor.shape:
            was, now = tuple(tensor.shape), tuple(own[name].shape)
            raise Failed(
                "tokenizer-mismatch" if name in ("t2d", "lm_head.weight") else "bad-init",
                f"{folder}: {name} is {was}, for this target it is {now}",
                "start from a head of this very target",
            )
    head.load_state_dict(given, strict=False)


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
