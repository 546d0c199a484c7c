"""Stage 2: the target answers the prompts itself, with vLLM's offline engine.

A head trained on the target's own text is right more often than one trained on a data set's
answers, which the target would not have given.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from draft_training import corpus
from draft_training.events import Failed, Progress, named, tell
from draft_training.job import Job

PROMPTS = "prompts.npz"
"""What is to be answered."""
_ENDED = "answered.json"
"""There once the prompts were answered, all or as many as time was for: then tests alone are."""
_LEAST = 8
"""Shorter answers teach nothing past the first positions."""
_LOOK_S = 1.0
_END_S = 30.0
"""For an engine to end, once it has said all it has."""


def files(job: Job) -> list[Path]:
    """What has been answered so far."""
    return sorted(job.work.glob("answers-*.npz"))


def held_files(job: Job) -> list[Path]:
    """Greedy answers to held-out prompts, a file a test."""
    return sorted(job.work.glob("held-*.npz"))


def test_of(path: Path) -> str:
    """The test that such a file, or its prompts, are of."""
    return path.stem.partition("-")[2]


def run(job: Job) -> dict[str, Any]:
    """Writes `work/answers-NNNN.npz`, a chunk each; goes on after the chunks that are there."""
    asked = corpus.read([job.work / PROMPTS])
    chunk = job.answers.chunk
    starts = range(0, len(asked), chunk)
    ended = job.work / _ENDED
    missing = [s for s in starts if not ended.exists() and not _path(job, s // chunk).exists()]
    begun = time.monotonic()
    if missing or _unanswered(job):
        _sampling(job)
        progress = _Progress(len(missing), job.answers.seconds)
        if job.answers.engines > 1 and missing:
            _beside_each_other(job, missing, progress)
        else:
            for tokens in _answer(job, missing, held=True):
                progress.chunk(tokens)
    made = corpus.read(files(job))
    if not len(made):
        raise Failed("no-answers", "the target gave no usable answer", "raise answers.seconds")
    facts = {
        "answers": len(made),
        "answer_tokens": made.answer_tokens,
        "seconds": round(time.monotonic() - begun, 1),
    }
    ended.write_text(json.dumps(facts), encoding="utf-8")
    tell("said", stage="answers", **facts)
    return facts


class _Progress:
    """Chunks that came, how fast, and how long yet."""

    def __init__(self, chunks: int, seconds: float | None) -> None:
        self.chunks, self.done, self.tokens = chunks, 0, 0
        self.told = Progress("answers", every_s=0.0)
        self.seconds, self.first = seconds, 0.0

    def chunk(self, tokens: int) -> None:
        """One more is on disk."""
        now = time.monotonic()
        self.first = self.first or now
        self.done += 1
        self.tokens += tokens
        share = self.done / self.chunks
        if self.seconds is not None:
            share = max(share, (now - self.first) / self.seconds)
        rate = round(self.tokens / (now - self.told.started))
        self.told.at(min(1.0, share), answer_tokens=self.tokens, tokens_per_s=rate)


def _beside_each_other(job: Job, missing: list[int], progress: _Progress) -> None:
    """Several engines, each with chunks of its own; what they have on disk counts.

    Raises:
        Failed: as the first engine that failed says.
    """
    context = multiprocessing.get_context("spawn")
    heard: Any = context.Queue()
    count = min(job.answers.engines, len(missing))
    engines = [
        context.Process(target=_engine, args=(job, missing[n::count], heard, n == 0))
        for n in range(count)
    ]
    for engine in engines:
        engine.start()
    try:
        ended = 0
        while ended < count and any(engine.is_alive() for engine in engines):
            ended += _hear(heard, progress)
        while not heard.empty():
            _hear(heard, progress)
        for engine in engines:
            engine.join(_END_S)
        killed = [engine.exitcode for engine in engines if engine.exitcode]
        if killed:
            fix = "lower answers.engines or answers.gpu_memory"
            raise Failed("out-of-memory", f"an engine exited with {killed[0]}", fix)
    finally:
        for engine in engines:
            engine.terminate()


def _hear(heard: Any, progress: _Progress) -> bool:
    """One thing that an engine said; whether it was that it is done."""
    import queue

    try:
        told = heard.get(timeout=_LOOK_S)
    except queue.Empty:
        return False
    if told is None:
        return True
    if not isinstance(told, int):
        raise Failed(*told)
    progress.chunk(told)
    return False


def _engine(job: Job, starts: list[int], heard: Any, held: bool) -> None:
    """One process: chunks in, tokens of each out, or why it failed."""
    try:
        for tokens in _answer(job, starts, held=held):
            heard.put(tokens)
        heard.put(None)
    except Exception as error:  # noqa: BLE001 - told to the parent by its name
        failure = named(error)
        heard.put((failure.kind, str(failure), failure.fix))


def _path(job: Job, number: int) -> Path:
    return job.work / f"answers-{number:04d}.npz"


def _unanswered(job: Job) -> list[Path]:
    """Held-out prompts that have no answers yet."""
    asked = sorted(job.work.glob("asked-*.npz"))
    return [path for path in asked if not held_file(job, test_of(path)).exists()]


def held_file(job: Job, test: str) -> Path:
    """Where a test's answers are."""
    return job.work / f"held-{test}.npz"


