"""What a verify step costs against a plain one, by batch and K.

The curve that says when drafts pay.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernels_check import payoff, stack
from kernels_check.checks import moe, speed
from kernels_check.cuda import nvml, timing
from kernels_check.model import Context, Passed, missing

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 7)


def curve(context: Context) -> Passed:
    """Milliseconds of a step at every batch and K, and the batch at which drafting stops paying."""
    import torch

    shape = context.options["shape"]
    log = _Log(shape, stack.MODELS[shape], context.options.get("raw"))
    try:
        with moe.engine_config(), torch.inference_mode():
            _measure(log)
    except ImportError as error:
        raise missing("vLLM's layers", error) from error
    measured = payoff.derive(log.points)
    one = measured["ms"]
    text = (
        f"batch 1: K 7 costs {one['1']['7'] / one['1']['0']:.2f} plain steps, batch 128: "
        f"{one['128']['7'] / one['128']['0']:.2f}; where 60 % are accepted K 3 "
        f"{payoff.words(measured, 0.6, '3')}, K 7 {payoff.words(measured, 0.6, '7')}"
    )
    return Passed(text, measured)


class _Log:
    """Every sample, kept and (where asked for) written as it is measured, with the chip's clock."""

    def __init__(self, shape: str, model: stack.Model, raw: str | None) -> None:
        self.model, self.points = model, list[dict[str, Any]]()
        self._facts = {
            "shape": shape, "model": model.title, "layers": model.layers, "context": model.context
        }  # fmt: skip
        self._raw = Path(raw) if raw else None
        self._chip = nvml.Nvml()

    def add(self, what: str, batch: int, k: int, call: Any, budget_s: float) -> None:
        """Time the call and keep the samples."""
        taken = timing.samples([call], budget_s)
        reading = self._chip.read()
        point = {
            **self._facts, "what": what, "batch": batch, "k": k,
            "samples_ms": [round(t * 1000, 5) for t in taken],
            "sm_mhz": reading.sm_mhz, "power_w": reading.power_w,
        }  # fmt: skip
        self.points.append(point)
        if self._raw:
            with self._raw.open("a") as log:
                log.write(json.dumps(point) + "\n")


def _measure(log: _Log) -> None:
    import torch

    model = log.model
    held = stack.Stack(model, max(BATCHES))
    draft = stack.Draft(held)
    wide = torch.randn((max(BATCHES) * (max(DEPTHS) + 1), model.vocab), device="cuda")
    for batch in BATCHES:
        for k in DEPTHS:
            call = held.step(batch, k, _sampler(wide, model.vocab, batch, k))
            log.add("step", batch, k, call, 0.08)
        log.add("draft", batch, 1, draft.step(batch), 0.04)


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
