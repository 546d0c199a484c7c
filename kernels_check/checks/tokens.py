"""What narrows the choice before a token is drawn: top-k, top-p, and a grammar's mask."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels_check import cases
from kernels_check.checks import rejection
from kernels_check.model import Context, Passed, Wrong, missing
from kernels_check.reference import sampling

NEAR = 5e-3
"""How far the mass that top-p keeps may be from the smallest that reaches p.

vLLM's Triton kernel halves the range of probabilities at most 18 times: where the last tokens are
less likely than 2^-18 of the likeliest, as at p = 0.999, it stops short of the threshold.
"""


def top_k_top_p(context: Context) -> Passed:
    """Which tokens stay, for small batches (sorted) and larger ones (vLLM's Triton kernel)."""
    import torch

    try:
        from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
    except ImportError as error:
        raise missing("vLLM's top-k and top-p", error) from error
    rows_seen, worst = 0, 0.0
    for vocab in (32000, 151936):
        for rows in (1, 5, 10):
            generator = torch.Generator(device="cuda").manual_seed(context.seed + rows)
            logits = torch.randn((rows, vocab), generator=generator, device="cuda") * 3
            k = torch.tensor([(1, 2, 50, 1000, vocab)[i % 5] for i in range(rows)], device="cuda")
            p = torch.tensor(
                [(0.9, 0.5, 1.0, 0.01, 0.999)[i % 5] for i in range(rows)], device="cuda"
            )
            for top_k, top_p in ((k, None), (None, p), (k, p)):
                got = apply_top_k_top_p(logits.clone(), top_k, top_p).cpu().numpy()
                for row in range(rows):
                    off = _row(
                        logits[row].double().cpu().numpy(),
                        got[row],
                        None if top_k is None else int(k[row]),
                        None if top_p is None else float(p[row]),
                        f"vocabulary {vocab}, row {row} of {rows}",
                    )
                    rows_seen, worst = rows_seen + 1, max(worst, off)
    return Passed(
        f"{rows_seen} rows keep the most likely tokens; mass off by {worst:.1e} (bound {NEAR:.0e})",
        {"rows": rows_seen, "worst_mass_error": worst},
    )


def _row(logits: Any, got: Any, k: int | None, p: float | None, where: str) -> float:
    """How far the kept mass is from what it must be.

    `Wrong` where that, or the set, is not right.
    """
    kept = np.isfinite(got)
    if not np.array_equal(got[kept], logits[kept].astype(np.float32)):
        raise Wrong(f"{where}: a kept logit was changed")
    least = logits[kept].min()
    if not kept[logits > least].all():
        raise Wrong(f"{where}, k {k}, p {p}: keeps a token and not a likelier one")
    wanted = np.ones(kept.shape, dtype=bool) if k is None else sampling.keep_top_k(logits, k)
    off = 0.0
    if p is not None:
        narrowed = np.where(wanted, logits, -np.inf)
        wanted = wanted & sampling.keep_top_p(narrowed, p)
        mass = sampling.softmax(narrowed)
        off = float(abs(mass[kept].sum() - mass[wanted].sum()))
    equal = int((logits == logits[wanted].min()).sum())
    fine = off <= NEAR if p is not None else abs(int(kept.sum()) - int(wanted.sum())) < equal
    if not fine:
        raise Wrong(
            f"{where}, k {k}, p {p}: keeps {kept.sum()} tokens, must keep {wanted.sum()};"
            f" mass off by {off:.2e}"
        )
    return off


def grammar_mask(context: Context) -> Passed:
    """The bitmask kernel of vLLM's V2 runner.

    Rows in another order, one legal token, NaN below the mask.
    """
    try:
        from vllm.v1.worker.gpu.structured_outputs import _apply_grammar_bitmask_kernel as kernel
    except ImportError as error:
        raise missing("vLLM's grammar mask", error) from error

    def run(logits: Any, order: Any, mask: Any) -> None:
        grid = (mask.shape[0], -(-logits.shape[1] // 8192))
        kernel[grid](
            logits, logits.stride(0), order, mask, mask.stride(0), logits.shape[1], BLOCK_SIZE=8192
        )

    return _masks(run, context)


def xgrammar_mask(context: Context) -> Passed:
    """The kernel of xgrammar, with which the V1 runner masks."""
    import torch

    try:
        import xgrammar
    except ImportError as error:
        raise missing("xgrammar", error) from error

    def run(logits: Any, order: Any, mask: Any) -> None:
        full = torch.full((logits.shape[0], mask.shape[1]), -1, dtype=torch.int32, device="cuda")
        full[order.long()] = mask
        xgrammar.apply_token_bitmask_inplace(logits, full, indices=order)

    return _masks(run, context)


def own_mask(context: Context) -> Passed:
    """The reference mask kernel of csrc, or its mutant."""
    import torch

    from kernels_check.cuda.driver import Module, pointer

    module = Module("mask.cu", {"MUTANT": int(context.options.get("mutant", 0))})
    function = module.function("apply_mask")

    def run(logits: Any, order: Any, mask: Any) -> None:
        full = torch.full((logits.shape[0], mask.shape[1]), -1, dtype=torch.int32, device="cuda")
        full[order.long()] = mask
        arguments = [
            pointer(logits), pointer(full), ctypes.c_longlong(logits.stride(0)),
            ctypes.c_int(mask.shape[1]), ctypes.c_int(logits.shape[1]),
        ]  # fmt: skip
        module.launch(function, (-(-logits.shape[1] // 256), logits.shape[0]), 256, arguments)

    return _masks(run, context)


def _masks(run: Any, context: Context) -> Passed:
    import torch

    rng = np.random.default_rng(context.seed)
    masked = 0
    for vocab in context.options.get("vocabularies", (32000, 32003, 151936, 201088)):
        rows, words = 9, (vocab + 31) // 32
        bits = rng.integers(-(2**31), 2**31, (rows - 1, words)).astype(np.int32)
        bits[0] = 0
        bits[1] = 0
        bits[1, (vocab - 1) // 32] = np.array([1 << ((vocab - 1) % 32)], np.uint32).view(np.int32)[
            0
        ]
        bits[2] = -1
        order = rng.permutation(rows)[: rows - 1].astype(np.int32)
        logits = torch.randn((rows, vocab), device="cuda")
        logits[order[3], 5] = torch.nan
        before = logits.clone()
        run(logits, torch.tensor(order, device="cuda"), torch.tensor(bits, device="cuda"))
        allowed = np.ones((rows, vocab), dtype=bool)
        allowed[order] = sampling.unpack_mask(bits, vocab)
        stays = torch.tensor(allowed, device="cuda")
        wanted = torch.where(stays, before, torch.full_like(before, -torch.inf))
        same = (logits == wanted) | (logits.isnan() & wanted.isnan())
        if not bool(same.all()):
            row, token = divmod(int((~same).flatten().nonzero()[0]), vocab)
            raise Wrong(
                f"vocabulary {vocab}, row {row}, token {token}: {float(logits[row, token])},"
                " must be "
                f"{float(wanted[row, token])}"
            )
        masked += rows
    return Passed(f"{masked} rows masked exactly")


def hostile_rows(context: Context) -> Passed:
    """One legal token, none, or NaN in one request.

    Ids stay in range, and its neighbours are untouched.
    """
    import torch

    engine = rejection.engine_of(context.options["engine"])
    steps = 0
    for vocab in (32000, 151936):
        for kind in ("one", "none", "nan"):
            options = {"mode": "random"}
            seed = context.seed + steps
            case = rejection.make(engine, options, 3, 8, vocab, seed, "cuda")
            clean = engine.run(case, seed)
            victim = 4
            first = case.first_row(victim)
            rows = slice(first, first + case.lengths[victim] + 1)
            legal = vocab - 1
            if kind == "nan":
                case.logits[rows, 7] = torch.nan
            else:
                case.logits[rows] = -torch.inf
            if kind == "one":
                case.logits[rows, legal] = 1.0
            out = engine.run(case, seed)
            torch.cuda.synchronize()
            _hostile(
                case, clean.tolist(), out.tolist(), victim, legal if kind == "one" else None, kind
            )
            steps += 1
    return Passed(f"{steps} batches with one hostile request each")


def _hostile(
    case: cases.Case, clean: Any, out: Any, victim: int, legal: int | None, kind: str
) -> None:
    for request in range(len(case.lengths)):
        if request != victim and out[request] != clean[request]:
            raise Wrong(f"rows of kind {kind} in request {victim} changed request {request}")
    row = [token for token in out[victim] if token != cases.PADDING]
    if any(not 0 <= token < case.vocab for token in row):
        raise Wrong(f"rows of kind {kind}: a token outside the vocabulary: {out[victim]}")
    if not row:
        raise Wrong(f"rows of kind {kind}: nothing was emitted")
    if legal is not None and any(token != legal for token in row):
        raise Wrong(f"only token {legal} is legal, and {row} was emitted")
