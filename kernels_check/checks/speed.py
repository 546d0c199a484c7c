"""The rejection samplers in one run: the engine's two, FlashInfer's, and the reference kernel.

All get the same float32 logits, cold. The bytes that any of them must read are counted once (the
logits), so a share says how near a sampler is to reading them as fast as this chip copies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kernels_check import engines
from kernels_check.checks import health
from kernels_check.cuda import timing
from kernels_check.model import Context, NotHere, Passed, Wrong

VOCABULARIES = (128256, 151936, 201088)
BATCHES = (32, 64, 128)
DEPTHS = (3, 5, 7)
GOAL = 0.8
ROOM = 64
SLICES = (2, 3, 4, 6, 8, 12)
"""Blocks a row that are tried, beside the number the kernel's own rule gives."""


def samplers(context: Context) -> Passed:
    """At every vocabulary.

    Batch and K the reference is not slower than the engine, and near the memory.
    """
    rates = health.bandwidths(2 << 30)
    copy = max(rates["own_copy"], rates["torch_copy"])
    rows, slower = [], []
    for vocab in context.options.get("vocabularies", VOCABULARIES):
        for batch in BATCHES:
            for k in DEPTHS:
                row = _row(vocab, batch, k, copy, context.seed)
                sys.stderr.write(f"{row}\n")
                sys.stderr.flush()
                rows.append(row)
                for name in ("vllm-v1", "vllm-v2", "flashinfer"):
                    if row["us"].get(name) is not None and row["us"][name] < row["us"]["own"]:
                        slower.append((name, vocab, batch, k))
    shares = sorted(row["share"]["own"] for row in rows)
    under = [row for row in rows if row["share"]["own"] < GOAL]
    data = {
        "copy_tb_s": round(copy / 1e12, 3),
        "rows": rows,
        "goal": GOAL,
        "under_goal": len(under),
    }
    text = (
        f"the reference reads its logits at {shares[0]:.0%} to {shares[-1]:.0%} of copy speed"
        f" ({copy / 1e12:.2f} TB/s), {len(rows) - len(under)} of {len(rows)} at {GOAL:.0%}"
        " or more; " + _ratios(rows)
    )
    if slower:
        raise Wrong(f"slower than {slower[0]} and {len(slower) - 1} more; {text}", data)
    return Passed(text, data)


def _ratios(rows: list[dict[str, Any]]) -> str:
    parts = []
    for name in ("vllm-v1", "vllm-v2", "flashinfer"):
        ratios = [row["us"][name] / row["us"]["own"] for row in rows if row["us"].get(name)]
        if ratios:
            parts.append(f"{name} takes {min(ratios):.1f} to {max(ratios):.1f} times as long")
    return "; ".join(parts)


def _row(vocab: int, batch: int, k: int, copy: float, seed: int) -> dict[str, Any]:
    """One shape: microseconds of each sampler, and its share of the copy rate."""
    size = batch * (k + 1) * vocab * 4
    sets = timing.sets_for(size)
    steps = [_step(vocab, batch, k, seed + i) for i in range(sets)]
    us: dict[str, float | None] = {}
    for name, make in MAKERS.items():
        try:
            us[name] = timing.seconds([make(step) for step in steps]) * 1e6
        except NotHere:
            us[name] = None
    us["own"], slices = _tuned(steps, bf16=False)
    us["own-bf16"], _ = _tuned(steps, bf16=True)
    share = {name: size / (t / 1e6) / copy for name, t in us.items() if t}
    share["own-bf16"] /= 2
    return {
        "vocab": vocab, "batch": batch, "k": k, "mib": round(size / 2**20, 1),
        "sets": sets, "slices": slices,
        "us": {name: None if t is None else round(t, 2) for name, t in us.items()},
        "share": {name: round(s, 3) for name, s in share.items()},
    }  # fmt: skip


def _step(vocab: int, batch: int, k: int, seed: int) -> SimpleNamespace:
    """Random logits and drafts.

    About half of the drafts are likely, so that chains differ in length.
    """
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    rows = batch * (k + 1)
    logits = torch.randn((rows, vocab), generator=generator, device="cuda")
    drafted = torch.randint(0, vocab, (batch, k), generator=generator, device="cuda")
    row = (torch.arange(batch, device="cuda")[:, None] * (k + 1)) + torch.arange(k, device="cuda")
    likely = torch.rand((batch, k), generator=generator, device="cuda") < 0.6
    lift = torch.where(likely, 14.0, 0.0)
    logits[row.flatten(), drafted.flatten()] += lift.flatten()
    u = torch.rand(batch * k, generator=generator, device="cuda")
    return SimpleNamespace(vocab=vocab, batch=batch, k=k, logits=logits, drafted=drafted, u=u)


