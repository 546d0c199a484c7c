"""What a verify step costs against a plain one, by batch and K.

The curve that says when drafts pay.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kernels_check import payoff, stack
from kernels_check.checks import moe, speed
from kernels_check.cuda import timing
from kernels_check.model import Context, Passed, missing

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 7)


def curve(context: Context) -> Passed:
    """Milliseconds of a step at every batch and K, and the batch at which drafting stops paying."""
    import torch

    model = stack.MODELS[context.options["shape"]]
    try:
        with moe.engine_config(), torch.inference_mode():
            measured = _measure(model)
    except ImportError as error:
        raise missing("vLLM's layers", error) from error
    data = {
        "model": model.title, "layers": model.layers, "context": stack.CONTEXT, **measured,
        "crossover": {str(a): payoff.crossover(measured, a) for a in payoff.CHANCES},
    }  # fmt: skip
    one = measured["ms"]
    text = (
        f"batch 1: K 7 costs {one['1']['7'] / one['1']['0']:.2f} plain steps, batch 128: "
        f"{one['128']['7'] / one['128']['0']:.2f}; where 60 % are accepted K 3 "
        f"{payoff.words(measured, 0.6, '3')}, K 7 {payoff.words(measured, 0.6, '7')}"
    )
    return Passed(text, data)


def _measure(model: stack.Model) -> dict[str, Any]:
    import torch

    held = stack.Stack(model, max(BATCHES))
    draft = stack.Draft(held)
    wide = torch.randn((max(BATCHES) * (max(DEPTHS) + 1), model.vocab), device="cuda")
    ms: dict[str, dict[str, float]] = {}
    draft_ms: dict[str, float] = {}
    for batch in BATCHES:
        ms[str(batch)] = {}
        for k in DEPTHS:
            call = held.step(batch, k, _sampler(wide, model.vocab, batch, k))
            ms[str(batch)][str(k)] = round(timing.seconds([call], budget_s=0.08) * 1000, 4)
        draft_ms[str(batch)] = round(timing.seconds([draft.step(batch)]) * 1000, 4)
    return {"ms": ms, "draft_ms_per_token": draft_ms}


def _sampler(wide: Any, vocab: int, batch: int, k: int) -> Any:
    """VLLM's V2 sampler on ready logits; K = 0 is its bonus token alone."""
    import torch

    rows = wide[: batch * (k + 1)]
    if k:
        drafted = torch.randint(0, vocab, (batch, k), device="cuda")
        step = SimpleNamespace(vocab=vocab, batch=batch, k=k, logits=rows, drafted=drafted)
        return speed.MAKERS["vllm-v2"](step)
    drafted = torch.zeros((batch, 0), dtype=torch.long, device="cuda")
    step = SimpleNamespace(vocab=vocab, batch=batch, k=1, logits=rows, drafted=drafted)
    return _plain(step)


def _plain(step: SimpleNamespace) -> Any:
    """The same sampler with nothing drafted."""
    import torch

    from kernels_check.engines import VllmV2

    module, batch = VllmV2().module, step.batch
    starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
    slots = torch.arange(batch, device="cuda", dtype=torch.int32)
    zeros = torch.zeros(batch, device="cuda", dtype=torch.int32)
    ids, at = (
        torch.zeros(batch, device="cuda", dtype=torch.long),
        torch.arange(batch, device="cuda"),
    )
    ones = torch.ones(batch, device="cuda")
    return lambda: module.rejection_sample(
        step.logits, None, ids, starts, at, slots, slots, zeros, ones, at, 1
    )
