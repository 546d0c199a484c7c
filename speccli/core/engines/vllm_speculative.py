"""vLLM's `--speculative-config`: its methods and keys, by version, checked before an engine is.

Read from the sources of 0.8.5 to 0.33.0 (`config/speculative.py`). vLLM refuses an unknown key at
start-up, about 25 seconds in; this says so at once, and says what the key is called there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]

METHODS: Mapping[str, tuple[Version, Version | None]] = {
    "ngram": ((0, 8, 5), None),
    "eagle": ((0, 8, 5), None),
    "eagle3": ((0, 8, 5), None),
    "medusa": ((0, 8, 5), (0, 33, 0)),
    "mlp_speculator": ((0, 8, 5), (0, 33, 0)),
    "draft_model": ((0, 8, 5), None),
    "mtp": ((0, 11, 0), None),
    "suffix": ((0, 11, 2), None),
    "extract_hidden_states": ((0, 17, 1), None),
    "ngram_gpu": ((0, 18, 0), None),
    "dflash": ((0, 20, 2), None),
    "custom_class": ((0, 22, 0), None),
    "dspark": ((0, 25, 0), None),
}
"""Method: the first version that has it, and the first that has not any more."""

NEEDS_MODEL = frozenset({"eagle", "eagle3", "dflash", "draft_model", "medusa", "mlp_speculator"})
PARALLEL_SINCE: Version = (0, 16, 0)
SCHEDULE_SINCE: Version = (0, 24, 0)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the JSON."""

    kinds: tuple[type, ...]
    since: Version = (0, 8, 5)
    gone: Version | None = None
    least: float | None = None
    choices: tuple[str, ...] | None = None
    instead: str | None = None
    """What to write where the key is gone, or never was."""


_INT, _BOOL, _STR, _NUM = (int,), (bool,), (str,), (int, float)

