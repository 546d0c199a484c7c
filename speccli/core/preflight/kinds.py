"""Rules about what a draft is: its class, its verifier, its masks, its method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speccli.core.engines import vllm_pairs as known
from speccli.core.engines.vllm_speculative import PARALLEL_SINCE, dotted
from speccli.core.preflight.base import Model, Pair, Verdict

MASKS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
_OF_ONE_KIND = {
    "eagle3": {"eagle3"},
    "peagle": {"p-eagle"},
    "dflash": {"dflash"},
    "dflash2": {"dflash"},
    "dspark": {"dspark"},
}
_LOOKUPS = frozenset({"ngram", "ngram_gpu", "suffix"})
_RECURRENT_LAYERS = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent"})
_RECURRENT_KEYS = ("hybrid_override_pattern", "linear_num_key_heads", "mamba_d_state")
"""What Nemotron-H, Qwen3-Next and 3.5, and Jamba's and Falcon-H1's kin have in config.json."""
_NEEDS_DRAFT = frozenset({"eagle", "eagle3", "p-eagle", "dflash", "draft_model", "medusa"})


def there(pair: Pair) -> Iterator[Verdict]:
    """P-UNREAD: methods that need a draft have one, and its configuration was read."""
    if pair.method not in _NEEDS_DRAFT:
        return
    if pair.draft is None:
        yield Verdict(
            "P-UNREAD",
            "warning",
            "nothing is known of the draft",
            "an unknown pair is not a good pair",
            "specctl draft check TARGET DRAFT, with the folders of both",
        )
    elif pair.draft.assumed:
        yield Verdict(
            "P-UNREAD",
            "warning",
            f"the config.json of {pair.draft.name} was not read, its shape is assumed",
            "sizes are estimates, and whether the two fit is not proven",
            f"specctl draft check {pair.target.name} FOLDER, with the draft downloaded there",
        )


def verifier(pair: Pair) -> Iterator[Verdict]:
    """P-VERIFIER: Speculators writes down what a head was trained on."""
    if pair.draft is None:
        return
    inner = pair.draft.config.get("speculators_config")
    told = inner.get("verifier") if isinstance(inner, Mapping) else None
    if not isinstance(told, Mapping):
        return
    classes = told.get("architectures")
    if not isinstance(classes, list) or not classes or not pair.target.architectures:
        return
    if not set(map(str, classes)) & set(pair.target.architectures):
        yield Verdict(
            "P-VERIFIER",
            "critical",
            f"verifier.architectures {classes}, target {list(pair.target.architectures)}",
            f"the head was trained on {told.get('name_or_path') or 'another model'}",
            "use a head trained on this target",
            "speculators#1065",
        )


def target_class(pair: Pair) -> Iterator[Verdict]:
    """P-TARGET: the target's class must hand out its hidden states."""
    if pair.method not in {"eagle3", "p-eagle", "dflash"} or not pair.target.architectures:
        return
    name = pair.target.architectures[0]
    since = known.EAGLE3_TARGETS.get(name)
    if since is None:
        yield Verdict(
            "P-TARGET",
            "warning",
            f"{name} is not among the classes known to take EAGLE-3",
            "vLLM says at load whether it does",
            "try it on one GPU before a rollout",
            "vllm#25134",
        )
    elif pair.version < since:
        yield Verdict(
            "P-TARGET",
            "critical",
            f"{name} takes EAGLE-3 from vLLM {dotted(since)}, this is {dotted(pair.version)}",
            '"Model does not support EAGLE3 interface", at load',
            f"use vLLM {dotted(since)} or newer",
            "vllm#25134, PR #26485",
        )


def draft_class(pair: Pair) -> Iterator[Verdict]:
    """P-CLASS: the head's class must be one that this vLLM has."""
    draft = pair.draft
    if not pair.eagle or draft is None or not draft.architectures:
        return
    name = draft.architectures[0]
    since = known.HEADS.get(name)
    if since is None:
        yield Verdict(
            "P-CLASS",
            "critical",
            f"draft architectures [{name}]",
            "vLLM has no head of this class",
            f"use one of {', '.join(sorted(known.HEADS)[:4])}, …, or convert it with Speculators",
            "AngelSlim#15",
        )
    elif pair.version < since:
        yield Verdict(
            "P-CLASS",
            "critical",
            f"{name} loads from vLLM {dotted(since)}, this is {dotted(pair.version)}",
            "vLLM has no head of this class yet",
            f"use vLLM {dotted(since)} or newer",
            "AngelSlim#15",
        )
    elif name in known.FOREIGN_HEADS and not _vllm_weights(draft):
        yield Verdict(
            "P-CLASS",
            "critical" if draft.complete else "warning",
            f"draft architectures [{name}], and no weights here that vLLM would load",
            "this is SGLang's name; the class exists in vLLM, but heads of other trainers under "
            "it carry other weight names",
            "put the weights (or model.safetensors.index.json) beside config.json: with fc, "
            "norm and midlayer or layers.0 among them it is accepted",
            "AngelSlim#15",
        )


