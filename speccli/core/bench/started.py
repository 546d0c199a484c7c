"""An arm that is up: connected to, and started first where specctl starts it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from speccli.core.bench import arms as arms_
from speccli.core.bench import facts as facts_
from speccli.core.bench import gpu_readers
from speccli.core.bench.arms import ArmSpec, Local
from speccli.core.bench.gpu import Look, Looker
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import ServerFacts
from speccli.core.bench.server import Identity, Server
from speccli.core.engines.local import LocalEngine, free_port
from speccli.core.sources.targets import Target, parse_target

if TYPE_CHECKING:
    from speccli.core.bench.run import Spec


@dataclass(frozen=True, slots=True)
class Up:
    """A server that answers."""

    server: Server
    identity: Identity
    engine: LocalEngine | None = None
    command: tuple[str, ...] | None = None
    start_s: float | None = None
    facts: ServerFacts | None = None

    @property
    def runner(self) -> str | None:
        """Which model runner it uses, where its log says so."""
        log = "" if self.engine is None else self.engine.log_tail(10_000)
        return "v2" if "Using V2 Model Runner" in log else None

    def died(self) -> str | None:
        """Why a server that specctl started is no more; None while it lives, or is somebody's."""
        if self.engine is None or self.engine.running:
            return None
        lines = [line for line in self.engine.log_tail(200).splitlines() if "Error" in line]
        last = lines[-1].strip()[-200:] if lines else "without a word"
        return f"{last} (log: {self.engine.log_path})"


@contextlib.asynccontextmanager
async def up(arm: ArmSpec, spec: Spec, progress: Progress) -> AsyncIterator[Up]:
    """The arm's server for as long as the block lasts.

    Raises:
        SpecctlError: it did not start, or does not answer.
    """
    if isinstance(arm, Local):
        async with _local(arm, spec, progress) as found:
            yield found
    else:
        log = facts_.log_of(spec.server_logs.get(arm.name))
        async with _server(arm.target, spec) as server:
            identity = await server.meet()
            told = facts_.facts(await server.cache_config(), log)
            yield Up(server, identity, facts=facts_.with_memory(told, None, None))


def _server(target: Target, spec: Spec) -> Server:
    return Server(
        target,
        spec.access,
        api=spec.load.endpoint,
        deadline_s=spec.deadline_s,
        keep_texts=spec.keep_texts,
    )


@contextlib.asynccontextmanager
async def _local(arm: Local, spec: Spec, progress: Progress) -> AsyncIterator[Up]:
    python, version = await asyncio.to_thread(arms_.python_with_vllm)
    arm = arms_.telling(arm, version)
    engine = LocalEngine(
        python,
        arm.model,
        port=free_port(),
        speculative=arm.speculative,
        extra_args=arm.extra_args,
        env={"VLLM_NO_USAGE_STATS": "1", **arm.env},
        log_path=_log_of(arm.name, spec.logs),
    )
    looker, _ = gpu_readers.here()
    unused = await _looked(looker)
    progress.starting(arm.name, str(engine.log_path))
    began = time.monotonic()
    try:
        engine.start()
        await asyncio.to_thread(engine.wait_ready, spec.start_s, on_phase=progress.phase)
        took = time.monotonic() - began
        async with _server(parse_target(engine.url), spec) as server:
            identity = await server.meet()
            log = facts_.log_of(engine.log_path)
            told = facts_.facts(await server.cache_config(), log)
            told = facts_.with_memory(told, unused or [], await _looked(looker))
            yield Up(server, identity, engine, arms_.command_of(arm), round(took, 1), told)
    finally:
        # In a thread of its own where the loop is being cancelled: a stop must not be skipped.
        await asyncio.shield(asyncio.to_thread(engine.stop))


async def _looked(looker: Looker | None) -> list[Look] | None:
    """All GPUs now; None where they cannot be asked."""
    if looker is None:
        return None
    with contextlib.suppress(Exception):  # a GPU that does not tell is not the bench's end
        return await looker.look()
    return None


def _log_of(name: str, folder: Path | None) -> Path:
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="specctl-bench-"))
    return folder / f"{name}.log"
