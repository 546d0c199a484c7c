"""Another end of the stages: answers as token ids with a mask, which SpecForge trains on."""

from __future__ import annotations

import json
from typing import Any

from draft_training import answers, corpus
from draft_training.events import Failed, tell
from draft_training.job import Job

FILE = "answers.jsonl"


def run(job: Job) -> dict[str, Any]:
    """Writes `work/answers.jsonl`: `input_ids`, and `loss_mask` 1 where the answer is."""
    made = corpus.read(answers.files(job))
    if not len(made):
        raise Failed("no-answers", "there are no answers", "run the stage answers first")
    path = job.work / FILE
    held = path.with_suffix(".part")
    with held.open("w", encoding="utf-8") as file:
        for ids, prompt in zip(made.documents, made.prompt_lengths, strict=True):
            mask = [0] * prompt + [1] * (len(ids) - prompt)
            file.write(json.dumps({"input_ids": ids.tolist(), "loss_mask": mask}) + "\n")
    held.replace(path)
    facts = {"file": str(path), "answers": len(made)}
    tell("said", stage="tokens", **facts)
    return facts
