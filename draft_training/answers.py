"""Stage 2: the target answers the prompts itself, with vLLM's offline engine.

A head trained on the target's own text is right more often than one trained on a data set's
answers, which the target would not have given.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from draft_training import corpus, prompts
from draft_training.events import Failed, Progress, tell
from draft_training.job import Job

_LEAST = 8
"""Shorter answers teach nothing past the first positions."""


def files(job: Job) -> list[Path]:
    """What has been answered so far."""
    return sorted(job.work.glob("answers-*.npz"))


def run(job: Job) -> dict[str, Any]:
    """Writes `work/answers-NNNN.npz`, a chunk each; goes on after the chunks that are there."""
    asked = corpus.read([job.work / prompts.FILE])
    chunk = job.answers.chunk
    starts = range(0, len(asked), chunk)
    missing = [s for s in starts if not _path(job, s // chunk).exists()]
    if missing:
        _answer(job, asked, missing)
    made = corpus.read(files(job))
    if not len(made):
        raise Failed("no-answers", "the target gave no usable answer", "raise answers.seconds")
    facts = {"answers": len(made), "answer_tokens": made.answer_tokens}
    tell("said", stage="answers", **facts)
    return facts


def _path(job: Job, number: int) -> Path:
    return job.work / f"answers-{number:04d}.npz"


def _answer(job: Job, asked: corpus.Corpus, missing: list[int]) -> None:
    from vllm import LLM

    wanted = job.answers
    engine = LLM(
        job.target,
        max_model_len=wanted.max_prompt_tokens + wanted.max_tokens + 16,
        seed=job.seed,
        gpu_memory_utilization=wanted.gpu_memory,
        enforce_eager=wanted.eager,
        disable_log_stats=True,
    )
    kinds = _sampling(job)
    progress = Progress("answers", every_s=0.0)
    tokens = 0
    for done, start in enumerate(missing, 1):
        part = asked.documents[start : start + wanted.chunk]
        inputs = [{"prompt_token_ids": p.tolist()} for p in part for _ in kinds]
        came = engine.generate(inputs, kinds * len(part), use_tqdm=False)
        documents, lengths = [], []
        for request in came:
            for answer in request.outputs:
                if len(answer.token_ids) >= _LEAST:
                    documents.append([*request.prompt_token_ids, *answer.token_ids])
                    lengths.append(len(request.prompt_token_ids))
                    tokens += len(answer.token_ids)
        corpus.write(_path(job, start // wanted.chunk), documents, lengths)
        spent = time.monotonic() - progress.started
        share = done / len(missing)
        if wanted.seconds is not None:
            share = max(share, spent / wanted.seconds)
        progress.at(min(1.0, share), answer_tokens=tokens, tokens_per_s=round(tokens / spent))
        if share >= 1:
            break


def _sampling(job: Job) -> list[Any]:
    from vllm import SamplingParams

    wanted = job.answers
    common: dict[str, Any] = {"max_tokens": wanted.max_tokens, "detokenize": False}
    kinds = [SamplingParams(temperature=0.0, **common)] if wanted.greedy else []
    if wanted.samples:
        kinds.append(
            SamplingParams(
                temperature=wanted.temperature, top_p=wanted.top_p, n=wanted.samples, **common
            )
        )
    if not kinds:
        raise Failed("bad-job", "neither greedy nor sampled answers", "set answers.samples")
    return kinds
