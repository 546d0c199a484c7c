"""Stage 3: the optimisation. Goes on from its checkpoint; a signal ends it with one."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draft_training import answers, corpus, export, given, walk
from draft_training.events import Failed, Progress, tell
from draft_training.head import build
from draft_training.held import Held, Log, in_words
from draft_training.job import Job, recipe
from draft_training.target import Target
from draft_training.unroll import Unroll

CHECKPOINT = "checkpoint.pt"
LOG = "train.jsonl"
"""Loss, tokens a second and held-out acceptance, by time."""
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
        self.target = Target(job.target, self.device, given.layers_for(job))
        first = self.target.batch(self.corpus, next(self._epoch(0)))
        self.head = build(job, self.target, self.corpus, self.held_out, first)
        self.unroll = Unroll(job, self.head, self.target)
        self.trained = [p for p in self.head.parameters() if p.requires_grad]
        self.optimizer = self._optimizer()
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.state = State()
        self.finite = torch.ones((), dtype=torch.bool, device=self.device)
        self.kept: int | None = None
        self.stopped = False
        self.held = Held(job, self.target, self.unroll)
        self.log = Log(job.work / LOG)

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
        saved = time.monotonic()
        self._measure()
        self.head.train()
        ticked = None
        while (share := self.share()) < 1 and not self.stopped:
            for pack in self._left():
                loss, norm = self._step(pack)
                now = time.monotonic()
                # The first step is not timed: the losses tune their kernels in it.
                self.state.spent_s += now - (now if ticked is None else ticked)
                ticked = now
                if (share := self.share()) >= 1 or self.stopped:
                    break
                if progress.due():
                    self._tell(progress, share, loss, norm)
                if self.held.due(self.state.spent_s):
                    self._measure()
                    ticked = time.monotonic()
                if now - saved > self.wanted.save_every_s:
                    saved = now
                    self.save()
            else:
                self.state.epoch, self.state.pack = self.state.epoch + 1, 0
        self.save()
        if self.stopped:
            return self._stopped()
        return self._finish()

    def _measure(self) -> dict[str, Any]:
        """What the held-out prompts say of the head now: told, and kept in the log."""
        self.head.eval()
        found = self.held.measure()
        self.head.train()
        if found:
            self.held.told_s = self.state.spent_s
            self.log.write(step=self.state.step, at_s=round(self.state.spent_s, 1), held=found)
            tell("said", stage="train", step=self.state.step, held_out=in_words(found))
        return found

    def _left(self) -> Iterator[list[int]]:
        for number, pack in enumerate(self._epoch(self.state.epoch)):
            if number >= self.state.pack:
                yield pack
                self.state.pack = number + 1

    def _step(self, pack: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss and the gradient's norm, on the device: to read them is to wait for it."""
        share = self.share()
        cosine = 0.5 * (1 + math.cos(math.pi * share)) * (1 - _FLOOR) + _FLOOR
        scale = min(1.0, (share + 1e-4) / max(self.wanted.warmup, 1e-4)) * cosine
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * scale
        batch = self.target.batch(self.corpus, pack)
        with torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16):
            loss = self.unroll(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.finite &= torch.isfinite(loss.detach()) & torch.isfinite(norm)
        self.state.step += 1
        self.state.tokens += sum(len(self.corpus.documents[i]) for i in pack)
        return loss.detach(), norm

    def _tell(
        self, progress: Progress, share: float, loss: torch.Tensor, norm: torch.Tensor
    ) -> None:
        self._sound()
        lost, steep = loss.item(), norm.item()
        spent = self.state.spent_s
        rate = self.log.rate(self.state.tokens, spent)
        facts = {
            "step": self.state.step,
            "loss": round(lost, 4),
            "gradient": round(steep, 3),
            "tokens": self.state.tokens,
            "tokens_per_s": rate,
        }
        self.log.write(at_s=round(spent, 1), **facts)
        progress.at(share, force=True, **facts)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def _file(self) -> Path:
        return self.job.work / CHECKPOINT

    def _sound(self) -> None:
        """That no step was of a loss or a gradient that is none: the weights are spoilt by one.

        To know is to wait for the device, so it is asked where that is due anyway.

        Raises:
            Failed: one was.
        """
        if self.finite.item():
            return
        before = "no checkpoint was written before"
        if self.kept is not None:
            before = f"{self._file()} is of step {self.kept}, before that"
        raise Failed(
            "diverged",
            f"the loss or its gradient was not finite by step {self.state.step}; {before}",
            "run it again with a lower training.lr and training.head_lr: the answers are kept",
        )

    def save(self) -> None:
        """Everything that going on needs, whole or not at all.

        Raises:
            Failed: it diverged; the checkpoint before stays as it is.
        """
        self._sound()
        trained = {n: p.detach() for n, p in self.head.named_parameters() if p.requires_grad}
        held = self._file().with_suffix(".part")
        torch.save(
            {
                "head": trained,
                "optimizer": self.optimizer.state_dict(),
                "state": vars(self.state),
                "vocabulary": (self.head.d2t.cpu(), self.head.t2d.cpu()),
                "recipe": recipe(self.job),
            },
            held,
        )
        held.replace(self._file())
        self.kept = self.state.step

    def _resume(self) -> None:
        if not self._file().exists():
            return
        kept = torch.load(self._file(), map_location="cpu", weights_only=True)
        if differ := self._differ(kept.get("recipe", {})):
            self._begin_anew(differ)
            return
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
        self.kept = self.state.step
        tell("said", stage="train", goes_on_from_step=self.state.step)

    def _differ(self, before: Mapping[str, Any]) -> list[str]:
        now = recipe(self.job)
        return sorted(name for name in before if before[name] != now.get(name))

    def _begin_anew(self, differ: Sequence[str]) -> None:
        """A checkpoint of another recipe is put aside, and the log that belongs to it."""
        aside = self._file().with_name(f"before-{CHECKPOINT}")
        self._file().replace(aside)
        if self.log.path.exists():
            self.log.path.replace(self.log.path.with_name(f"before-{LOG}"))
        changed = f"{', '.join(differ)} changed; the checkpoint of before is {aside}"
        tell("said", stage="train", begins_anew=changed)

    def _stopped(self) -> dict[str, Any]:
        """The checkpoint is kept; the head as it is now can be loaded all the same."""
        export.speculators(self.head, self.job.speculators)
        export.run(self.job)
        raise Failed(
            "interrupted",
            f"stopped after step {self.state.step}, {self.state.spent_s:.0f} s; "
            f"the head as it was then is in {self.job.plain}",
            "run it again to go on",
        )

    def _finish(self) -> dict[str, Any]:
        export.speculators(self.head, self.job.speculators)
        held = self._measure()
        facts = {
            **vars(self.state),
            "validation": self.validate(),
            "versions": {"torch": torch.__version__},
        }
        tell("said", stage="train", **facts)
        if not held:
            return facts
        begun = self.log.at_first() if self.job.init is not None else {}
        if lost := walk.worse(begun, held):
            tell("said", stage="train", accepts_less_than_it_began_with=lost)
        return {**facts, "held_out": held, **({"held_out_before": begun} if begun else {})}

    def validate(self) -> dict[str, Any]:
        """Share of the target's greedy choices that the head has right up to each position."""
        unroll = self.wanted.unroll
        right, asked = torch.zeros(unroll), 0
        self.head.eval()
        for pack in self.corpus.packs(0, self.held_out, self.wanted.batch_tokens, None):
            autocast = torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16)
            with torch.no_grad(), autocast:
                batch = self.target.batch(self.corpus, pack)
                hits = self.unroll.right(batch, self.unroll.greedy(batch))
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
