"""Run with torch: `draft_training.train.Trainer` around a head of two weights; what came, as JSON.

The head, the target and the held-out prompts are stand-ins: what is tried is the run itself.
"""

import json
import math
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from draft_training import answers, corpus, job
from draft_training.events import Failed
from draft_training.held import Held, Log
from draft_training.train import CHECKPOINT, State, Trainer

DOCUMENTS = corpus.Corpus([torch.arange(4).numpy()] * 6, [1] * 6)


class Head(torch.nn.Module):  # type: ignore[misc]  # torch is in the other Python
    """Two weights, and the maps that a checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("d2t", torch.zeros(2, dtype=torch.long))
        self.register_buffer("t2d", torch.ones(2, dtype=torch.bool))


class Run(Trainer):
    """A run of ten steps whose loss at step `bad` is none, and whose ends are told apart."""

    target: Any
    unroll: Any
    held: Any

    def __init__(self, folder: Path, bad: int | None, what: float = math.nan, **more: Any) -> None:
        document = {"target": "t", "out": str(folder), "training": {"steps": 10}, **more}
        self.job = job.from_dict(document)
        self.job.work.mkdir(parents=True, exist_ok=True)
        self.wanted, self.device, self.corpus, self.held_out = (
            self.job.training,
            "cpu",
            DOCUMENTS,
            0,
        )
        self.target = SimpleNamespace(batch=lambda *_: None)
        self.head, self.bad, self.what, self.asked = Head(), bad, what, 0
        self.unroll = self._loss
        self.trained = list(self.head.parameters())
        self.optimizer = self._optimizer()
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.state, self.finite, self.kept = State(), torch.ones((), dtype=torch.bool), None
        self.stopped = False
        self.held = SimpleNamespace(measure=dict, due=lambda _: False)
        self.log = Log(self.job.work / "train.jsonl")

    def _loss(self, _batch: Any, **_: Any) -> torch.Tensor:
        self.asked += 1
        loss = self.head.weight.pow(2).sum()
        return loss * self.what if self.asked == self.bad else loss

    def _finish(self) -> dict[str, Any]:
        return {"ended": "exported", "step": self.state.step}

    def _stopped(self) -> dict[str, Any]:
        return {"ended": "stopped", "step": self.state.step}


def came_of(run: Run) -> dict[str, Any]:
    """How it ended, and what its checkpoint holds."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        told = run.go()
    except Failed as failed:
        told = {"ended": failed.kind, "message": str(failed), "fix": failed.fix}
    for number, handler in before.items():
        signal.signal(number, handler)
    file = run.job.work / CHECKPOINT
    if not file.exists():
        return {**told, "checkpoint": None}
    kept = torch.load(file, weights_only=True)
    sound = all(bool(torch.isfinite(t).all()) for t in kept["head"].values())
    return {**told, "checkpoint": kept["state"]["step"], "sound": sound}


def stopped(folder: Path) -> Run:
    """One that was told to stop after its loss was none."""
    run = Run(folder, 1)
    run._stop()
    run.stopped = False
    loss = run.unroll

    def then(batch: Any, **more: Any) -> Any:
        run.stopped = run.asked == 2
        return loss(batch, **more)

    run.unroll = then
    return run


def after_a_checkpoint(folder: Path) -> Run:
    """One that goes on from step 4 and diverges."""
    first = Run(folder, None)
    first.state.step = 4
    first.save()
    return Run(folder, 3)


def with_another_rate(folder: Path) -> dict[str, Any]:
    """What a run with another learning rate, and one that is only longer, make of a checkpoint."""
    first = Run(folder, None)
    first.log.write(step=0, held={"t": {"rate": 0.9}})
    first.state.step = 4
    first.save()
    longer = Run(folder, None, training={"steps": 12, "batch_tokens": 99})
    longer._resume()
    other = Run(folder, None, training={"steps": 10, "lr": 1e-4})
    other._resume()
    return {
        "longer": longer.state.step,
        "other": other.state.step,
        "files": sorted(file.name for file in other.job.work.iterdir()),
    }


def on_another_device(folder: Path) -> int:
    """A checkpoint taken up where the target is: "meta", which cannot be mixed, as a GPU cannot."""
    first = Run(folder, None)
    first.state.step = 4
    first.save()
    on = Run(folder, None)
    on.device = "meta"
    on._resume()
    return on.state.step


def measured(folder: Path) -> dict[str, Any]:
    """Held-out prompts looked at by an unroll that cannot ask the target's vocabulary."""
    made = job.from_dict({"target": "t", "out": str(folder), "training": {"steps": 1, "k": 2}})
    made.work.mkdir(parents=True)
    corpus.write(answers.held_file(made, "t"), [[1, 2, 3, 4, 5]], [2])
    target: Any = SimpleNamespace(device="cpu", batch=lambda *_: None)
    unroll: Any = SimpleNamespace(
        text=lambda _: torch.tensor([4, 5]),
        right=lambda _, tokens: torch.tensor([[4, 9], [5, 5]]) == tokens,
    )
    found = Held(made, target, unroll).measure()
    return {key: found["t"][key] for key in ("answers", "steps", "by_position")}


def named_as_we_do(folder: Path) -> dict[str, Any]:
    """What is told of tests whose names are those of facts."""
    told = {"rate": 0.5, "k": 2, "by_position": [0.5, 0.5]}
    run = Run(folder, None)
    run.held = SimpleNamespace(measure=lambda: {"step": told, "stage": told, "event": told})
    return run._measure()


def main(at: Path) -> dict[str, Any]:
    """Every case by its name."""
    return {
        "whole": came_of(Run(at / "whole", None)),
        "nan": came_of(Run(at / "nan", 3)),
        "infinite": came_of(Run(at / "infinite", 3, math.inf)),
        "last": came_of(Run(at / "last", 10)),
        "stopped": came_of(stopped(at / "stopped")),
        "measured": measured(at / "measured"),
        "names": named_as_we_do(at / "names"),
        "recipe": with_another_rate(at / "recipe"),
        "device": on_another_device(at / "device"),
        "after": came_of(after_a_checkpoint(at / "after")),
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(Path(sys.argv[1]))))
