"""A row by another tool, with the server's counters read around it.

The tool's own files give the numbers (`foreign` reads them). What it cannot know is added: which
prompt each request was, and whether the server worked for anybody else meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from speccli.core.bench import account
from speccli.core.bench.client import Answer
from speccli.core.bench.datasets import Prompt, Prompts
from speccli.core.bench.foreign.level import Level
from speccli.core.bench.gpu import Watch
from speccli.core.bench.imports import read_levels
from speccli.core.bench.load import Shape
from speccli.core.bench.measure import Key, Sampling, idle, now
from speccli.core.bench.results import Acceptance, Row
from speccli.core.bench.run import Spec
from speccli.core.bench.server import Growth, Identity, Server, grown_by
from speccli.core.errors import SpecctlError
from speccli.core.sources.access import Access


@dataclass(frozen=True, slots=True)
class Job:
    """One row, as a tool needs to know it."""

    url: str
    identity: Identity
    shape: Shape
    sampling: Sampling
    prompts: Sequence[Prompt]
    """The measured ones, in their order."""
    salt: str
    """Of the row: none finds the prompts of another one in the prefix cache."""
    access: Access
    tokenizer: str | None
    seed: int
    folder: Path
    """For its files."""

    @property
    def asked(self) -> dict[str, object]:
        """What goes into every request beside what the tools have options for."""
        body: dict[str, object] = {}
        if self.identity.kind == "vllm":
            body["cache_salt"] = self.salt
        elif self.sampling.output_tokens is not None:
            body["min_tokens"] = self.sampling.output_tokens
        return body


class Tool(Protocol):
    """A load generator that is called."""

    @property
    def name(self) -> str:
        """What it is called, for messages."""

    def command(self, job: Job) -> list[str]:
        """The words to call it by; writes the prompts where it will look for them."""

    def result(self, job: Job) -> Path:
        """Where it leaves its result."""

    def environment(self, job: Job) -> Mapping[str, str]:
        """What its environment has beside this one's."""

    def prompt_ids(self, told: Sequence[str], prompts: Sequence[Prompt]) -> tuple[str, ...]:
        """Of each request, by what the result's reader calls its prompt."""

    def acceptance(self, told: Acceptance, counted: Acceptance) -> Acceptance:
        """Which one is of the measured requests; nobody else was there."""


@dataclass(frozen=True, slots=True)
class ByTool:
    """Measures rows with a tool."""

    tool: Tool
    spec: Spec

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
        with tempfile.TemporaryDirectory(prefix="specctl-bench-") as folder:
            job = self._job(server.target.name, identity, prompts, shape, sampling, salt, folder)
            try:
                level = await self._run(job, key)
            except SpecctlError as error:
                return replace(key.empty("failed", error.message), started=started), []
        after = await server.settled(before, level.output_tokens)
        row = self._row(level, key, job, grown_by(before, after))
        return replace(row, started=started), []

    def _job(
        self,
        url: str,
        identity: Identity,
        prompts: Prompts,
        shape: Shape,
        sampling: Sampling,
        salt: str,
        folder: str,
    ) -> Job:
        return Job(
            url,
            identity,
            shape,
            sampling,
            prompts.prompts[: shape.requests],
            salt,
            self.spec.access,
            self.spec.tokenizer,
            self.spec.seed,
            Path(folder),
        )

    async def _run(self, job: Job, key: Key) -> Level:
        """What the tool's file says.

        Raises:
            SpecctlError: it failed, took too long, or left no such file.
        """
        log = _log_of(key, self.tool.name, self.spec.logs or job.folder)
        environment = {**os.environ, **self.tool.environment(job)}
        limit_s = self.spec.start_s + self._longest_s(job.shape)
        code = await _ended(self.tool.command(job), log, environment, limit_s)
        if code is None:
            raise SpecctlError(f"{self.tool.name} was not done after {limit_s:.0f} s")
        result = self.tool.result(job)
        if code or not result.exists():
            raise SpecctlError(f"{self.tool.name} ended with {code}: {_last_line(log)}")
        (level,) = read_levels(result)
        return level

    def _longest_s(self, shape: Shape) -> float:
        """How long all answers may take, each in its time."""
        assert shape.requests is not None
        if shape.rate is not None:
            return self.spec.deadline_s * 2 + shape.requests / shape.rate
        waves = (shape.warmup + shape.requests) / (shape.concurrency or 1)
        return self.spec.deadline_s * (1 + math.ceil(waves))

    def _row(self, level: Level, key: Key, job: Job, growth: Growth) -> Row:
        simulated = job.identity.simulated
        whose = account.traffic(growth, _asked(level, job), simulated=simulated)
        counted = account.acceptance((), (), growth, whose)
        known = whose.foreign is None and whose.missing is None
        row = level.row(key.arm, key.dataset, key.repeat)
        ids = self.tool.prompt_ids(row.samples.prompt, job.prompts)
        row = replace(
            row,
            batch=key.batch,
            rate=key.rate,
            samples=replace(row.samples, prompt=ids),
            acceptance=self.tool.acceptance(level.acceptance, counted) if known else counted,
        )
        told = None if whose.missing else bool(whose.foreign)
        row = replace(row, contaminated=told, contaminated_reason=whose.missing)
        if whose.foreign and row.state != "failed":
            row = replace(row, state="contaminated", reason=whose.foreign)
        return row


async def _ended(
    command: Sequence[str], log: Path, environment: Mapping[str, str], limit_s: float
) -> int | None:
    """The exit code; None after `limit_s`. The tool and all it started end with this task."""
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
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _log_of(key: Key, tool: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    load = f"batch{key.batch}" if key.batch is not None else f"rate{key.rate:g}"
    name = f"{tool.replace(' ', '-')}-{key.arm}-{key.dataset}-{load}-{key.repeat}.log"
    return folder / name


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "without a word"


def _asked(level: Level, job: Job) -> account.Ours:
    """What the server was asked for: tools say nothing of their warm-up but that there is one."""
    unknown = job.shape.warmup + level.errors
    return account.Ours(
        level.requests + unknown, level.output_tokens, unknown * job.sampling.longest, level.errors
    )
