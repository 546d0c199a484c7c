"""Rules about sizes: hidden states, vocabularies, aux layers, positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speccli.core.engines.vllm_pairs import extra_slots
from speccli.core.preflight.base import Pair, Verdict

_DEFAULT_AUX = 3
_FEW_LAYERS = 7
"""Below this the default aux layers (2, L/2, L-3) coincide."""
_FAR_BEYOND = 4
"""max_model_len over the draft's positions from which little is accepted (sglang#6783)."""


def hidden(pair: Pair) -> Iterator[Verdict]:
    """P-HIDDEN: a head reads the target's hidden states, so its input must be of their width."""
    if not pair.eagle or pair.draft is None:
        return
    wanted = pair.target.number("hidden_size")
    told = pair.draft.number("target_hidden_size")
    key = "target_hidden_size" if told else "hidden_size"
    got = told or pair.draft.number("hidden_size")
    if wanted and got and wanted != got:
        yield Verdict(
            "P-HIDDEN",
            "critical",
            f"target hidden_size {wanted}, draft {key} {got}",
            "the head was made for another target",
            f"use a head trained on hidden states of {wanted}, or the target it was made for",
            "vllm#18906",
        )


def vocab(pair: Pair) -> Iterator[Verdict]:
    """P-VOCAB: both must count tokens alike."""
    if pair.draft is None or pair.extra.get("use_heterogeneous_vocab"):
        return
    wanted, got = pair.target.number("vocab_size"), pair.draft.number("vocab_size")
    if wanted and got and wanted != got:
        yield Verdict(
            "P-VOCAB",
            "critical",
            f"target vocab_size {wanted}, draft {got}",
            "the draft's token ids mean other tokens",
            "use a draft with the target's tokenizer"
            + (
                ", or use_heterogeneous_vocab (vLLM 0.25, greedy)"
                if pair.method == "draft_model"
                else ""
            ),
            "vllm#18906",
        )


def d2t(pair: Pair) -> Iterator[Verdict]:
    """P-D2T: a smaller draft vocabulary needs the map back to the target's ids."""
    draft = pair.draft
    if draft is None or not pair.eagle or not draft.complete or draft.weights is None:
        return
    small, full = draft.number("draft_vocab_size"), draft.number("vocab_size")
    full = full or pair.target.number("vocab_size")
    if not small or not full or small >= full or _carries(draft.weights, "d2t"):
        return
    where = "no d2t among its weights" if draft.weights else "no d2t declared, no weights beside it"
    yield Verdict(
        "P-D2T",
        "critical",
        f"draft_vocab_size {small} of {full}, {where}",
        "without d2t draft id i is taken for target id i: nothing is accepted",
        "put the weights (or model.safetensors.index.json) beside config.json, or export d2t",
        "vllm#18906",
    )


def _carries(names: frozenset[str], weight: str) -> bool:
    return any(name == weight or name.endswith(f".{weight}") for name in names)


def aux_layers(pair: Pair) -> Iterator[Verdict]:
    """P-AUX: the layers whose states the head reads must be there, and as many as it reads."""
    if not pair.eagle or pair.draft is None:
        return
    layers = pair.target.number("num_hidden_layers")
    ids, where = _aux_ids(pair)
    if layers is None:
        return
    if ids is None:
        if pair.draft.complete and layers < _FEW_LAYERS:
            yield Verdict(
                "P-AUX",
                "critical",
                f"target num_hidden_layers {layers}, no aux layer ids",
                "vLLM's default layers (2, L/2, L-3) coincide in so shallow a target",
                "write eagle_aux_hidden_state_layer_ids into the draft's config.json",
            )
        return
    outside = [each for each in ids if not 0 <= each <= layers]
    if outside:
        yield Verdict(
            "P-AUX",
            "critical",
            f"{where} {ids}, target num_hidden_layers {layers}: {outside} out of range",
            "the head was trained on a deeper target",
            f"use a head trained on this target, or ids from 0 to {layers}",
            "speculators#1065",
        )
    elif len(ids) != _aux_count(pair, len(ids)):
        yield Verdict(
            "P-AUX",
            "warning",
            f"{where} has {len(ids)} ids, vLLM sizes fc for {_aux_count(pair, len(ids))}",
            "vLLM sizes fc from num_aux_hidden_states, not from a list at the top level",
            "write num_aux_hidden_states into the draft's config.json",
            "speculators#1065",
        )


