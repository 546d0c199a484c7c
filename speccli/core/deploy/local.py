"""Deploys a recipe on this machine: the same engine line, supervised, proven and recorded."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from speccli import __version__
from speccli.core.deploy.asked import Asked
from speccli.core.deploy.gate import Gate, gate
from speccli.core.deploy.place import Here, alone, ask_at, place, stop
from speccli.core.deploy.prepare import now, who
from speccli.core.deploy.supervisor import ENDED, LAUNCH, OWN_LOG, Launch
from speccli.core.engines.local import HOST, INSTALL_HINT, find_vllm_python, free_port
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.kube.proof import prove
from speccli.core.kube.proven import Proof, Wanted
from speccli.core.kube.record import (
    Record,
    Revision,
    digest,
    plain_recipe,
    recipe_of,
    to_restore,
)
from speccli.core.manifests.options import RenderOptions, deployment_name
from speccli.core.manifests.sizes import times
from speccli.core.plan import Plan, plan
from speccli.core.preflight.base import Verdict
from speccli.core.state import write_atomic

_LOCK_S = 20.0
"""How long a supervisor may take to take its lock, on a busy machine."""
_POLL_S = 0.5
_ANSWER_S = 120.0
End = Literal["done", "failed", "late"]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalOutcome:
    """How it went."""

    record: Record
    gate: Gate
    url: str
    log: Path
    end: End | None
    """None: nothing was waited for."""
    why: str = ""
    proof: Proof | None = None
    unchanged: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """The contract's."""
        if self.end is None:
            return ExitCode.OK
        if self.end == "failed":
            return ExitCode.CRITICAL
        if self.end == "late" or self.proof is None:
            return ExitCode.UNKNOWN
        codes = {"proven": ExitCode.OK, "refuted": ExitCode.CRITICAL, "unknown": ExitCode.UNKNOWN}
        return codes[self.proof.verdict]


