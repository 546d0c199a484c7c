"""Rules about GPUs, tensor parallelism, KV dtype, LoRA."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.preflight.base import Model, Pair, Verdict

_TRIPLE_K = 3


def kv_triple(pair: Pair) -> Iterator[Verdict]:
    """P-KV: FP8 KV cache on Hopper with a drafter, the known-bad triples."""
    if not pair.kv_cache_dtype.startswith("fp8") or pair.gpu is None:
        return
    if not pair.gpu.fp8_native:
        yield Verdict(
            "P-KV",
            "warning",
            f"kv_cache_dtype {pair.kv_cache_dtype} on {pair.gpu.title}",
            "no FP8 arithmetic there: the cache is converted at every read",
            "kv_cache_dtype auto",
        )
    drafts = pair.eagle or pair.method == "draft_model"
    own = pair.extra.get("kv_cache_dtype")
    if drafts and pair.gpu.capability[0] == 9 and pair.k >= _TRIPLE_K and own in {None, "fp8"}:
        yield Verdict(
            "P-KV",
            "critical",
            f"{pair.gpu.title}, kv_cache_dtype {pair.kv_cache_dtype}, K {pair.k}",
            "the drafter falls to FlashInfer, which fails to build there from K = 3 on",
            "kv_cache_dtype auto; or, from vLLM 0.26, draft.extra.kv_cache_dtype bfloat16",
            "vllm#33364, #48848",
        )


def tensor_parallel(pair: Pair) -> Iterator[Verdict]:
    """P-TP: what is split must divide."""
    over = pair.tensor_parallel
    yield from _divides(pair.target, over, "target")
    draft_over = pair.draft_tensor_parallel
    if draft_over is not None and draft_over not in {1, over}:
        yield Verdict(
            "P-TP",
            "critical",
            f"draft tensor parallel {draft_over}, target {over}",
            "vLLM takes 1 or the target's",
            f"write 1 or {over}",
            "vllm#31345",
        )
    if pair.draft is not None:
        yield from _divides(pair.draft, draft_over or over, "draft")


def _divides(model: Model, over: int, what: str) -> Iterator[Verdict]:
    if over == 1:
        return
    heads, width = model.number("num_attention_heads"), model.number("hidden_size")
    for key, value in (("num_attention_heads", heads), ("hidden_size", width)):
        if value and value % over:
            yield Verdict(
                "P-TP",
                "critical",
                f"{what} {key} {value}, over {over} GPUs",
                "it does not divide: vLLM refuses to start",
                f"use {_below(value, over)} GPUs",
                "vllm#10913",
            )
    kv = model.number("num_key_value_heads")
    if kv and kv % over and over % kv:
        yield Verdict(
            "P-TP",
            "critical",
            f"{what} num_key_value_heads {kv}, over {over} GPUs",
            "KV heads are split or copied whole",
            f"use {_below(kv, over)} GPUs",
        )
    elif kv and over > kv:
        yield Verdict(
            "P-TP",
            "info",
            f"{what} num_key_value_heads {kv}, over {over} GPUs",
            f"each is copied to {over // kv} GPUs: more GPUs bring no more cache",
            "nothing, if the GPUs are for speed",
        )


def _below(value: int, over: int) -> int:
    return next(each for each in range(over - 1, 0, -1) if value % each == 0)


def draft_parallel_saving(pair: Pair) -> Iterator[Verdict]:
    """P-DRAFT-TP: a draft on one GPU of several is not what it seems."""
    if pair.draft_tensor_parallel == 1 and pair.tensor_parallel > 1:
        yield Verdict(
            "P-DRAFT-TP",
            "info",
            f"draft tensor parallel 1, target {pair.tensor_parallel}",
            "some versions ignore it, and the whole draft then lies on one GPU or on all",
            "look for it in the start-up log",
            "vllm#31345, #31398",
        )


def lora(pair: Pair) -> Iterator[Verdict]:
    """P-LORA: adapters with drafts."""
    if not pair.lora or pair.method == "none":
        return
    if pair.method in {"ngram", "ngram_gpu"}:
        yield Verdict(
            "P-LORA",
            "critical",
            f"LoRA with {pair.method}",
            "vLLM crashes",
            "serve adapters without n-gram",
            "vllm#20284",
        )
    else:
        yield Verdict(
            "P-LORA",
            "warning",
            f"LoRA with {pair.method}",
            "the draft was not trained on the adapters: expect less acceptance",
            "bench each adapter",
        )
