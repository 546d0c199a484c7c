"""What is watched while a head is trained: acceptance on held-out prompts, and a log of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from draft_training import answers, corpus, walk
from draft_training.corpus import Corpus
from draft_training.job import Job
from draft_training.target import Target
from draft_training.unroll import Unroll


class Held:
    """The target's greedy answers to held-out prompts, by test."""

    def __init__(self, job: Job, target: Target, unroll: Unroll) -> None:
        self.wanted, self.target, self.unroll = job.training, target, unroll
        self.device = target.device.partition(":")[0]
        self.tests = {
            answers.test_of(path): corpus.read([path]) for path in answers.held_files(job)
        }
        self.told_s = 0.0

    def due(self, spent_s: float) -> bool:
        """Whether it is time to measure again."""
        return bool(self.tests) and spent_s - self.told_s >= self.wanted.measure_every_s

    def measure(self) -> dict[str, Any]:
        """Each test's acceptance, as `walk.summary` tells it."""
        return {
            name: walk.summary(self._right(test), self.wanted.k)
            for name, test in self.tests.items()
        }

    def _right(self, test: Corpus) -> Iterator[walk.Right]:
        for pack in test.packs(0, len(test), self.wanted.batch_tokens, None):
            with torch.no_grad(), torch.autocast(self.device, dtype=torch.bfloat16):
                batch = self.target.batch(test, pack)
                # What stands there is the target's own choice: its lm_head need not be asked.
                right = self.unroll.right(batch, self.unroll.text(batch)).cpu().numpy()
            at = 0
            for i in pack:
                learnt = len(test.documents[i]) - 1 - test.prompt_lengths[i]
                yield right[:, at : at + learnt]
                at += learnt


def in_words(found: dict[str, Any]) -> dict[str, str]:
    """A test's acceptance in a few words."""
    return {
        name: told["unknown"]
        if "unknown" in told
        else f"{told['rate']:.3f} at K={told['k']} ("
        + " ".join(f"{share:.3f}" for share in told["by_position"])
        + ")"
        for name, told in found.items()
    }


class Log:
    """A file with a JSON object a line; a run that goes on appends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens, self.at_s = 0, -1.0

    def write(self, **facts: Any) -> None:
        """One line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    def at_first(self) -> dict[str, Any]:
        """What held-out prompts said before the first step; nothing, if that is not known."""
        for line in self.path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "held" in row:
                return dict(row["held"]) if row["step"] == 0 else {}
        return {}

    def rate(self, tokens: int, at_s: float) -> int | None:
        """Tokens a second since this was asked last; None the first time."""
        known, spent = self.at_s >= 0, at_s - self.at_s
        made = tokens - self.tokens
        self.tokens, self.at_s = tokens, at_s
        return round(made / spent) if known and spent > 0 else None