def deploy(
    state: Path,
    asked: Asked,
    say: Say,
    *,
    python: Path | None = None,
    launcher: Sequence[str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> LocalOutcome:
    """Start the recipe's engine here, unless it runs already, and prove that it speculates.

    Raises:
        GateError: critical findings that were not accepted; nothing was started.
        SpecctlError: there is no vLLM here, or the state folder cannot be used.
    """
    made = plan(asked.recipe)
    judged = gate([*made.verdicts, *_kernel_verdicts(state, asked)], asked.accept)
    judged.check()
    if made.facts.recipe.engine.kind != "vllm":
        raise UsageError("only vLLM is started here", hint="engine.kind vllm")
    found = python or find_vllm_python()
    if found is None:
        raise SpecctlError("there is no vLLM on this machine", hint=INSTALL_HINT)
    name = deployment_name(asked.recipe, RenderOptions(name=asked.options.name))
    here = place(state, name)
    with alone(here):
        return _carry_out(here, asked, made, judged, found, launcher, say, sleep)


def _carry_out(
    here: Here,
    asked: Asked,
    made: Plan,
    judged: Gate,
    found: Path,
    launcher: Sequence[str] | None,
    say: Say,
    sleep: Callable[[float], None],
) -> LocalOutcome:
    """The engine as it is asked for, and the record."""
    told, launch, known = _next(here, asked, made, judged, found, launcher)
    running = here.launch
    runs = here.alive and running is not None and running.identity == launch.identity
    if not (known and told.current.state != "applying" and runs):
        told = here.write(told.with_current(state="applying"))
    if not runs:
        if here.alive:
            former = running.revision if running else "?"
            say(f"stopping revision {former}: nothing serves until the next one is ready")
            stop(here)
        _see_free(here.name, launch.port)
        _start(here, launch)
        say(f"started on port {launch.port}; its log is {here.log}")
    if told.current.state == "applying":
        told = here.write(told.with_current(state="applied", ended=now()))
    url = f"http://{HOST}:{(here.launch or launch).port}"
    if not asked.wait:
        return LocalOutcome(told, judged, url, here.log, None, unchanged=runs)
    try:
        return _await(here, asked, made, told, judged, say, sleep, unchanged=runs)
    except KeyboardInterrupt as stopped:
        stopped.add_note(
            f"the engine goes on: specctl status {here.name}, specctl delete {here.name}"
        )
        raise


def _kernel_verdicts(state: Path, asked: Asked) -> Iterator[Verdict]:
    if asked.kernels_max_age_s is None:
        return
    from speccli.core.deploy.kernels import lacking
    from speccli.core.kernels_gate import kept_here

    yield from lacking(
        kept_here(state), None, None, asked.kernels_max_age_s, datetime.now(UTC), here=True
    )


def _next(
    here: Here,
    asked: Asked,
    made: Plan,
    judged: Gate,
    python: Path,
    launcher: Sequence[str] | None,
) -> tuple[Record, Launch, bool]:
    """The record and the launch as they are to be; whether the record has this revision."""
    former = here.record()
    recipe = plain_recipe(asked.recipe)
    command = made.line.command
    env = dict(asked.recipe.engine.env)
    identity = digest([str(python), list(launcher or ()), list(command[2:]), env])
    known = bool(former and former.current.is_for(asked.recipe, {}, identity))
    if former is not None and known:
        told = former
    else:
        revision = Revision(
            number=former.current.number + 1 if former else 1,
            recipe=recipe,
            options={},
            objects_hash=identity,
            objects=(),
            image=None,
            state="applying",
            at=now(),
            by=who(),
            tool=__version__,
            accepted=judged.accepted,
            restores=asked.restores,
        )
        told = former.with_next(revision) if former else Record(here.name, revision)
    before = here.launch
    launch = Launch(
        revision=told.current.number,
        identity=identity,
        python=str(python),
        model=command[2],
        arguments=command[3:],
        env=env,
        # Clients keep the address over a change of the recipe.
        port=before.port if before else free_port(),
        grace_s=asked.recipe.serving.shutdown_timeout_s + 10.0,
        launcher=tuple(launcher) if launcher else None,
    )
    return told, launch, known


def _see_free(name: str, port: int) -> None:
    """See that nobody else answers where the engine is to: that server would be proven.

    Raises:
        SpecctlError: somebody does.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise SpecctlError(
                f"port {port}, which {name} has, is taken by another process: {error.strerror}",
                hint=f"end that one, or specctl delete {name} and deploy anew at another port",
            ) from error


def _start(here: Here, launch: Launch) -> None:
    """Start the supervisor, and see that it has its lock."""
    here.folder.chmod(0o700)
    write_atomic(here.folder / LAUNCH, launch.text())
    (here.folder / ENDED).unlink(missing_ok=True)
    with (here.folder / OWN_LOG).open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "speccli.core.deploy.supervisor", str(here.folder)],
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
        time.sleep(0.05)


def _await(
    here: Here,
    asked: Asked,
    made: Plan,
    told: Record,
    judged: Gate,
    say: Say,
    sleep: Callable[[float], None],
    *,
    unchanged: bool,
) -> LocalOutcome:
    limit = asked.timeout_s or float(times(made).startup)
    end, why = _ready(here, limit, say, sleep)
    url = here.url or ""
    if end == "done":
        say("it is ready; asking whether it speculates")
        recipe = asked.recipe
        wanted = Wanted(recipe.draft.method, recipe.alerts.acceptance_floor)
        proof = Proof((prove(url, ask_at(url, _ANSWER_S), wanted),), 1, now())
        same = (
            told.current.state == "ready"
            and (told.current.proof or {}).get("verdict") == proof.verdict
        )
        if not same:
            told = here.write(told.with_current(state="ready", ended=now(), proof=proof.to_json()))
        return LocalOutcome(
            told, judged, url, here.log, end, proof=proof, unchanged=unchanged and same
        )
    if end == "failed":
        told = here.write(told.with_current(state="failed", ended=now()))
    return LocalOutcome(told, judged, url, here.log, end, why)


def _ready(here: Here, limit_s: float, say: Say, sleep: Callable[[float], None]) -> tuple[End, str]:
    give_up = time.monotonic() + limit_s
    shown = ""
    while True:
        if here.healthy():
            return "done", ""
        phase = here.phase()
        if not here.alive:
            return "failed", f"{here.ending()} (while {phase})"
        if phase != shown:
            say(phase)
            shown = phase
        if time.monotonic() >= give_up:
            return "late", f"not ready after {limit_s:.0f} s, and still {phase}"
        sleep(_POLL_S)


def restored(here: Here, number: int | None) -> Asked:
    """What a rollback asks for.

    Raises:
        UsageError: nothing of that name is kept here.
        RecordError: it has no such revision.
    """
    told = here.record()
    if told is None:
        raise UsageError(f"no local deployment {here.name}", hint="specctl list")
    revision = to_restore(told, number)
    recipe = recipe_of(revision)
    codes = {v.code for v in plan(recipe).verdicts if v.severity == "critical"}
    accept = tuple(dict.fromkeys((*revision.accepted, *sorted(codes))))
    options = RenderOptions(name=here.name)
    return Asked(recipe, options, accept=accept, carried=accept, restores=revision.number)
