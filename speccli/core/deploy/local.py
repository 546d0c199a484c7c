"""Deploys a recipe on this machine: the same engine line, supervised, proven and recorded."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from speccli import __version__
from speccli.core.deploy.asked import Asked
from speccli.core.deploy.changeover import Change, End, Say, asked_at, begin, port_of, ready
from speccli.core.deploy.gate import Gate, gate
from speccli.core.deploy.place import DeletedError, Here, Standing, alone, ask_at, place
from speccli.core.deploy.prepare import now, who
from speccli.core.deploy.wanted import Launch
from speccli.core.engines.local import HOST, INSTALL_HINT, find_vllm_python, free_port
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.kube.proof import ANSWER_S, prove
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
    former: int | None = None
    """The revision that goes on serving, or serves again, in place of one that did not do."""

    @property
    def serves(self) -> int | None:
        """The revision that has the requests; None: none does, or it was not waited for."""
        if self.former is not None:
            return self.former
        return self.record.current.number if self.end == "done" else None

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
        DeletedError: another has deleted it meanwhile; nothing of it is left.
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
    limit = asked.timeout_s or float(times(made).startup)
    with alone(here, say, limit) as standing:
        try:
            return _carry_out(standing, asked, made, judged, found, launcher, limit, sleep)
        except DeletedError:
            raise
        except SpecctlError:
            with standing.held():  # of one that was deleted nothing else is to be told
                raise


def _carry_out(
    standing: Standing,
    asked: Asked,
    made: Plan,
    judged: Gate,
    found: Path,
    launcher: Sequence[str] | None,
    limit_s: float,
    sleep: Callable[[float], None],
) -> LocalOutcome:
    """The engine as it is asked for, and the record."""
    here = standing.here
    with standing.held():
        if asked.restores is not None and here.record() is None:
            raise DeletedError(f"{here.name} was deleted meanwhile", hint="specctl list")
        told, launch, known = _next(here, asked, made, judged, found, launcher)
        change, told, runs = _started(here, told, launch, known, asked, standing.say)
    outcome = LocalOutcome(
        told,
        judged,
        f"http://{HOST}:{change.port}",
        here.log_of(change.launch),
        None,
        unchanged=runs,
        former=change.former.revision if change.former and change.beside else None,
    )
    if not asked.wait:
        return outcome
    try:
        return _await(standing, change, asked, outcome, limit_s, sleep)
    except KeyboardInterrupt as stopped:
        stopped.add_note(
            f"the engine goes on: specctl status {here.name}, specctl delete {here.name}"
        )
        raise


def _started(
    here: Here, told: Record, launch: Launch, known: bool, asked: Asked, say: Say
) -> tuple[Change, Record, bool]:
    """The engine, begun; the record of it, kept; and whether it ran already."""
    former = here.record()
    serving = here.serving
    runs = serving is not None and serving.identity == launch.identity
    if not (known and told.current.state != "applying" and runs):
        told = here.write(told.with_current(state="applying"))
    if runs and serving is not None:
        if here.wanted and here.wanted.engines != (serving,):
            here.want(port_of(here), serving)  # what a former change has left
        change = Change(here, serving, None, beside=False)
    else:
        if not here.alive:
            _see_free(here.name, port_of(here))
        protected = serving is not None and (_was_ready(former, serving) or here.ready(serving))
        change = begin(here, launch, protected=protected, beside=asked.beside, say=say)
        say(f"started on port {change.port}; its log is {here.log_of(change.launch)}")
    if told.current.state == "applying":
        told = here.write(told.with_current(state="applied", ended=now()))
    return change, told, runs


def _was_ready(record: Record | None, serving: Launch) -> bool:
    """Whether the engine that serves now was ready once: a busy one may not say so."""
    every = (record.current, *record.previous) if record else ()
    return any(each.state == "ready" and each.objects_hash == serving.identity for each in every)


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
    launch = Launch(
        revision=told.current.number,
        identity=identity,
        python=str(python),
        model=command[2],
        arguments=command[3:],
        env=env,
        port=free_port(),
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


def _await(
    standing: Standing,
    change: Change,
    asked: Asked,
    outcome: LocalOutcome,
    limit: float,
    sleep: Callable[[float], None],
) -> LocalOutcome:
    """Ready, proven, switched to; or the former engine, where it did not do."""
    here, told, say = change.here, outcome.record, standing.say
    end, why = ready(here, change.launch, limit, say, sleep)
    if end == "late":
        return replace(outcome, end=end, why=why)
    proof = None
    if end == "done":
        say("it is ready; asking whether it speculates")
        url, recipe = asked_at(change), asked.recipe
        wanted = Wanted(recipe.draft.method, recipe.alerts.acceptance_floor)
        proof = Proof((prove(url, ask_at(url, ANSWER_S), wanted),), 1, now())
        if not _goes_back(change, proof):
            return _kept(standing, change, outcome, proof)
    proven = proof.to_json() if proof else None
    with standing.held():
        told = here.write(told.with_current(state="failed", ended=now(), proof=proven))
    serves = change.former is not None and change.withdraw(standing, limit, say, sleep)
    with standing.held():  # it takes a while until a former one serves again
        former = change.former.revision if change.former and serves else None
    if proof and change.former and not serves:
        end, why = "failed", f"refuted, and revision {change.former.revision} does not start again"
    return replace(outcome, record=told, end=end, why=why, proof=proof, former=former)


def _kept(standing: Standing, change: Change, outcome: LocalOutcome, proof: Proof) -> LocalOutcome:
    """The next engine has the requests, and the record says what was proven of it."""
    told = outcome.record
    with standing.held():
        change.switch(standing.say)
        same = (
            told.current.state == "ready"
            and (told.current.proof or {}).get("verdict") == proof.verdict
        )
        if not same:
            told = change.here.write(
                told.with_current(state="ready", ended=now(), proof=proof.to_json())
            )
    same = outcome.unchanged and same
    return replace(outcome, record=told, end="done", proof=proof, unchanged=same, former=None)


def _goes_back(change: Change, proof: Proof) -> bool:
    """Whether the former engine is the better one: what it did is known."""
    if change.former is None:
        return False
    # One that serves alone already is not ended because nobody could tell.
    return proof.verdict == "refuted" or (change.beside and proof.verdict == "unknown")


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