def _vllm_weights(draft: Model) -> bool:
    """Whether the weights' names are those vLLM loads; unknown names get the benefit."""
    if draft.weights is None:
        return True
    names = {name.removeprefix("model.") for name in draft.weights}
    body = any(name.startswith(("midlayer.", "layers.0.")) for name in names)
    return body and "fc.weight" in names


def masks(pair: Pair) -> Iterator[Verdict]:
    """P-MASK, P-PARALLEL: parallel drafting and the head must both mean it."""
    draft = pair.draft
    if draft is None or pair.method not in {"eagle3", "p-eagle"} or not draft.complete:
        return
    text = draft.text
    mask = next((key for key in MASKS if isinstance(text.get(key), int)), None)
    hidden = (
        None if not draft.weights else "mask_hidden" in {n.split(".")[-1] for n in draft.weights}
    )
    made_for_it = draft.config.get("speculators_model_type") == "peagle" or hidden is True
    if pair.method == "p-eagle" and mask is None:
        yield Verdict(
            "P-MASK",
            "critical",
            f"parallel_drafting without any of {', '.join(MASKS)} in config.json",
            "this is an EAGLE-3 head, or its mask token was not exported",
            "use a P-EAGLE head, or drop parallel_drafting",
            "vllm PR#32887",
        )
    elif pair.method == "p-eagle" and hidden is False:
        yield Verdict(
            "P-MASK",
            "critical",
            f"{mask} is there, mask_hidden is not among the weights",
            "vLLM refuses it: mask_hidden not found in weights",
            "export mask_hidden with the head",
            "vllm PR#32887",
        )
    elif pair.method == "eagle3" and (made_for_it or mask is not None):
        yield Verdict(
            "P-PARALLEL",
            "critical",
            f"a P-EAGLE head ({mask or 'mask_hidden'}) without parallel_drafting",
            "vLLM only warns and drafts one by one: acceptance collapses",
            'method p-eagle (vLLM: "method": "eagle3", "parallel_drafting": true)',
            "vllm#42004",
        )


def method(pair: Pair) -> Iterator[Verdict]:
    """P-METHOD: the method is the one the draft was trained for."""
    draft = pair.draft
    if draft is None:
        return
    kind = str(draft.config.get("speculators_model_type") or "")
    allowed = _OF_ONE_KIND.get(kind)
    if allowed and pair.method not in {*allowed, "eagle3" if kind == "peagle" else kind}:
        yield Verdict(
            "P-METHOD",
            "critical",
            f"method {pair.method}, draft speculators_model_type {kind}",
            "the draft was trained for another method",
            f"use method {min(allowed)}",
        )
    if (
        pair.eagle
        and draft.complete
        and draft.number("num_hidden_layers") == pair.target.number("num_hidden_layers")
    ):
        yield Verdict(
            "P-METHOD",
            "critical",
            f"the draft has {draft.number('num_hidden_layers')} layers, as many as the target",
            "this is a whole model, not a head",
            "use method draft_model, or name the head",
        )
    if pair.method == "p-eagle" and pair.version < PARALLEL_SINCE:
        yield Verdict(
            "P-METHOD",
            "critical",
            f"P-EAGLE needs vLLM {dotted(PARALLEL_SINCE)}, this is {dotted(pair.version)}",
            "older ones cannot draft in parallel",
            f"use vLLM {dotted(PARALLEL_SINCE)} or newer",
            "vllm PR#32887",
        )
    if pair.method == "suffix":
        yield Verdict(
            "P-METHOD",
            "warning",
            "suffix decoding",
            f"vLLM's image lacks {known.ARCTIC}, which it needs to start",
            "use an image with it",
        )


def recurrent(pair: Pair) -> Iterator[Verdict]:
    """P-HYBRID: layers that carry a state lose it where a step after an accepted draft has none.

    Heads draft at every step; a look-up does not.
    """
    if pair.method not in _LOOKUPS or not _is_hybrid(pair.target):
        return
    yield Verdict(
        "P-HYBRID",
        "critical",
        f"a target with recurrent layers with {pair.method}",
        "a step without a draft after one that was accepted reads a stale state: answers are "
        "corrupted, and nothing fails",
        "a head, or no draft",
        "vllm#39273, #40875",
    )


def _is_hybrid(target: Model) -> bool:
    """Whether some of its layers carry a state in place of a cache."""
    text = target.text
    layers = text.get("layer_types") or text.get("layers_block_type") or ()
    named = set(map(str, layers)) if isinstance(layers, list | tuple) else set()
    return bool(named & _RECURRENT_LAYERS) or any(text.get(key) for key in _RECURRENT_KEYS)