def _answer(job: Job, starts: list[int], *, held: bool) -> Iterator[int]:
    """Answers chunks and keeps them; yields the answer tokens of each. `held`: the tests first."""
    asked = corpus.read([job.work / PROMPTS])
    kinds, engine = _sampling(job), _vllm(job)
    try:
        if held:
            _held_out(job, engine)
        yield from _chunks(job, asked, starts, engine, kinds)
    finally:
        # Its core is a process of its own, and this one would wait for it at its end.
        core = getattr(getattr(engine, "llm_engine", None), "engine_core", None)
        if core is not None:
            core.shutdown()


def _held_out(job: Job, engine: Any) -> None:
    """Every test's prompts, answered greedily."""
    from vllm import SamplingParams

    greedy = SamplingParams(temperature=0.0, max_tokens=job.answers.held_tokens, detokenize=False)
    for path in _unanswered(job):
        asked = corpus.read([path]).documents
        inputs = [{"prompt_token_ids": ids.tolist()} for ids in asked]
        came = engine.generate(inputs, [greedy] * len(inputs), use_tqdm=False)
        documents, lengths, _ = _documents(came)
        corpus.write(held_file(job, test_of(path)), documents, lengths)


def _documents(came: Any) -> tuple[list[list[int]], list[int], int]:
    """(prompts with their answers, lengths of the prompts, answer tokens)."""
    documents, lengths, tokens = [], [], 0
    for request in came:
        for answer in request.outputs:
            if len(answer.token_ids) >= _LEAST:
                documents.append([*request.prompt_token_ids, *answer.token_ids])
                lengths.append(len(request.prompt_token_ids))
                tokens += len(answer.token_ids)
    return documents, lengths, tokens


def _chunks(
    job: Job, asked: corpus.Corpus, starts: list[int], engine: Any, kinds: list[Any]
) -> Iterator[int]:
    wanted, begun = job.answers, time.monotonic()
    for start in starts:
        part = asked.documents[start : start + wanted.chunk]
        inputs = [{"prompt_token_ids": p.tolist()} for p in part for _ in kinds]
        came = engine.generate(inputs, kinds * len(part), use_tqdm=False)
        documents, lengths, tokens = _documents(came)
        corpus.write(_path(job, start // wanted.chunk), documents, lengths)
        yield tokens
        if wanted.seconds is not None and time.monotonic() - begun >= wanted.seconds:
            return


def _vllm(job: Job) -> Any:
    """An engine; eager where it takes no graphs without compilation."""
    from vllm import LLM

    wanted = job.answers
    share = wanted.gpu_memory / wanted.engines
    more: dict[str, Any] = {"gpu_memory_utilization": share, "enforce_eager": wanted.eager}
    if wanted.engines > 1 and (cache := _cache_bytes(share)):
        # Engines that start together would each take the others' growth for their own.
        more |= {"gpu_memory_utilization": share / 2, "kv_cache_memory_bytes": cache}
    if wanted.at_once is not None:
        more["max_num_seqs"] = wanted.at_once
    more |= {
        "max_model_len": wanted.max_prompt_tokens + wanted.max_tokens + 16,
        "seed": job.seed,
        "disable_log_stats": True,
    }
    if wanted.compile or wanted.eager:
        return LLM(job.target, **more)
    graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    try:
        return LLM(job.target, compilation_config=graphs, **more)
    except Exception as error:  # noqa: BLE001 - whatever it was, it may start without them
        tell("said", stage="answers", without_graphs=str(error).strip()[:200])
        return LLM(job.target, **{**more, "enforce_eager": True})


def _cache_bytes(share: float) -> int | None:
    """Half of an engine's share of the GPU, in bytes; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    return int(torch.cuda.mem_get_info()[1] * share / 2)


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
