"""Every check, in the order they are told about."""

from __future__ import annotations

from typing import Any

from kernels_check.model import Check, Level
from kernels_check.stack import MODELS


def _rejection() -> list[Check]:
    made = []
    for engine in ("vllm-v1", "vllm-v2"):
        for mode, draft in (
            ("greedy", False),
            ("random", False),
            ("random", True),
            ("mixed", True),
        ):
            name = f"rejection.{engine}.{mode}{'-draft' if draft else ''}"
            title = (
                f"{engine}, {mode}{', draft distributions' if draft else ''}: exact over the grid"
            )
            options = {"engine": engine, "mode": mode, "draft": draft}
            made.append(Check(name, "rejection:grid", title, deadline_s=120, options=options))
        for draft in (False, True):
            made.append(
                Check(
                    f"rejection.{engine}.distribution{'-draft' if draft else ''}",
                    "rejection:distribution",
                    f"{engine}: 10^6 steps have the target's distribution",
                    deadline_s=120,
                    options={"engine": engine, "draft": draft},
                )
            )
        made.append(
            Check(
                f"rejection.{engine}.hostile",
                "tokens:hostile_rows",
                f"{engine}: masked and NaN rows stay their own problem",
                options={"engine": engine},
            )
        )
        made.append(
            Check(
                f"guard.{engine}",
                "guard:sampler",
                f"{engine}: nothing is touched beyond a buffer",
                deadline_s=180,
                code="KERNEL_OUT_OF_BOUNDS",
                options={"engine": engine},
            )
        )
    made += _block_verification()
    strided = {"engine": "vllm-v2", "mode": "random", "strided": True, "vocabularies": (32000,)}
    made.append(
        Check(
            "rejection.vllm-v2.strided", "rejection:grid", "logits not contiguous", options=strided
        )
    )
    made.append(Check("rejection.vllm-v1.edges", "rejection:edges", "thresholds met exactly"))
    made.append(
        Check(
            "rejection.vllm-v1.module",
            "rejection:module_path",
            "the sampler as the engine calls it",
        )
    )
    return made


def _block_verification() -> list[Check]:
    made = []
    engine = {"engine": "vllm-v2-block", "mode": "random", "padded": False}
    sizes = {"vocabularies": (32000, 151936), "depths": (1, 3, 7), "batches": (1, 8, 31)}
    for draft in (False, True):
        made.append(
            Check(
                f"rejection.vllm-v2.block{'-draft' if draft else ''}", "rejection:grid",
                "vllm-v2, block verification: exact", deadline_s=120,
                options={**engine, **sizes, "draft": draft},
            )
        )  # fmt: skip
    made.append(
        Check(
            "rejection.vllm-v2.block-distribution", "rejection:distribution",
            "vllm-v2, block verification: 10^6 steps", deadline_s=120,
            options={**engine, "draft": True},
        )
    )  # fmt: skip
    for name, target, more in (
        ("rejection.vllm-v2.block-padded", "rejection:grid", {**sizes, "padded": True}),
        ("guard.vllm-v2.block-padded", "guard:sampler", {"padded": True}),
    ):
        title = "vllm-v2, block verification with padding among the drafts"
        options, code = {**engine, **more}, _code_of(target)
        made.append(Check(name, target, title, Level.HIDDEN, 120, code=code, options=options))
    return made


def _code_of(target: str) -> str:
    """What a sampler's check finds when it fails."""
    return "KERNEL_OUT_OF_BOUNDS" if target.startswith("guard:") else "KERNEL_WRONG"


FP8 = {"fp8": True, "blocks": (16, 32), "rows": (1, 2, 4, 8)}


