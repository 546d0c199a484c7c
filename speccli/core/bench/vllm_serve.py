"""A row by `vllm bench serve`, with the server's counters read around it.

The tool's own file gives the numbers (`foreign.vllm_bench` reads it). What it cannot know is added:
which prompt each request was, and whether the server worked for anybody else meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speccli.core.bench import account
from speccli.core.bench.arms import python_with_vllm
from speccli.core.bench.client import Answer
from speccli.core.bench.datasets import Prompts
from speccli.core.bench.foreign.level import Level
from speccli.core.bench.gpu import Watch
from speccli.core.bench.imports import read_levels
from speccli.core.bench.load import Shape
from speccli.core.bench.measure import Key, Sampling, idle, now
from speccli.core.bench.results import Acceptance, Row
from speccli.core.bench.run import Spec
from speccli.core.bench.server import PATHS, Growth, Identity, Server, grown_by
from speccli.core.errors import SpecctlError
from speccli.core.sources.access import Access

_BACKENDS = {"chat": "openai-chat", "completions": "openai"}
_NEEDS = "import importlib.util as u; print(u.find_spec('pandas') is not None)"
"""What reading a file of prompts takes, and a plain installation of vLLM may lack."""


@dataclass(frozen=True, slots=True)
class VllmServe:
    """Measures rows; what it needs beside a row's own arguments."""

    command: tuple[str, ...]
    """What `vllm bench serve` is called by here."""
    tokenizer: str | None
    access: Access
    seed: int
    deadline_s: float
    """For one whole answer."""
    start_s: float
    """For the tool's own start."""
    logs: Path | None

    @classmethod
    def of(cls, spec: Spec) -> VllmServe:
        """For this bench.

        Raises:
            SpecctlError: the tool is not here, or lacks a library.
        """
        python, _ = python_with_vllm()
        told = subprocess.run(
            [python, "-c", _NEEDS], capture_output=True, text=True, timeout=60, check=False
        )
        if told.stdout.strip() != "True":
            raise SpecctlError(
                f"vllm bench serve lacks pandas in {python}",
                hint=f"{python} -m pip install 'vllm[bench]', or pandas alone",
            )
        return cls(
            (str(python), "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
            spec.tokenizer,
            spec.access,
            spec.seed,
            spec.deadline_s,
            spec.start_s,
            spec.logs,
        )

    async def __call__(
        self,
        server: Server,
        identity: Identity,
        key: Key,
        prompts: Prompts,
        shape: Shape,
        sampling: Sampling,
        *,
        watch: Watch,
        salt: str,
        progress: Callable[[int, int], None],
    ) -> tuple[Row, list[Answer]]:
        """The row; answers stay with the tool."""
        del watch, progress  # it tells neither when its window opens nor how far it is
        if why := await server.gone():
            return key.empty("failed", why), []
        before = await idle(server)
        started = now()
        words = self.words(server.target.name, identity, shape, sampling, salt)
        try:
            level = await self._run(words, prompts, shape, key)
        except SpecctlError as error:
            return replace(key.empty("failed", error.message), started=started), []
        after = await server.settled(before, level.output_tokens)
        row = _row(level, key, prompts, _asked(level, shape, sampling), grown_by(before, after))
        return replace(row, started=started), []

    def words(
        self, url: str, identity: Identity, shape: Shape, sampling: Sampling, salt: str
    ) -> list[str]:
        """The arguments, but for those that name files."""
        body = {"cache_salt": salt} if identity.kind == "vllm" else {}
        words = {
            "--backend": _BACKENDS[sampling.api],
            "--base-url": url,
            "--endpoint": PATHS[sampling.api],
            "--model": identity.model,
            "--dataset-name": "custom",
            "--num-prompts": shape.requests,
            "--num-warmups": shape.warmup,
            "--custom-output-len": sampling.longest,
            "--temperature": sampling.temperature,
            "--seed": self.seed,
            "--ready-check-timeout-sec": 0,
        }
        if self.tokenizer is not None:
            words["--tokenizer"] = self.tokenizer
        if shape.rate is None:
            words["--max-concurrency"] = shape.concurrency
        else:
            words["--request-rate"] = f"{shape.rate:g}"
        if sampling.top_p is not None:
            words["--top-p"] = sampling.top_p
        if sampling.output_tokens is not None:
            body["min_tokens"] = sampling.output_tokens  # type: ignore[assignment]
        if body:
            words["--extra-body"] = json.dumps(body)
        flags = ["--skip-chat-template", "--disable-shuffle", "--disable-tqdm"]
        flags += ["--save-result", "--save-detailed"]
        if sampling.output_tokens is not None:
            flags.append("--ignore-eos")
        if self.access.insecure:
            flags.append("--insecure")
        return [*(str(word) for pair in words.items() for word in pair), *flags]

    async def _run(self, words: Sequence[str], prompts: Prompts, shape: Shape, key: Key) -> Level:
        """What the tool's file says.

        Raises:
            SpecctlError: it failed, took too long, or left no such file.
        """
        assert shape.requests is not None
        with tempfile.TemporaryDirectory(prefix="specctl-bench-") as name:
            folder = Path(name)
            rows = ({"prompt": prompt.text} for prompt in prompts.prompts[: shape.requests])
            path = folder / "prompts.jsonl"
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
            files = ["--dataset-path", str(path), "--result-dir", name]
            log = _log_of(key, self.logs or folder)
            code = await _ended(
                [*self.command, *words, *files, "--result-filename", "result.json"],
                log,
                self._environment(),
                self.start_s + self._longest_s(shape),
            )
            result = folder / "result.json"
            if code or not result.exists():
                raise SpecctlError(f"vllm bench serve ended with {code}: {_last_line(log)}")
            (level,) = read_levels(result)
            return level

    def _longest_s(self, shape: Shape) -> float:
        """How long all answers may take, each in its time."""
        assert shape.requests is not None
        if shape.rate is not None:
            return self.deadline_s * 2 + shape.requests / shape.rate
        waves = (shape.warmup + shape.requests) / (shape.concurrency or 1)
        return self.deadline_s * (1 + math.ceil(waves))

    def _environment(self) -> Mapping[str, str]:
        token = self.access.bearer()
        return {
            **os.environ,
            "VLLM_NO_USAGE_STATS": "1",
            **({"OPENAI_API_KEY": token} if token else {}),
        }


async def _ended(
    command: Sequence[str], log: Path, environment: Mapping[str, str], limit_s: float
) -> int:
    """The exit code. The tool and all it started are ended with this task.

    Raises:
        SpecctlError: it took longer than `limit_s`.
    """
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )
        try:
            return await asyncio.wait_for(process.wait(), limit_s)
        except TimeoutError as error:
            raise SpecctlError(
                f"vllm bench serve was not done after {limit_s:.0f} s", hint="--request-deadline"
            ) from error
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _log_of(key: Key, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    load = f"batch{key.batch}" if key.batch is not None else f"rate{key.rate:g}"
    return folder / f"vllm-bench-{key.arm}-{key.dataset}-{load}-{key.repeat}.log"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "without a word"


def _asked(level: Level, shape: Shape, sampling: Sampling) -> account.Ours:
    """What the server was asked for: the tool says nothing of its warm-up but that there is one."""
    unknown = shape.warmup + level.errors
    return account.Ours(
        level.requests + unknown, level.output_tokens, unknown * sampling.longest, level.errors
    )


def _row(level: Level, key: Key, prompts: Prompts, asked: account.Ours, growth: Growth) -> Row:
    whose = account.traffic(growth, asked)
    row = level.row(key.arm, key.dataset, key.repeat)
    ids = tuple(prompts.prompts[int(place)].id for place in row.samples.prompt)
    row = replace(
        row,
        batch=key.batch,
        rate=key.rate,
        samples=replace(row.samples, prompt=ids),
        acceptance=_acceptance(level.acceptance, growth, whose),
    )
    if whose.foreign and row.state != "failed":
        row = replace(row, state="contaminated", reason=whose.foreign, contaminated=True)
    return row


def _acceptance(told: Acceptance, growth: Growth, whose: account.Traffic) -> Acceptance:
    """The tool's, of its measured requests alone, once it is known that nobody else is in it."""
    counted = account.acceptance((), (), growth, whose)
    if told.source == "none" or whose.foreign or whose.missing:
        return counted
    return replace(
        told,
        rate=replace(told.rate, reason=None),
        length=replace(told.length, reason=None),
        tokens_per_step=counted.tokens_per_step,
        counters=counted.counters,
    )
