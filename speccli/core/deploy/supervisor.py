"""Owns a deployment's engines: `python -m speccli.core.deploy.supervisor FOLDER`.

It holds the deployment's port, passes requests on to the engine that serves, and starts, leaves
and ends engines as `wanted.json` says. It outlives the command that started it, ends each engine's
whole process group, and takes them along when it is killed itself. While it lives it holds a lock
on `FOLDER/lock`, which has its process id: a lock cannot be mistaken for another process's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from speccli.core.deploy.front import Front, Target
from speccli.core.deploy.wanted import ENDED, LOCK, WANTED, Launch, Told, Wanted, key_of
from speccli.core.engines.local import HOST, EngineStartError, LocalEngine

_LOOK_S = 0.1
_LOCK_S = 1.0
_END_S = 10.0
"""Of an engine's grace, what is kept for its end, once it has no requests any more."""
_LOGS = 4
"""Logs of engines that are kept."""


@dataclass(slots=True)
class _Kept:
    """An engine that was started."""

    launch: Launch
    engine: LocalEngine
    target: Target
    pid: int = 0
    ended: str = ""
    """Why, where it ended by itself or never began."""
    leaving: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Supervisor:
    folder: Path
    wanted: Wanted
    front: Front = field(default_factory=Front)
    kept: dict[str, _Kept] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    told: Told | None = None
    """What was said last."""

    async def run(self) -> int:
        """Until told to stop (0), or until no wanted engine lives (1)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop.set)
        try:
            await self.front.listen(HOST, self.wanted.port)
        except OSError as error:
            _note(self.folder, f"port {self.wanted.port} cannot be had: {error.strerror}")
            return 1
        try:
            while not self.stop.is_set():
                self._follow()
                if why := self._all_over():
                    _note(self.folder, why)
                    return 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), _LOOK_S)
            return 0
        finally:
            self.front.close()
            self.front.target = None
            await asyncio.gather(*(k.leaving or self._leave(k) for k in self.kept.values()))

    def _follow(self) -> None:
        """Do what is wanted now, and say how it is."""
        self.wanted = Wanted.read(self.folder) or self.wanted
        wanted = {key_of(each): each for each in self.wanted.engines}
        served = self.wanted.launch(self.wanted.serve)
        for key, each in list(self.kept.items()):
            if not each.ended and each.leaving is None and not each.engine.running:
                each.ended = "the engine ended by itself"
                self._forget_group(each)
            if key not in wanted:
                if each.leaving is None:
                    each.leaving = asyncio.create_task(self._leave(each))
                elif each.leaving.done():
                    del self.kept[key]
        if not any(each.leaving for each in self.kept.values()):
            for key in wanted.keys() - self.kept.keys():
                self.kept[key] = self._started(wanted[key])
        present = self.kept.get(key_of(served)) if served else None
        self.front.target = present.target if present else None
        self._tell(present)

    def _started(self, launch: Launch) -> _Kept:
        engine = launch.engine(self.folder)
        target = Target(HOST, launch.port, f"revision {launch.revision}")
        kept = _Kept(launch, engine, target)
        try:
            logs = sorted(self.folder.glob("engine-*.log"), key=lambda path: path.stat().st_mtime)
            for old in logs[: -_LOGS + 1]:
                old.unlink(missing_ok=True)
            engine.start()
        except (EngineStartError, OSError) as error:  # a full disk ends no engine that serves
            kept.ended = str(error)
        kept.pid = engine.pid or 0
        return kept

    def _forget_group(self, each: _Kept) -> None:
        """What an engine that ended has left of its group, ends."""
        with contextlib.suppress(OSError):
            each.engine.stop(0.0)

    async def _leave(self, each: _Kept) -> None:
        """Let its requests end, then end it."""
        give_up = time.monotonic() + max(0.0, each.launch.grace_s - _END_S)
        while each.target.requests and each.engine.running and time.monotonic() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S / 2)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(each.engine.stop, _END_S)

    def _all_over(self) -> str:
        """Why nothing is left to do; empty while there is."""
        now = [self.kept.get(key_of(each)) for each in self.wanted.engines]
        ended = [each.ended for each in now if each is not None and each.ended]
        return ended[-1] if ended and len(ended) == len(now) else ""

    def _tell(self, present: _Kept | None) -> None:
        told = Told(
            serve=present.launch.revision if present else None,
            engines={key: each.ended for key, each in self.kept.items()},
            pids={key: each.pid for key, each in self.kept.items()},
            leaving=sum(each.target.requests for each in self.kept.values() if each.leaving),
        )
        if told != self.told:
            told.write(self.folder)
            self.told = told


def main(folder: Path) -> int:
    """Run until told to stop, or until the engines end; 0 or 1."""
    wanted = Wanted.read(folder)
    if wanted is None:
        sys.stderr.write(f"{folder}: no {WANTED}\n")
        return 1
    with (folder / LOCK).open("a+", encoding="ascii") as lock:
        if not _locked(lock):
            sys.stderr.write("another supervisor has this deployment\n")
            return 1
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        _raise_limit()
        Told().write(folder)
        (folder / ENDED).unlink(missing_ok=True)
        return asyncio.run(_Supervisor(folder, wanted).run())


def _locked(file: IO[str]) -> bool:
    """Take the lock. Whoever looks whether somebody has it holds it for a moment."""
    give_up = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.02)


def _raise_limit() -> None:
    """A stream holds two connections, and 1,024 is a usual limit."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _note(folder: Path, why: str) -> None:
    with contextlib.suppress(OSError):
        text = json.dumps({"at": time.time(), "why": why})
        (folder / ENDED).write_text(text, encoding="utf-8")


def _detach() -> None:
    """Become nobody's child: whoever started this need not wait for its end."""
    if os.fork():
        os._exit(0)


if __name__ == "__main__":
    _detach()
    sys.exit(main(Path(sys.argv[1])))
