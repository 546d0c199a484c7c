"""Going on with a bench: only with the same one, on the same machine, of the same servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from speccli.core.bench import form
from speccli.core.bench.results import Arm, Provenance, Result
from speccli.core.errors import UsageError
from speccli.core.state import ensure_writable

if TYPE_CHECKING:
    from speccli.core.bench.run import Spec

_WHERE = "give --out FILE"
_ANEW = "a bench is of one set of servers; begin anew with another --out"


def before(spec: Spec, *, resume: bool) -> Result | None:
    """What is in the file already; None where there is none.

    Raises:
        UsageError: there is one and it is not to be gone on with, or it holds another bench; or
            none can be written there.
    """
    if not spec.out.exists():
        if resume:
            raise UsageError(f"--resume: there is no {spec.out}", hint="leave --resume out")
        ensure_writable(spec.out, hint=_WHERE)
        return None
    if not resume:
        raise UsageError(
            f"{spec.out} is there already", hint="--resume goes on with it, or give another --out"
        )
    old = form.read(spec.out)
    ensure_writable(spec.out, hint=_WHERE)
    asked: dict[str, Any] = {
        "load": (old.load, spec.load),
        "seed": (old.provenance.seed, spec.seed),
        "temperature": (old.provenance.temperature, spec.sampling.temperature),
        "top_p": (old.provenance.top_p, spec.sampling.top_p),
        "stand-in": (old.stand_in, spec.stand_in),
        "baseline": (old.baseline.name if old.baseline else None, spec.baseline),
        "datasets": ([d.name for d in old.datasets], [d.name for d in spec.datasets]),
    }
    arms = {arm.name for arm in old.arms} - {arm.name for arm in spec.arms}
    differ = [name for name, (was, is_) in asked.items() if was != is_ and old.datasets]
    if arms or differ or old.provenance.runner != spec.runner:
        what = ", ".join([*differ, *(["arms"] if arms else [])]) or "the runner"
        raise UsageError(
            f"{spec.out} holds another bench: {what} differ",
            hint="--resume takes the same command again",
        )
    return old


def with_commands(old: Result, came: Provenance) -> Result:
    """The bench with the command that goes on with it.

    Raises:
        UsageError: it was begun on another machine.
    """
    for what in ("cpu", "cores"):
        was, is_ = old.provenance.host.get(what), came.host.get(what)
        if was is not None and was != is_:
            raise UsageError(
                f"the bench was begun on another machine ({what}: {was}, here {is_})",
                hint="what the client costs differs; begin anew with another --out",
            )
    commands = dict.fromkeys((*old.provenance.commands, *came.commands))
    return replace(old, provenance=replace(old.provenance, commands=tuple(commands)))


def same_gpu(was: Mapping[str, Any] | None, is_: Mapping[str, Any] | None) -> None:
    """Raises where the GPU is not the one that was measured on before."""
    for what in ("name", "count", "driver"):
        old, new = (each.get(what) if each else None for each in (was, is_))
        if old is not None and old != new:
            raise UsageError(f"the GPU's {what} is {new}, and was {old} in the file", hint=_ANEW)


def same_arm(old: Arm, new: Arm) -> None:
    """Raises where an arm is not the one that was measured before."""
    same = {
        "model": (old.model, new.model),
        "method": (old.method, new.method),
        "k": (old.k, new.k),
        "draft": (old.draft, new.draft),
        "engine": (old.engine.get("kind"), new.engine.get("kind")),
        "version": (old.engine.get("version"), new.engine.get("version")),
        "command": (old.command, new.command),
        "number of GPUs": (old.gpu_count, new.gpu_count) if old.engine else (None, None),
    }
    if new.command is None:  # of a server started here the port is another each time
        same["address"] = old.endpoint, new.endpoint
    for what, (was, is_) in same.items():
        if was != is_ and was is not None and is_ is not None:
            words = [" ".join(each) if isinstance(each, tuple) else each for each in (is_, was)]
            raise UsageError(
                f"arm {old.name}: its {what} is {words[0]}, and was {words[1]} in the file",
                hint=_ANEW,
            )
    if old.engine and old.price != new.price:
        raise UsageError(
            f"arm {old.name}: its GPU hour is {new.price} USD, and was {old.price}",
            hint="give the same --gpu-hour-usd; `report --gpu-hour-usd` lays another over it",
        )