def _aux_ids(pair: Pair) -> tuple[list[int] | None, str]:
    assert pair.draft is not None
    config, key = pair.draft.config, "eagle_aux_hidden_state_layer_ids"
    inner = config.get("eagle_config")
    nested: Any = inner if isinstance(inner, dict) else {}
    for ids, where in ((config.get(key), key), (nested.get(key), f"eagle_config.{key}")):
        if isinstance(ids, list) and all(isinstance(each, int) for each in ids):
            return ids, where
    return None, ""


def _aux_count(pair: Pair, told: int) -> int:
    """How many states fc is made for; Speculators' and nested lists count themselves."""
    assert pair.draft is not None
    config = pair.draft.config
    if "speculators_model_type" in config or isinstance(config.get("eagle_config"), dict):
        return told
    return pair.draft.number("num_aux_hidden_states") or _DEFAULT_AUX


def aux_reader(pair: Pair) -> Iterator[Verdict]:
    """P-AUX-NESTED: the V2 runner does not read ids that stand inside eagle_config."""
    if not pair.eagle or pair.draft is None or pair.version < (0, 25, 0):
        return
    ids, where = _aux_ids(pair)
    layers = pair.target.number("num_hidden_layers") or 0
    default = [2, layers // 2, layers - 3]
    if ids and where.startswith("eagle_config") and ids != default and pair.method != "p-eagle":
        yield Verdict(
            "P-AUX-NESTED",
            "warning",
            f"{where} {ids}; vLLM's default here is {default}",
            "vLLM's V2 runner reads the ids at the top level only (read, not run)",
            "copy the list to the top level of config.json as eagle_aux_hidden_state_layer_ids",
        )


def positions(pair: Pair) -> Iterator[Verdict]:
    """P-LENGTH: a draft is as good as the lengths it was trained at."""
    if pair.draft is None or pair.max_model_len is None:
        return
    most = pair.draft.number("max_position_embeddings")
    if most is None or most >= pair.max_model_len:
        return
    far = pair.max_model_len >= most * _FAR_BEYOND
    beyond = (
        "vLLM stretches the head's positions, but it was not trained there: acceptance length "
        "2.3 at 2k fell to 1.1 at 20k in one report"
        if pair.eagle
        else "vLLM cuts the draft's length to its own: longer requests are not drafted for"
    )
    yield Verdict(
        "P-LENGTH",
        "critical" if far and pair.eagle else "warning",
        f"draft max_position_embeddings {most}, max_model_len {pair.max_model_len}",
        beyond,
        f"serve at most {most * (_FAR_BEYOND if pair.eagle else 1)} tokens with it, "
        "or use a head trained for long contexts",
        "sglang#6783, vllm#23072",
    )


def slots(pair: Pair) -> Iterator[Verdict]:
    """P-SLOTS, P-LORA-SLOTS: a step must have room for every request's drafts."""
    tokens, seqs = pair.max_num_batched_tokens, pair.max_num_seqs
    if tokens is None or seqs is None:
        return
    extra = extra_slots(pair.method, pair.k) * seqs
    if tokens <= extra:
        yield Verdict(
            "P-SLOTS",
            "critical",
            f"max_num_batched_tokens {tokens}, {extra} slots needed for drafting",
            "vLLM refuses to start",
            f"set max_num_batched_tokens above {extra}, or fewer max_num_seqs",
        )
    if pair.lora and pair.method != "none" and tokens < seqs * (pair.k + 1):
        yield Verdict(
            "P-LORA-SLOTS",
            "critical",
            f"max_num_batched_tokens {tokens} < {seqs} x (K + 1)",
            "with LoRA vLLM wants room for every request's whole step",
            f"set max_num_batched_tokens to at least {seqs * (pair.k + 1)}",
        )
