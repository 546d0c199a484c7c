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
from typing import IO, Any

from speccli.core.deploy.wanted import (
    ENDED,
    OWN_LOG,
    WANTED,
    Launch,
    Told,
    Wanted,
    holder,
    key_of,
    log_of,
)
from speccli.core.engines import vllm_crash, vllm_start
from speccli.core.engines.local import HOST, last_error
from speccli.core.errors import ExitCode, SpecctlError, UnreachableError, UsageError
from speccli.core.kube.proof import Ask
from speccli.core.kube.record import Record, from_text
from speccli.core.locks import taken_by
from speccli.core.state import StateError, write_atomic

RECORD = "record.json"
_DEPLOYING = "deploying"
_DELETING = "deleting"
_FOLDER = "local"
_MARGIN_S = 20.0
"""Beyond the engines' grace, for the supervisor itself."""
_PATIENCE_S = 600.0
"""For another who deploys or deletes it."""
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Here:
    """One local deployment's place."""

    folder: Path

    @property
    def name(self) -> str:
        """Its name."""
        return self.folder.name

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
    def wanted(self) -> Wanted | None:
        """What was asked of its supervisor last."""
        return Wanted.read(self.folder)

    def want(self, port: int, serve: Launch, *beside: Launch) -> None:
        """Ask it of the supervisor: requests go to `serve`, and no other engine runs."""
        asked = Wanted(port, serve.revision, (serve, *beside))
        write_atomic(self.folder / WANTED, asked.text())

    @property
    def url(self) -> str | None:
        """Where clients come."""
        wanted = self.wanted
        return f"http://{HOST}:{wanted.port}" if wanted else None

    @property
    def alive(self) -> bool:
        """Whether its supervisor lives, and so one engine at least."""
        return holder(self.folder) is not None

    @property
    def told(self) -> Told:
        """What the supervisor says; nothing where none lives."""
        return Told.read(self.folder) if self.alive else Told()

    @property
    def serving(self) -> Launch | None:
        """The engine that requests go to, ready or not; None where it does not live."""
        wanted = self.wanted
        launch = wanted.launch(wanted.serve) if wanted else None
        return launch if launch is not None and self.lives(launch) else None

    @property
    def newest(self) -> Launch | None:
        """The engine that was started last."""
        wanted = self.wanted
        return wanted.engines[-1] if wanted and wanted.engines else None

    def lives(self, launch: Launch) -> bool:
        """Whether an engine runs, or is about to."""
        return self.alive and not self.told.engines.get(key_of(launch))

    @property
    def log(self) -> Path:
        """What the engine that was started last prints."""
        newest = self.newest
        return self.log_of(newest) if newest else self.folder / OWN_LOG

    def log_of(self, launch: Launch) -> Path:
        """What an engine prints."""
        return log_of(self.folder, launch.revision)

    def phase(self, launch: Launch) -> str:
        """How far its start has come."""
        try:
            return vllm_start.told(self.log_of(launch).read_text(errors="replace"))
        except OSError:
            return vllm_start.IMPORTING.words

    def healthy(self) -> bool:
        """Whether it is alive, and the engine that serves answers."""
        return self.alive and self.url is not None and _answers(self.url)

    def ready(self, launch: Launch) -> bool:
        """Whether an engine is alive and answers."""
        return self.lives(launch) and _answers(own_url(launch))

    def ending(self, launch: Launch | None = None) -> str:
        """Why an engine ended, in its own last words; with a cause and a fix where known.

        `launch` None: the one that was started last.
        """
        launch = launch or self.newest
        if launch is None:
            return "it is not there"
        told = self.told.engines.get(key_of(launch), "") or self._last_note()
        if not told:
            return "it is not there"
        try:
            log = self.log_of(launch).read_text(errors="replace")
        except OSError:
            return told
        if known := vllm_crash.diagnose(log):
            return f"{told}: {known.code}: {known.cause} ({known.evidence}) → {known.fix}"
        words = last_error(log)
        return f"{told}: {words}" if words else told

    def _last_note(self) -> str:
        try:
            return str(json.loads((self.folder / ENDED).read_text(encoding="utf-8"))["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""


def own_url(launch: Launch) -> str:
    """Where an engine itself answers."""
    return f"http://{HOST}:{launch.port}"


def _answers(url: str) -> bool:
    try:
        return ask_at(url, 3.0)("GET", "/health")[0] == 200
    except SpecctlError:
        return False


def place(state: Path, name: str) -> Here:
    """Where a deployment of this name is kept.

    Raises:
        UsageError: no name but a path.
    """
    if not _is_name(name):
        raise UsageError(f"{name!r} is no name of a deployment", hint="specctl list")
    return Here(state / _FOLDER / name)


def is_kept(state: Path, name: str) -> bool:
    """Whether one of this name is kept here."""
    return _is_name(name) and (place(state, name).folder / RECORD).is_file()


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def every(state: Path) -> list[Here]:
    """All that are kept, by name."""
    try:
        folders = sorted(p for p in (state / _FOLDER).iterdir() if (p / RECORD).is_file())
    except OSError:
        return []
    return [Here(folder) for folder in folders]


def stop(here: Here) -> None:
    """End the engines: their running requests finish, for so long as their recipe says.

    Raises:
        SpecctlError: it does not end.
    """
    wanted = here.wanted
    graces = [each.grace_s for each in wanted.engines] if wanted else []
    patience = max(graces, default=0.0) + _MARGIN_S
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


class DeletedError(SpecctlError):
    """A deployment that is none any more."""

    exit_code = ExitCode.CRITICAL


@dataclass(frozen=True, slots=True)
class Standing:
    """A deployment as somebody works on it, while another may delete it."""

    here: Here
    mark: IO[str]
    """A file of its folder: where that has no name any more, the deployment is gone."""
    say: Callable[[str], None]
    give_up: float
    """Until when another is waited for, by the monotonic clock."""

    @contextlib.contextmanager
    def held(self, how: int = fcntl.LOCK_SH) -> Iterator[None]:
        """Change something of it; who would delete it waits, and who does is waited for.

        Raises:
            DeletedError: it was deleted meanwhile.
            SpecctlError: another does not come to an end.
        """
        self._take(how)
        try:
            if os.fstat(self.mark.fileno()).st_nlink == 0:
                raise DeletedError(
                    f"{self.here.name} was deleted meanwhile", hint="specctl deploy starts it anew"
                )
            yield
        finally:
            fcntl.flock(self.mark, fcntl.LOCK_UN)

    def _take(self, how: int) -> None:
        deploys = how == fcntl.LOCK_SH
        what = "deletes it" if deploys else "deploys or deletes it"
        told = False
        while True:
            try:
                return fcntl.flock(self.mark, how | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= self.give_up:
                    raise SpecctlError(
                        f"{self.here.name}: another process that {what} does not come to an end",
                        hint="see what it waits for, or give it longer: --timeout",
                    ) from error
            if not told:
                self.say(f"waiting for another process that {what}")
                told = True
            time.sleep(_LOOK_S)


def delete(here: Here, say: Callable[[str], None], limit_s: float = _PATIENCE_S) -> None:
    """End the engine and forget it, record and log included.

    Args:
        here: The deployment.
        say: Who is told.
        limit_s: How long another who works on it is waited for, seconds.

    Raises:
        SpecctlError: it does not end, or another does not.
    """
    try:
        mark = (here.folder / _DELETING).open("a", encoding="ascii")
    except FileNotFoundError:
        return say(f"{here.name} is gone")
    except OSError as error:
        raise StateError(f"cannot write in {here.folder}: {error.strerror}") from error
    with mark:
        try:
            with Standing(here, mark, say, time.monotonic() + limit_s).held(fcntl.LOCK_EX):
                if here.alive:
                    say(f"stopping the engine at {here.url}; running requests finish first")
                    stop(here)
                # The record goes first: a folder without one is no deployment.
                (here.folder / RECORD).unlink(missing_ok=True)
                (here.folder / _DELETING).unlink(missing_ok=True)
                shutil.rmtree(here.folder, ignore_errors=True)
        except DeletedError:
            # What stands there now, if anything, is another one.
            return say(f"{here.name} was deleted by another process meanwhile")
    say(f"removed {here.folder}")


@contextlib.contextmanager
def alone(
    here: Here, say: Callable[[str], None], limit_s: float = _PATIENCE_S
) -> Iterator[Standing]:
    """Deploy it, while nobody else does; who deletes it is waited for, for so many seconds.

    Raises:
        SpecctlError: somebody deploys it, or who deletes it does not come to an end.
    """
    give_up = time.monotonic() + limit_s
    with contextlib.ExitStack() as open_files:
        while True:
            try:
                here.folder.mkdir(parents=True, exist_ok=True)
                mark = open_files.enter_context((here.folder / _DELETING).open("a"))
                standing = Standing(here, mark, say, give_up)
                with standing.held():
                    file = (here.folder / _DEPLOYING).open("a+", encoding="ascii")
                    open_files.enter_context(file)
                    _claim(here, file)
                break
            except (DeletedError, FileNotFoundError):
                continue  # it is deployed anew, then
            except OSError as error:
                raise StateError(f"cannot write in {here.folder}: {error.strerror}") from error
        yield standing


def _claim(here: Here, file: IO[str]) -> None:
    """Take the lock that one who deploys has.

    Raises:
        SpecctlError: somebody else has it.
    """
    if (other := taken_by(file)) is not None:
        raise SpecctlError(
            f"{here.name} is being deployed by process {other}",
            hint="wait for it, or interrupt it: what it started goes on",
        )


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
