"""The rejection samplers in one run: the engine's two, FlashInfer's, and the reference kernel.

All get the same float32 logits, cold, and are timed the same way, in one graph. The bytes that any
of them must read are counted once (the logits), so a share says how near a sampler is to reading
them as fast as this chip copies gigabytes. Beside them, timed the same way over as many bytes: a
copy, a plain read, and the reference kernel cut short, which tell where its time goes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kernels_check import engines
from kernels_check.checks import health
from kernels_check.cuda import timing
from kernels_check.model import Context, NotHere, Passed, Wrong
from kernels_check.own import Own, OwnStep

VOCABULARIES = (128256, 151936, 201088)
BATCHES = (32, 64, 128)
DEPTHS = (3, 5, 7)
GOAL = 0.8
CUT = {"own-reading": 1}
"""The reference kernel without the steps after this (STOP in csrc/verify.cu)."""


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
    beside = sorted(row["us"]["copy"] / row["us"]["own"] for row in rows)
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
        f" or more; at {beside[0]:.0%} to {beside[-1]:.0%} of a copy of as many bytes; "
        + _ratios(rows)
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
    us["own"] = _own(steps)
    us["own-bf16"] = _own(steps, bf16=True)
    for name, stop in CUT.items():
        us[name] = _own(steps, stop=stop)
    us |= _streams(steps)
    share = {name: size / (t / 1e6) / copy for name, t in us.items() if t}
    share["own-bf16"] /= 2  # half the bytes
    return {
        "vocab": vocab, "batch": batch, "k": k, "mib": round(size / 2**20, 1),
        "sets": sets,
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


def _own(steps: list[SimpleNamespace], *, bf16: bool = False, stop: int = 0) -> float:
    """Microseconds of the reference kernel; with `stop`, of what comes before that."""
    key = f"own-{bf16}-{stop}"
    if key not in _LOADED:
        _LOADED[key] = Own(bf16=bf16, macros={"STOP": stop} if stop else None)
    made = []
    for step in steps:
        logits = step.logits.bfloat16() if bf16 else step.logits
        lengths = [step.k] * step.batch
        uniforms = step.u.view(step.batch, step.k).tolist()
        one = OwnStep(_LOADED[key], logits, lengths, step.drafted.tolist(), uniforms, step.k)
        one.sample_u.uniform_()
        made.append(one)
    return timing.seconds([one.launch for one in made]) * 1e6


def _streams(steps: list[SimpleNamespace]) -> dict[str, float | None]:
    """Microseconds of moving as many bytes as the logits have: half to the other half, or read."""
    import torch

    from kernels_check.cuda.driver import Module, pointer

    module = _LOADED.setdefault("probe", None) or Module("probe.cu")
    _LOADED["probe"] = module
    half = steps[0].logits.numel() // 2
    targets = [torch.empty(half, device="cuda") for _ in steps]
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")

    def stream(name: str, step: SimpleNamespace, to: Any, elements: int) -> Callable[[], Any]:
        vectors = elements // 4
        arguments = [pointer(to), pointer(step.logits), ctypes.c_longlong(vectors)]
        function = module.function(name)
        return lambda: module.launch(function, (-(-vectors // 2048),), 512, arguments)

    work = {
        "copy": [
            stream("copy_vectors", step, to, half) for step, to in zip(steps, targets, strict=True)
        ],
        "read": [stream("read_vectors", step, sink, 2 * half) for step in steps],
    }
    return {name: timing.seconds(calls) * 1e6 for name, calls in work.items()}


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
