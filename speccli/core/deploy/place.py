"""Where a local deployment is kept, whether it lives, and how it is ended."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccli.core.deploy.supervisor import ENDED, LOG, OWN_LOG, Launch, holder
from speccli.core.engines import vllm_crash, vllm_start
from speccli.core.engines.local import HOST, last_error
from speccli.core.errors import SpecctlError, UnreachableError
from speccli.core.kube.proof import Ask
from speccli.core.kube.record import Record, from_text
from speccli.core.state import StateError, write_atomic

RECORD = "record.json"
_DEPLOYING = "deploying"
_FOLDER = "local"
_MARGIN_S = 20.0
"""Beyond the engine's grace, for the supervisor itself."""


@dataclass(frozen=True, slots=True)
class Here:
    """One local deployment's place."""

    folder: Path

    @property
    def name(self) -> str:
        """Its name."""
        return self.folder.name

    @property
    def log(self) -> Path:
        """What the engine prints."""
        return self.folder / LOG

    def record(self) -> Record | None:
        """What is written down; None where nothing is.

        Raises:
            RecordError: it cannot be understood.
        """
        try:
            text = (self.folder / RECORD).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {self.folder / RECORD}: {error.strerror}") from error
        return from_text(text, str(self.folder / RECORD))

    def write(self, told: Record) -> Record:
        """Keep it."""
        text = json.dumps(told.to_json(), indent=1, sort_keys=True)
        write_atomic(self.folder / RECORD, text)
        return told

    @property
    def launch(self) -> Launch | None:
        """What was started last."""
        return Launch.read(self.folder)

    @property
    def url(self) -> str | None:
        """Where it answers."""
        launch = self.launch
        return f"http://{HOST}:{launch.port}" if launch else None

    @property
    def alive(self) -> bool:
        """Whether its supervisor lives, and so its engine."""
        return holder(self.folder) is not None

    def phase(self) -> str:
        """How far its start has come."""
        try:
            return vllm_start.told(self.log.read_text(errors="replace"))
        except OSError:
            return vllm_start.IMPORTING.words

    def healthy(self) -> bool:
        """Whether it is alive and answers."""
        if not self.alive or self.url is None:
            return False
        try:
            return ask_at(self.url, 3.0)("GET", "/health")[0] == 200
        except SpecctlError:
            return False

    def ending(self) -> str:
        """Why it ended, in its own last words; with a cause and a fix where they are known."""
        try:
            log = self.log.read_text(errors="replace")
            told = str(json.loads((self.folder / ENDED).read_text(encoding="utf-8"))["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return "it is not there"
        if known := vllm_crash.diagnose(log):
            return f"{told}: {known.code}: {known.cause} ({known.evidence}) → {known.fix}"
        words = last_error(log)
        return f"{told}: {words}" if words else told


def place(state: Path, name: str) -> Here:
    """Where a deployment of this name is kept."""
    return Here(state / _FOLDER / name)


def is_kept(state: Path, name: str) -> bool:
    """Whether one of this name is kept here."""
    return "/" not in name and (place(state, name).folder / RECORD).is_file()


def every(state: Path) -> list[Here]:
    """All that are kept, by name."""
    try:
        folders = sorted(p for p in (state / _FOLDER).iterdir() if (p / RECORD).is_file())
    except OSError:
        return []
    return [Here(folder) for folder in folders]


def stop(here: Here) -> None:
    """End the engine: its running requests finish, for so long as its recipe says.

    Raises:
        SpecctlError: it does not end.
    """
    launch = here.launch
    patience = (launch.grace_s if launch else 0.0) + _MARGIN_S
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
        give_up = time.monotonic() + seconds
        if pid := holder(here.folder):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
        while here.alive and time.monotonic() < give_up:
            time.sleep(0.05)
        if not here.alive:
            return
    raise SpecctlError(f"{here.name} does not end", hint=f"see {here.folder / OWN_LOG}")


def delete(here: Here, say: Callable[[str], None]) -> None:
    """End the engine and forget it, record and log included."""
    url = here.url
    if here.alive:
        say(f"stopping the engine at {url}; running requests finish first")
        stop(here)
    # The record goes first: a folder without one is no deployment.
    (here.folder / RECORD).unlink(missing_ok=True)
    shutil.rmtree(here.folder, ignore_errors=True)
    say(f"removed {here.folder}")


@contextlib.contextmanager
def alone(here: Here) -> Iterator[None]:
    """Deploy it, while nobody else does.

    Raises:
        SpecctlError: somebody does.
    """
    try:
        here.folder.mkdir(parents=True, exist_ok=True)
        file = (here.folder / _DEPLOYING).open("a+", encoding="ascii")
    except OSError as error:
        raise StateError(f"cannot write in {here.folder}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise SpecctlError(
                f"{here.name} is being deployed by process {file.read().strip() or 'unknown'}",
                hint="wait for it, or interrupt it: what it started goes on",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def ask_at(url: str, answer_s: float) -> Ask:
    """How a server of this machine is asked."""

    def ask(method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url + path, data, headers, method=method)
        # A proxy of the environment is for elsewhere.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=answer_s) as answer:
                return int(answer.status), bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise UnreachableError(f"no answer from {url}{path}: {reason}") from error

    return ask