def _engine() -> list[Check]:
    return [
        Check("drafting.next-tokens", "drafting:next_tokens", "EAGLE: what stands after a step"),
        Check("drafting.sample-points", "drafting:sample_points", "EAGLE: where the next draft starts"),
        Check("drafting.slots", "drafting:slots", "EAGLE: positions and KV slots of a draft step"),
        Check("drafting.parallel", "drafting:parallel", "P-EAGLE: inputs of a parallel draft"),
        Check("drafting.ngram", "drafting:ngram", "n-gram: what is proposed"),
        Check("attention.flash3", "attention:flash3", "FlashAttention 3, K + 1 rows", deadline_s=120),
        Check("attention.triton", "attention:triton", "Triton attention, K + 1 rows", deadline_s=120),
        Check("attention.flashinfer", "attention:flashinfer", "FlashInfer, K + 1 rows", deadline_s=240),
        Check("attention.flash3-fp8", "attention:flash3", "FlashAttention 3, FP8 queries and cache", deadline_s=120, options=FP8),
        Check("attention.triton-fp8", "attention:triton", "Triton attention, FP8 cache", deadline_s=120, options=FP8),
        Check("attention.flashinfer-fp8", "attention:flashinfer", "FlashInfer, FP8 cache", deadline_s=240, options=FP8),
        Check("gemm.fp8", "gemm:fp8", "FP8 products at verify shapes"),
        Check("gemm.fp8-marlin", "gemm:fp8_marlin", "FP8 Marlin products at verify shapes"),
        Check("gemm.awq-marlin", "gemm:awq_marlin", "INT4 AWQ Marlin products at verify shapes"),
        Check("moe.routing", "moe:routing", "who is chosen, with which weight"),
        Check("moe.experts", "moe:experts", "fused experts at small batches", deadline_s=120),
        Check("moe.mxfp4-marlin", "mxfp4:marlin", "MXFP4 experts, Marlin", deadline_s=120),
        Check("moe.mxfp4-triton", "mxfp4:triton", "MXFP4 experts, Triton", deadline_s=180),
        Check("tokens.top-k-top-p", "tokens:top_k_top_p", "which tokens stay", deadline_s=120),
        Check("tokens.grammar-mask", "tokens:grammar_mask", "a grammar's mask (V2)"),
        Check("tokens.xgrammar-mask", "tokens:xgrammar_mask", "a grammar's mask (V1: xgrammar)"),
        Check(
            "graph.vllm-v2", "graphs:sampler", "the sampler in a CUDA graph",
            code="KERNEL_GRAPH", options={"engine": "vllm-v2"},
        ),
        Check(
            "graph.attention", "graphs:verify_attention", "attention in a CUDA graph",
            code="KERNEL_GRAPH",
        ),
    ]  # fmt: skip


def _own() -> list[Check]:
    own = {"engine": "own"}
    return [
        Check("rejection.own", "rejection:grid", "the reference kernel, exact", deadline_s=120, options={**own, "mode": "mixed"}),
        Check("rejection.own-bf16", "rejection:grid", "the reference kernel on bf16 logits, exact", deadline_s=120, options={"engine": "own-bf16", "mode": "mixed", "bf16": True}),
        Check("rejection.own.hostile", "tokens:hostile_rows", "the reference kernel: masked and NaN rows", options=own),
        Check("rejection.own.distribution", "rejection:distribution", "the reference kernel, 10^6 steps", deadline_s=120, options={**own, "vocab": 2100, "batch": 8192, "rounds": 128}),
        Check("rejection.own.same-again", "graphs:same_again", "the reference kernel is deterministic", options=own),
        Check("guard.own", "guard:sampler", "the reference kernel stays inside its buffers", deadline_s=120, code="KERNEL_OUT_OF_BOUNDS", options=own),
        Check("guard.works", "guard:works", "the guard pages fault where they must", deadline_s=120, code="KERNEL_OUT_OF_BOUNDS"),
        Check("guard.canaries", "guard:canaries", "words beside outputs are left alone", code="KERNEL_OUT_OF_BOUNDS"),
        Check("tokens.own-mask", "tokens:own_mask", "the reference mask kernel"),
    ]  # fmt: skip


def _chip() -> list[Check]:
    health = "GPU_UNHEALTHY"
    return [
        Check("chip.health", "health:chip", "ECC, throttling, Xid", alone=True, code=health),
        Check("chip.memory", "health:memory", "copy bandwidth", alone=True, code=health),
        Check("chip.tensor-cores", "health:tensor_cores", "matrix rates", alone=True, code=health),
    ]


def _later() -> list[Check]:
    made = [
        Check("speed.samplers", "speed:samplers", "rejection samplers side by side", Level.SPEED, 400, True, "KERNEL_SLOW"),
        Check("soak", "soak:soak", "minutes of verify steps: jitter, memory, clocks", Level.SOAK, 4000, True, "GPU_UNHEALTHY"),
    ]  # fmt: skip
    for tool in ("memcheck", "racecheck", "synccheck"):
        made.append(
            Check(
                f"sanitizer.{tool}", "sanitizer:clean", f"our own kernels under {tool}",
                Level.SANITIZE, 240, options={"tool": tool},
            )
        )  # fmt: skip
    for shape in MODELS:
        made.append(
            Check(
                f"cost.{shape}", "cost:curve", "a verify step against a plain one",
                Level.COST, 150, True, "KERNEL_SLOW", {"shape": shape},
            )
        )  # fmt: skip
    return made


