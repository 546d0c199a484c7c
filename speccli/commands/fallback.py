"""`specctl fallback`: from a draft that has gone bad to n-gram, or to none; and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.commands import _fallback_moves as moves
from speccli.commands import _fallback_plan
from speccli.commands._cluster_options import (
    AcceptOption,
    BesideOption,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    TimeoutOption,
    ToOption,
    WaitOption,
    connector,
    is_local,
    state,
)
from speccli.commands._fallback_watch import accepted, watch
from speccli.core.errors import UsageError
from speccli.options import FormatOption

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from speccli.core.deploy.asked import Asked
    from speccli.core.deploy.place import Here
    from speccli.core.fallback.ladder import Ladder

_EPILOG = """Exit codes: 0 ok · 2 refused, failed or refuted · 3 not ready in time, or not to be
told · 64 usage · 70 a bug in specctl · 130 interrupted."""

app = typer.Typer(
    help="Retreat from a draft that has gone bad, and come back.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(epilog=_EPILOG)
def _root() -> None:
    """Retreat from a draft that has gone bad, and come back."""


Name = Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")]


app.command("plan", epilog=_EPILOG)(_fallback_plan.command)


@app.command("apply", epilog=_EPILOG)
def apply(
    name: Name,
    rung: Annotated[
        str | None,
        typer.Option(
            "--rung",
            "--method",
            metavar="RUNG",
            help="How far down: a rung as `fallback plan` names it, or a method.",
            show_default="the next one without the draft that serves",
        ),
    ] = None,
    proposal: Annotated[
        str | None,
        typer.Option(
            "--proposal", metavar="ID", help="Accept what `fallback watch` proposes, as it is."
        ),
    ] = None,
    to: ToOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    accept: AcceptOption = None,
    bench: moves.Benches = None,
    dry_run: moves.DryRun = False,
    out: moves.Out = None,
    beside: BesideOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Serve the same target with a lesser draft, or without one.

    Where a pool standby is warm it takes the traffic, once it is proven and has the servers for
    it; else the pods are replaced, one after the other where no GPU is free. What is refuted then
    is undone by itself. `fallback restore` brings back what was served before.

    On this machine (--to local) the next engine starts beside the present one where there is room,
    and gets requests once it is proven; else the present one is stopped first.
    """
    from speccli.core.fallback.ways import down

    connect = connector(kubeconfig, context, namespace)
    asked_for = moves.Move(
        connect, namespace, name, tuple(accept or ()), timeout, dry_run, out, output_format
    )
    if proposal is not None:
        local = to is not None and to.value == "local"
        given = {"--rung": rung, "--no-wait": not wait, "--to local": local, "--accept": accept}
        _as_it_is({**given, "--timeout": timeout, "--beside": beside, "--bench": bench})
        raise typer.Exit(accepted(asked_for, proposal))
    here = is_local(name, to, namespace, context, kubeconfig)
    if not here:
        raise typer.Exit(moves.apply(asked_for, rung, wait=wait, benches=bench or ()))
    moves.here_only(asked_for, bench=bool(bench))
    asked = _with(down(_ladder(name), rung, None), accept, beside)
    raise typer.Exit(_run(asked, wait, timeout, output_format))


@app.command("restore", epilog=_EPILOG)
def restore(
    name: Name,
    to: ToOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    accept: AcceptOption = None,
    force: moves.Force = False,
    baseline: moves.BaselineName = None,
    lasting: moves.Lasting = "30m",
    window: moves.Window = "10s",
    dry_run: moves.DryRun = False,
    out: moves.Out = None,
    beside: BesideOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Bring back what fallbacks led away from, once a canary of it has passed.

    On a cluster one server with the draft joins what serves, and is compared with its siblings
    window by window: acceptance, time per output token, failed requests. Only what is shown to be
    no worse comes back. Refused, the canary goes and all stays as it is; refused twice, until the
    draft or the recipe changes.

    On this machine (--to local) there is no canary: the engine with the draft is proven at a port
    of its own before it gets any request.
    """
    from speccli.core.fallback.ways import back, restored_here

    here = is_local(name, to, namespace, context, kubeconfig)
    connect = connector(kubeconfig, context, namespace)
    asked_for = moves.Move(
        connect, namespace, name, tuple(accept or ()), timeout, dry_run, out, output_format
    )
    if not here:
        if not wait:
            raise UsageError("a canary is waited for", hint="leave --no-wait out")
        raise typer.Exit(
            moves.restore(asked_for, force=force, baseline=baseline, lasting=lasting, window=window)
        )
    moves.here_only(asked_for, force=force, baseline=baseline)
    found = _ladder(name)
    asked = _with(restored_here(place_of(state(), name), back(found)), accept, beside)
    raise typer.Exit(_run(asked, wait, timeout, output_format))


app.command("watch", epilog=_EPILOG)(watch)


def _as_it_is(given: Mapping[str, object]) -> None:
    """Refuse what would change a proposal: what is accepted is what was proposed.

    Raises:
        UsageError: such an option was given.
    """
    for option, value in given.items():
        if value not in (None, False):
            raise UsageError(
                f"{option} does not go with --proposal: a proposal is made as it is",
                hint="with --dry-run or --out it is only shown; without --proposal a rung is named",
            )


def _with(asked: Asked, accept: list[str] | None, beside: bool | None) -> Asked:
    from dataclasses import replace

    return replace(asked, accept=(*asked.accept, *(accept or ())), beside=beside)


def _ladder(name: str) -> Ladder:
    """The ladder of a local deployment."""
    from speccli.core.fallback.ways import on_this_machine

    return on_this_machine(place_of(state(), name))


def place_of(folder: Path, name: str) -> Here:
    """Where a local deployment is kept."""
    from speccli.core.deploy.place import place

    return place(folder, name)


def _run(asked: Asked, wait: bool, timeout: str | None, output_format: output.Format) -> int:
    from dataclasses import replace

    from speccli.commands.deploy import run_local
    from speccli.core.units import seconds

    limit = None if timeout is None else seconds(timeout, what="--timeout")
    return run_local(replace(asked, wait=wait, timeout_s=limit), output_format)
