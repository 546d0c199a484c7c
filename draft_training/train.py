"""Stage 3: the optimisation. Goes on from its checkpoint; a signal ends it with one."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draft_training import answers, corpus, export
from draft_training.events import Failed, Progress, tell
from draft_training.head import build
from draft_training.job import Job
from draft_training.target import Target
from draft_training.unroll import Unroll

CHECKPOINT = "checkpoint.pt"
_FLOOR = 0.02
"""Of the learning rate, at the end of the cosine."""


@dataclass
class State:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    pack: int = 0
    """Batches of this epoch that are done."""
    spent_s: float = 0.0


class Trainer:
    """One run."""

    def __init__(self, job: Job) -> None:
        self.job, self.wanted = job, job.training
        torch.manual_seed(job.seed)
        torch.set_float32_matmul_precision("high")
        self.device = job.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.corpus = corpus.read(answers.files(job), job.seed)
        self.held_out = min(self.wanted.validation, len(self.corpus) // 10)
        if len(self.corpus) - self.held_out < 2:
            raise Failed("no-answers", f"{len(self.corpus)} answers to train on", "ask for more")
        self.target = Target(job.target, self.device, job.aux_layers)
        first = self.target.batch(self.corpus, next(self._epoch(0)))
        self.head = build(job, self.target, self.corpus, self.held_out, first)
        self.unroll = Unroll(job, self.head, self.target)
        self.trained = [p for p in self.head.parameters() if p.requires_grad]
        self.optimizer = self._optimizer()
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.state = State()
        self.stopped = False

    def _epoch(self, number: int) -> Iterator[list[int]]:
        seed = self.job.seed * 1_000_003 + number
        return self.corpus.packs(self.held_out, len(self.corpus), self.wanted.batch_tokens, seed)

    def _optimizer(self) -> torch.optim.AdamW:
        matrices, head, rest = [], [], []
        for name, parameter in self.head.named_parameters():
            if not parameter.requires_grad:
                continue
            if "lm_head" in name:
                head.append(parameter)
            elif parameter.ndim > 1 and "mask_hidden" not in name:
                matrices.append(parameter)
            else:
                rest.append(parameter)
        decay, lr = self.wanted.weight_decay, self.wanted.lr
        return torch.optim.AdamW(
            [
                {"params": matrices, "lr": lr, "weight_decay": decay},
                {"params": head, "lr": self.wanted.head_lr, "weight_decay": 0.0},
                {"params": rest, "lr": lr, "weight_decay": 0.0},
            ],
            betas=(0.9, 0.95),
            eps=1e-10,
            fused=self.device.startswith("cuda"),
        )

    def share(self) -> float:
        """How much of the run is used up, 0..1."""
        by_time = self.state.spent_s / (self.wanted.minutes * 60) if self.wanted.minutes else 0.0
        by_step = self.state.step / self.wanted.steps if self.wanted.steps else 0.0
        return min(1.0, max(by_time, by_step))

    def go(self) -> dict[str, Any]:
        """To the end, or to a signal; writes the head and says what it learnt."""
        self._resume()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        progress = Progress("train")
        self.head.train()
        saved = ticked = time.monotonic()
        while (share := self.share()) < 1 and not self.stopped:
            for pack in self._left():
                loss, norm = self._step(pack)
                if self.state.step == 1:
                    ticked = time.monotonic()
                now = time.monotonic()
                self.state.spent_s, ticked = self.state.spent_s + now - ticked, now
                if (share := self.share()) >= 1 or self.stopped:
                    break
                self._tell(progress, share, loss, norm)
                if now - saved > self.wanted.save_every_s:
                    saved = now
                    self.save()
            else:
                self.state.epoch, self.state.pack = self.state.epoch + 1, 0
        self.save()
        if self.stopped:
            raise Failed("interrupted", f"stopped after step {self.state.step}", "run it again")
        return self._finish()

    def _left(self) -> Iterator[list[int]]:
        for number, pack in enumerate(self._epoch(self.state.epoch)):
            if number >= self.state.pack:
                yield pack
                self.state.pack = number + 1

    def _step(self, pack: list[int]) -> tuple[float, float]:
        share = self.share()
        cosine = 0.5 * (1 + math.cos(math.pi * share)) * (1 - _FLOOR) + _FLOOR
        scale = min(1.0, (share + 1e-4) / self.wanted.warmup) * cosine
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * scale
        batch = self.target.batch(self.corpus, pack)
        with torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16):
            loss, _ = self.unroll(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.state.step += 1
        self.state.tokens += sum(len(self.corpus.documents[i]) for i in pack)
        return loss.item(), norm.item()

    def _tell(self, progress: Progress, share: float, loss: float, norm: float) -> None:
        if not math.isfinite(loss):
            raise Failed("diverged", f"the loss is {loss} at step {self.state.step}", "lower lr")
        # The first step is not timed: the losses tune their kernels in it.
        rate = self.state.tokens / self.state.spent_s if self.state.step > 1 else None
        progress.at(
            share,
            step=self.state.step,
            loss=round(loss, 4),
            gradient=round(norm, 3),
            tokens=self.state.tokens,
            tokens_per_s=None if rate is None else round(rate),
        )

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def _file(self) -> Path:
        return self.job.work / CHECKPOINT

    def save(self) -> None:
        """Everything that going on needs, whole or not at all."""
        trained = {n: p.detach() for n, p in self.head.named_parameters() if p.requires_grad}
        held = self._file().with_suffix(".part")
        torch.save(
            {
                "head": trained,
                "optimizer": self.optimizer.state_dict(),
                "state": vars(self.state),
                "vocabulary": (self.head.d2t.cpu(), self.head.t2d.cpu()),
            },
            held,
        )
        held.replace(self._file())

    def _resume(self) -> None:
        if not self._file().exists():
            return
        kept = torch.load(self._file(), map_location=self.device, weights_only=True)
        d2t, _ = kept["vocabulary"]
        if d2t.shape != self.head.d2t.shape or not torch.equal(d2t, self.head.d2t.cpu()):
            raise Failed(
                "tokenizer-mismatch",
                f"{self._file()} was made with another draft vocabulary",
                "answers changed since: remove the checkpoint, or take another --out",
            )
        self.head.load_state_dict(kept["head"], strict=False)
        self.optimizer.load_state_dict(kept["optimizer"])
        self.state = State(**kept["state"])
        tell("said", stage="train", goes_on_from_step=self.state.step)

    def _finish(self) -> dict[str, Any]:
        export.speculators(self.head, self.job.speculators)
        facts = {
            **vars(self.state),
            "validation": self.validate(),
            "versions": {"torch": torch.__version__},
        }
        tell("said", stage="train", **facts)
        return facts

    def validate(self) -> dict[str, Any]:
        """Share of the target's greedy choices that the head has right up to each position."""
        unroll = self.wanted.unroll
        right, asked = torch.zeros(unroll), 0
        self.head.eval()
        for pack in self.corpus.packs(0, self.held_out, self.wanted.batch_tokens, None):
            autocast = torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16)
            with torch.no_grad(), autocast:
                _, hits = self.unroll(self.target.batch(self.corpus, pack), hits=True)
            # Step k from t was written where t + k is learnt: bring a start's steps together.
            chain = torch.stack([hits[k].roll(-k) for k in range(unroll)]).cumprod(0)
            right += chain.sum(1).float().cpu()
            asked += hits.shape[1]
        if not asked:
            return {"unknown": "too few answers to keep some out"}
        return {"n": asked, "accepted_up_to": [round(x / asked, 4) for x in right.tolist()]}


def run(job: Job) -> dict[str, Any]:
    """Trains, and writes the head in Speculators' form."""
    return Trainer(job).go()