_LOADED: dict[str, Any] = {}


def _tuned(steps: list[SimpleNamespace], *, bf16: bool) -> tuple[float, int]:
    """Microseconds with the best number of blocks a row, and that number."""
    rows, vocab = steps[0].batch * (steps[0].k + 1), steps[0].vocab
    tried = {engines.OwnStep.best_slices(rows, vocab), *SLICES}
    made, taken = _own(steps, bf16=bf16), {}
    for slices in sorted(tried):
        for one in made:
            one.slices = slices
        taken[slices] = timing.seconds([one.launch for one in made], budget_s=0.01) * 1e6
    best = min(taken, key=lambda slices: taken[slices])
    for one in made:
        one.slices = best
    return timing.seconds([one.launch for one in made]) * 1e6, best


def _own(steps: list[SimpleNamespace], *, bf16: bool) -> list[engines.OwnStep]:
    """Prepared launches, with room for as many blocks a row as will be tried."""
    key = f"own{bf16}"
    own = _LOADED.setdefault(key, None) or engines.Own(bf16=bf16)
    _LOADED[key] = own
    own.slices = ROOM
    made = []
    for step in steps:
        logits = step.logits.bfloat16() if bf16 else step.logits
        lengths, tokens = [step.k] * step.batch, step.drafted.flatten().tolist()
        one = engines.OwnStep(own, logits, lengths, tokens, step.u, step.k)
        one.sample_u.uniform_()
        made.append(one)
    return made


def _make_v1(step: SimpleNamespace) -> Callable[[], Any]:
    import torch

    module = engines.VllmV1().module
    rows = step.logits.view(step.batch, step.k + 1, step.vocab)
    target = rows[:, : step.k].reshape(-1, step.vocab).contiguous()
    bonus = rows[:, step.k].argmax(-1, keepdim=True).int()
    meta = SimpleNamespace(
        all_greedy=False, all_random=True, generators={},
        temperature=torch.ones(step.batch, device="cuda"),
    )  # fmt: skip
    ids = step.drafted.flatten().int().contiguous()
    lengths = [step.k] * step.batch
    upto = torch.tensor(lengths, device="cuda").cumsum(0).int()
    return lambda: module.rejection_sample(ids, lengths, step.k, upto, None, target, bonus, meta)


def _make_v2(step: SimpleNamespace) -> Callable[[], Any]:
    import torch

    module = engines.VllmV2().module
    batch, k = step.batch, step.k
    drafted = torch.cat([torch.zeros_like(step.drafted[:, :1]), step.drafted], 1).flatten()
    starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * (k + 1)
    slots = torch.arange(batch, device="cuda", dtype=torch.int32)
    wide = slots.repeat_interleave(k + 1)
    local = torch.arange(k + 1, device="cuda", dtype=torch.int32).repeat(batch)
    at = torch.arange(batch * (k + 1), device="cuda")
    ones, seeds = torch.ones(batch, device="cuda"), torch.arange(batch, device="cuda")
    return lambda: module.rejection_sample(
        step.logits, None, drafted, starts, at, slots, wide, local, ones, seeds, k
    )


def _make_flashinfer(step: SimpleNamespace) -> Callable[[], Any]:
    """FlashInfer wants probabilities of both; the softmax before it is part of the path."""
    import torch

    if _LOADED.get("flashinfer") is False:
        raise NotHere("FlashInfer")
    try:
        import flashinfer
    except ImportError as error:
        raise NotHere("FlashInfer") from error
    batch, k, vocab = step.batch, step.k, step.vocab
    logits = step.logits.view(batch, k + 1, vocab)
    draft = torch.zeros((batch, k, vocab), device="cuda")
    draft.scatter_(2, step.drafted[:, :, None], 1.0)
    ids = step.drafted.int()

    def call() -> Any:
        probabilities = torch.softmax(logits, -1)
        return flashinfer.sampling.chain_speculative_sampling(draft, ids, probabilities)

    try:
        call()
    except Exception as error:
        _LOADED["flashinfer"] = False
        raise NotHere(f"FlashInfer: {error}") from error
    return call


MAKERS: dict[str, Callable[[SimpleNamespace], Callable[[], Any]]] = {
    "vllm-v1": _make_v1,
    "vllm-v2": _make_v2,
    "flashinfer": _make_flashinfer,
}