MUTANTS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("bonus-off-by-one", "rejection:grid", "bonus token", {"engine": "own", "mode": "random", "mutant": 1}),
    ("wrong-recovered", "rejection:grid", "recovered token", {"engine": "own", "mode": "random", "mutant": 2}),
    ("wrong-recovered-distribution", "rejection:distribution", "not the target's distribution", {"engine": "own", "mutant": 2}),
    ("stale-uniform", "rejection:grid", "drafts accepted, must be", {"engine": "own", "mode": "random", "mutant": 4}),
    ("read-one-to-the-right", "guard:sampler", "beyond the right end of logits", {"engine": "own", "mutant": 5}),
    ("write-one-to-the-left", "guard:sampler", "beyond the left end of out", {"engine": "own", "mutant": 7}),
    ("write-beside-output", "guard:canaries", "words beside the output changed", {"mutant": 7}),
    ("race", "graphs:same_again", "differs", {"engine": "own", "mutant": 6}),
    ("mask-ignored", "tokens:own_mask", "must be", {"mutant": 3}),
    ("fp8-wrong-scale", "gemm:fp8", "times what rounding may do", {"wrong_scale": 1}),
    ("causal-mask-ignored", "attention:flash3", "is off by", {"causal": False}),
    ("fp8-cache-scales-swapped", "attention:flash3", "is off by", {**FP8, "rows": (4,), "swapped": True}),
    ("mxfp4-wrong-scale", "mxfp4:marlin", "is off by", {"wrong_scale": 1}),
)  # fmt: skip
"""(name, the check meant for it, what it must say, its options)"""

SANITIZED: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("sanitizer-sees-a-read-beyond", "sanitizer:clean", "Invalid __global__ read", {"tool": "memcheck", "mutant": 5}),
    ("sanitizer-sees-a-missing-barrier", "sanitizer:clean", "racecheck: .*[1-9][0-9]* (hazard|error)", {"tool": "racecheck", "mutant": 8}),
)  # fmt: skip
"""The same where compute-sanitizer is the check."""

ORIGINALS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rejection:grid", {"engine": "own", "mode": "random", "vocabularies": (32000,), "batches": (1, 8)}),
    ("rejection:grid", {"engine": "vllm-v1", "mode": "random", "draft": True, "vocabularies": (32000,), "batches": (8,)}),
    ("rejection:grid", {"engine": "vllm-v2", "mode": "random", "draft": True, "vocabularies": (32000,), "batches": (8,)}),
    ("rejection:distribution", {"engine": "own", "rounds": 8}),
    ("rejection:distribution", {"engine": "vllm-v2", "rounds": 8}),
    ("graphs:same_again", {"engine": "own"}),
    ("guard:canaries", {}),
    ("tokens:own_mask", {}),
    ("gemm:fp8", {}),
    ("attention:flash3", {"blocks": (16,), "rows": (2, 8)}),
)  # fmt: skip


ORIGINAL_GUARD: tuple[tuple[str, dict[str, Any]], ...] = (("guard:sampler", {"engine": "own"}),)
"""By itself: whoever starts guarded attempts must not have opened CUDA."""
RUNS = 20
SPLIT = 5
"""Processes that the runs are split over."""

SLOW = ("attention.flashinfer", "attention.flashinfer-fp8", "tokens.top-k-top-p", "guard.vllm-v2",
        "moe.mxfp4-triton", "moe.mxfp4-marlin", "moe.experts", "guard.works", "attention.triton",
        "attention.triton-fp8", "rejection.vllm-v2.block-distribution",
        "rejection.vllm-v2.random-draft", "rejection.vllm-v2.distribution-draft")  # fmt: skip


def mutant_names() -> list[str]:
    """What can be planted."""
    return [*(name for name, *_ in MUTANTS), "fault"]


def planted(name: str) -> Check | None:
    """A mutant as a check among the others, as if the image had that kernel."""
    for known, target, _, options in MUTANTS:
        if known == name:
            title, code = "a kernel that is wrong on purpose", _code_of(target)
            return Check(
                f"planted.{name}", target, title, deadline_s=240, code=code, options=options
            )
    if name == "fault":
        return Check("planted.fault", "guard:fault", "a fault in a check's own process")
    return None


def _mutants() -> list[Check]:
    made = []
    for level, table in ((Level.MUTANTS, MUTANTS), (Level.SANITIZE, SANITIZED)):
        for name, target, reason, options in table:
            full = {"target": target, "reason": reason, **options}
            made.append(
                Check(
                    f"mutant.{name}", "kernels_check.mutants:caught", f"caught by {target}",
                    level, 240, False, "KERNEL_CHECK_BLIND", full,
                )
            )  # fmt: skip
    for kind, targets in (("original", ORIGINALS), ("original-guard", ORIGINAL_GUARD)):
        for number in range(SPLIT):
            each = RUNS // SPLIT
            made.append(
                Check(
                    f"mutant.{kind}-{number + 1}", "kernels_check.mutants:original",
                    "no alarm without a mutation", Level.MUTANTS, 500, False, "KERNEL_CHECK_BLIND",
                    {"runs": each, "targets": targets, "from": number * each},
                )
            )  # fmt: skip
    return made


def manifest() -> tuple[Check, ...]:
    """All of them."""
    checks = (*_rejection(), *_engine(), *_own())
    # What takes longest (a compiler runs) goes first, so that it does not end last.
    first = sorted((c for c in checks if c.name in SLOW), key=lambda check: SLOW.index(check.name))
    rest = tuple(check for check in checks if check.name not in SLOW)
    return (*_chip(), *first, *rest, *_later(), *_mutants())
