"""From one engine of a local deployment to the next, with its clients' requests in mind.

Where there is room, the next one starts beside the present one, is proven at a port of its own,
and gets the deployment's requests then; the former one ends when its last answer has.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from speccli.core.deploy.beside import Room, room_beside
from speccli.core.deploy.place import Here, Standing, own_url, stop
from speccli.core.deploy.wanted import ENDED, OWN_LOG, Launch, key_of
from speccli.core.engines.local import HOST, free_port
from speccli.core.errors import SpecctlError
from speccli.core.sources.identify import SUPERVISOR

_LOCK_S = 20.0
"""How long a supervisor may take to take its lock, on a busy machine."""
_POLL_S = 0.5
_LOOK_S = 0.05
_SWITCH_S = 20.0
"""How long a supervisor may take to follow."""
_KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
End = Literal["done", "failed", "late"]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Change:
    """An engine on its way, and the one that served before it."""

    here: Here
    launch: Launch
    former: Launch | None
    beside: bool
    """Whether the former one goes on serving meanwhile."""

    @property
    def port(self) -> int:
        """The deployment's."""
        return port_of(self.here)

    def switch(self, say: Say) -> None:
        """Send new requests to the next engine, and let the former one end.

        Raises:
            SpecctlError: the supervisor does not follow.
        """
        if self.former is None or not self.beside:
            return
        self.here.want(self.port, self.launch, self.former)
        self._until(lambda: self.here.told.serve == self.launch.revision, _SWITCH_S)
        self.here.want(self.port, self.launch)
        left = f"revision {self.former.revision}"
        say(f"revision {self.launch.revision} serves; {left} ends when its last answer has")
        self._gone(self.former)

    def withdraw(
        self,
        standing: Standing,
        limit_s: float,
        say: Say,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """End the next engine; whether the former one serves (again).

        Where it was stopped first it is started anew.

        Raises:
            DeletedError: the deployment was deleted meanwhile.
        """
        former = self.former
        if former is None:
            return False
        with standing.held():
            if self.beside and self.here.lives(former):
                self.here.want(self.port, former)
                self._gone(self.launch)
                return True
            if not self.here.alive and not (self.here.folder / ENDED).exists():
                return False  # it was killed from outside
            say(f"starting revision {former.revision} again, which served before")
            port = self.port
            stop(self.here)
            former = replace(former, port=free_port())
            start(self.here, port, former)
        return ready(self.here, former, limit_s, say, sleep)[0] == "done"

    def _gone(self, launch: Launch) -> None:
        """Wait for an engine's end: what it takes is free then."""
        key = key_of(launch)
        self._until(lambda: key not in self.here.told.engines, launch.grace_s + _SWITCH_S)

    def _until(self, true: Callable[[], bool], limit_s: float) -> None:
        give_up = time.monotonic() + limit_s
        while not true():
            if time.monotonic() >= give_up or not self.here.alive:
                raise SpecctlError(
                    f"the supervisor of {self.here.name} does not follow",
                    hint=f"see {self.here.folder / OWN_LOG}",
                )
            time.sleep(_LOOK_S)


def port_of(here: Here) -> int:
    """The deployment's port: clients keep it over every change."""
    wanted = here.wanted
    return wanted.port if wanted else free_port()


def begin(here: Here, launch: Launch, *, protected: bool, beside: bool | None, say: Say) -> Change:
    """Start an engine: beside the one that serves, where that is to be protected and fits.

    Args:
        here: The deployment.
        launch: The engine.
        protected: Whether the engine that serves now has ever been ready.
        beside: True or False where somebody has said so; None: by the room there is.
        say: Who is told.

    Raises:
        SpecctlError: it cannot be started.
    """
    former = here.serving if protected else None
    if waiting := _waiting(here, launch):
        if former is None:
            here.want(port_of(here), waiting)
        else:
            say(f"revision {waiting.revision} was started before, beside {former.revision}")
        return Change(here, waiting, former, former is not None)
    side = former is not None and _side_by_side(here, former, launch, beside, say)
    port = port_of(here)
    if here.alive and here.wanted:
        if former and side:
            here.want(port, former, launch)
        else:
            here.want(port, launch)
    else:
        if here.alive:
            stop(here)
        start(here, port, launch)
    return Change(here, launch, former, side)


def _waiting(here: Here, launch: Launch) -> Launch | None:
    """The same engine, started before and not serving yet."""
    wanted = here.wanted
    for each in wanted.engines if wanted else ():
        same = each.identity == launch.identity and each.revision == launch.revision
        if same and wanted and each.revision != wanted.serve and here.lives(each):
            return each
    return None


def _side_by_side(here: Here, former: Launch, launch: Launch, asked: bool | None, say: Say) -> bool:
    now, then = f"revision {former.revision}", f"revision {launch.revision}"
    if asked is None:
        found = _room(here, former, launch)
        side, why = found.fits, f" ({found.words})"
    else:
        side, why = asked, ""
    if side:
        say(f"starting {then} beside {now}, which serves until it is proven{why}")
    else:
        say(f"stopping {now} first: nothing serves until {then} is ready{why}")
    return side


def _room(here: Here, former: Launch, launch: Launch) -> Room:
    if launch.model != former.model:
        return Room(False, "it is another model: what it takes is not known")
    group = here.told.pids.get(key_of(former))
    if not group:
        return Room(False, "the engine that serves is not known")
    try:
        reserved = float(launch.env.get(_KV_SPACE, "0")) * 2**30
    except ValueError:
        reserved = 0.0
    return room_beside(group, int(reserved))


def start(here: Here, port: int, launch: Launch) -> None:
    """Start the supervisor, and see that it has its lock.

    Raises:
        SpecctlError: it does not start.
    """
    here.folder.chmod(0o700)
    here.want(port, launch)
    (here.folder / ENDED).unlink(missing_ok=True)
    with (here.folder / OWN_LOG).open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", SUPERVISOR, str(here.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    give_up = time.monotonic() + _LOCK_S
    while not here.alive and not (here.folder / ENDED).exists():
        if time.monotonic() >= give_up:
            words = (here.folder / OWN_LOG).read_text(errors="replace").strip().splitlines()
            why = words[-1] if words else f"nothing runs after {_LOCK_S:.0f} s"
            raise SpecctlError(f"{here.name} was not started: {why}", hint=f"see {here.log}")
        time.sleep(_LOOK_S)


def ready(
    here: Here, launch: Launch, limit_s: float, say: Say, sleep: Callable[[float], None]
) -> tuple[End, str]:
    """Wait until an engine answers, ends, or is late; and why."""
    give_up = time.monotonic() + limit_s
    shown = ""
    while True:
        if here.ready(launch):
            return "done", ""
        phase = here.phase(launch)
        if not here.lives(launch):
            return "failed", f"{here.ending(launch)} (while {phase})"
        if phase != shown:
            say(phase)
            shown = phase
        if time.monotonic() >= give_up:
            return "late", f"not ready after {limit_s:.0f} s, and still {phase}"
        sleep(_POLL_S)


def asked_at(change: Change) -> str:
    """Where the next engine is proven: by itself while another serves, else where clients come."""
    return own_url(change.launch) if change.beside else f"http://{HOST}:{change.port}"