KEYS: Mapping[str, Key] = {
    "method": Key(_STR),
    "model": Key(_STR),
    "num_speculative_tokens": Key(_INT, least=1),
    "draft_tensor_parallel_size": Key(_INT, least=1),
    "quantization": Key(_STR),
    "revision": Key(_STR),
    "code_revision": Key(_STR),
    "max_model_len": Key(_INT, least=1),
    "prompt_lookup_max": Key(_INT, least=1),
    "prompt_lookup_min": Key(_INT, least=1),
    "disable_by_batch_size": Key(
        _INT,
        gone=(0, 17, 1),
        instead="num_speculative_tokens_per_batch_size (0.24 and newer)",
    ),
    "enforce_eager": Key(_BOOL, since=(0, 11, 0)),
    "disable_padded_drafter_batch": Key(_BOOL, since=(0, 11, 0)),
    "suffix_decoding_max_tree_depth": Key(_INT, since=(0, 11, 2)),
    "suffix_decoding_max_cached_requests": Key(_INT, since=(0, 11, 2)),
    "suffix_decoding_max_spec_factor": Key(_NUM, since=(0, 11, 2)),
    "suffix_decoding_min_token_prob": Key(_NUM, since=(0, 11, 2)),
    "speculative_token_tree": Key(_STR, since=(0, 10, 2), gone=(0, 22, 0)),
    "parallel_drafting": Key(_BOOL, since=PARALLEL_SINCE),
    "draft_load_config": Key((dict,), since=(0, 17, 1)),
    "use_local_argmax_reduction": Key(_BOOL, since=(0, 17, 1)),
    "rejection_sample_method": Key(_STR, since=(0, 18, 0)),
    "moe_backend": Key(_STR, since=(0, 19, 1)),
    "synthetic_acceptance_rates": Key((list,), since=(0, 20, 2)),
    "synthetic_acceptance_length": Key(_NUM, since=(0, 20, 2)),
    "attention_backend": Key(_STR, since=(0, 22, 0)),
    "draft_sample_method": Key(_STR, since=(0, 22, 0), choices=("greedy", "probabilistic")),
    "num_speculative_tokens_per_batch_size": Key((list,), since=SCHEDULE_SINCE),
    "use_heterogeneous_vocab": Key(_BOOL, since=(0, 25, 0)),
    "kv_cache_dtype": Key(_STR, since=(0, 26, 0)),
    "enable_adaptive_verification": Key(_BOOL, since=(0, 28, 0)),
    "dspark_draft_topk": Key(_INT, since=(0, 28, 0), least=1),
    "index_share_for_mtp_iteration": Key(_BOOL, since=(0, 29, 0)),
    "disable_eagle_block_drop": Key(_BOOL, since=(0, 30, 0)),
}
_ELSEWHERE = {
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "speculative_model": "model",
    "K": "num_speculative_tokens",
}
"""Names that people write (vllm#24888), or that vLLM has only to refuse them."""
_SAMPLERS: tuple[tuple[Version, tuple[str, ...]], ...] = (
    ((0, 25, 0), ("standard", "synthetic", "block")),
    ((0, 22, 0), ("standard", "synthetic")),
    ((0, 18, 0), ("strict", "probabilistic")),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A setting that this version of vLLM refuses, or takes and does not obey."""

    key: str
    evidence: str
    cause: str
    action: str
    thread: str = ""
    ignored: bool = False
    """Taken without a word and not obeyed: nothing fails, and nothing happens."""


def check(config: Mapping[str, Any], version: Version) -> Iterator[Refusal]:
    """What `version` would refuse of a speculative configuration."""
    for key, value in config.items():
        yield from _check_key(key.replace("-", "_"), value, version)
    yield from _check_method(config, version)
    schedule = config.get("num_speculative_tokens_per_batch_size")
    if schedule is not None:
        for wrong in schedule_problems(schedule):
            yield Refusal(
                "num_speculative_tokens_per_batch_size",
                wrong,
                "vLLM refuses this schedule",
                "write [[first, last, K], …] from 1 on, in order, without overlap",
            )


def _check_key(key: str, value: Any, version: Version) -> Iterator[Refusal]:
    rule = KEYS.get(key)
    if rule is None:
        close = difflib.get_close_matches(key, [*KEYS], n=1, cutoff=0.6)
        instead = _ELSEWHERE.get(key) or (close[0] if close else None)
        hint = f"did you mean {instead}?" if instead else "remove it"
        yield Refusal(
            key, f"{key} is no key of it", "vLLM refuses unknown keys", hint, "vllm#24888"
        )
        return
    if version < rule.since:
        yield Refusal(
            key,
            f"{key} needs vLLM {dotted(rule.since)}, this is {dotted(version)}",
            "the key is newer than the engine",
            "use a newer engine, or remove the key",
        )
        return
    if rule.gone and version >= rule.gone:
        yield Refusal(
            key,
            f"{key} is gone since vLLM {dotted(rule.gone)}",
            "vLLM refuses unknown keys",
            f"write {rule.instead}" if rule.instead else "remove it",
        )
        return
    if key == "disable_by_batch_size" and version >= (0, 10, 0):
        yield Refusal(
            key,
            f"vLLM {dotted(version)} takes it and does nothing",
            "it acted in the V0 engine only",
            "set K by batch size (0.24 and newer)",
            ignored=True,
        )
    yield from _check_value(key, value, rule, version)


def _check_value(key: str, value: Any, rule: Key, version: Version) -> Iterator[Refusal]:
    choices = rule.choices
    if key == "rejection_sample_method":
        choices = next((names for since, names in _SAMPLERS if version >= since), None)
    wrong_kind = not isinstance(value, rule.kinds) or (
        isinstance(value, bool) and bool not in rule.kinds
    )
    if wrong_kind:
        wanted = " or ".join(kind.__name__ for kind in rule.kinds)
        yield Refusal(key, f"{key} is {value!r}", f"it must be {wanted}", f"write a {wanted}")
    elif rule.least is not None and value < rule.least:
        yield Refusal(key, f"{key} is {value}", "too small", f"write at least {rule.least:g}")
    elif choices and value not in choices:
        yield Refusal(
            key,
            f"{key} is {value!r}",
            f"vLLM {dotted(version)} knows {', '.join(choices)}",
            f"write {choices[0]}",
        )


def _check_method(config: Mapping[str, Any], version: Version) -> Iterator[Refusal]:
    method, tokens = config.get("method"), config.get("num_speculative_tokens")
    if not isinstance(method, str):
        yield Refusal(
            "method",
            "no method",
            "vLLM guesses it from the draft's name, and guesses wrong: "
            "amazon/gpt-oss-120b-p-eagle becomes draft_model",
            "write the method",
        )
        return
    yield from _check_spelling(method, version)
    if method in NEEDS_MODEL and not config.get("model"):
        yield Refusal("model", f"{method} without a model", "it needs a draft", "name the draft")
    if tokens is None and method not in {"mtp", "suffix", "dspark"}:
        yield Refusal(
            "num_speculative_tokens",
            "no number of tokens to draft",
            "vLLM refuses to start",
            "write num_speculative_tokens",
        )
    least, most = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        yield Refusal(
            "prompt_lookup_min",
            f"{least} > prompt_lookup_max {most}",
            "vLLM refuses it",
            "make it at most prompt_lookup_max",
        )


def _check_spelling(method: str, version: Version) -> Iterator[Refusal]:
    known = METHODS.get(method)
    if known is None and method.endswith("_mtp"):
        return
    if known is None:
        plain = method.lower().replace("-", "").replace("_", "")
        if plain == "peagle":
            hint = 'write "method": "eagle3" with "parallel_drafting": true'
        else:
            close = difflib.get_close_matches(method.lower(), [*METHODS], n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(METHODS)}"
        yield Refusal("method", f"method {method!r}", "vLLM has no method of this name", hint)
    elif version < known[0]:
        yield Refusal(
            "method",
            f"{method} needs vLLM {dotted(known[0])}, this is {dotted(version)}",
            "the method is newer than the engine",
            "use a newer engine",
        )
    elif known[1] and version >= known[1]:
        yield Refusal(
            "method",
            f"{method} is gone since vLLM {dotted(known[1])}",
            "the method was removed",
            "use an older engine, or another method",
        )


def schedule_problems(schedule: Any) -> list[str]:
    """What vLLM's own validation would say of K by batch size; empty where it takes it."""
    if not isinstance(schedule, list | tuple) or not schedule:
        return ["it must be a list of [first, last, K]"]
    rows = []
    for row in schedule:
        whole = (
            isinstance(row, list | tuple)
            and len(row) == 3
            and all(isinstance(each, int) and not isinstance(each, bool) for each in row)
        )
        if not whole:
            return [f"{row!r} must be [first, last, K], three whole numbers"]
        first, last, k = row
        if first < 1 or last < first or k < 0:
            return [f"{list(row)}: batch sizes from 1 on, first at most last, K at least 0"]
        rows.append((first, last, k))
    rows.sort()
    if rows[0][0] != 1:
        return [f"the first range starts at {rows[0][0]}; it must start at 1"]
    for (_, end, _), (start, _, _) in zip(rows, rows[1:], strict=False):
        if start <= end:
            return [f"the ranges that end at {end} and start at {start} overlap"]
    return []


def dotted(version: Version) -> str:
    """(0, 32, 0) as 0.32.0."""
    return ".".join(str(part) for part in version)


def name_of(method: str, parallel: bool) -> str:
    """What specctl calls it: P-EAGLE is eagle3 with parallel_drafting."""
    return "p-eagle" if method in {"eagle", "eagle3"} and parallel else method
