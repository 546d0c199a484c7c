"""`specctl fallback`: from a draft that has gone bad to n-gram, or to none; and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.commands import _fallback_plan
from speccli.commands._cluster_options import (
    BesideOption,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    ToOption,
    connector,
    is_local,
    state,
)
from speccli.commands._fallback_watch import accepted, watch
from speccli.options import FormatOption

if TYPE_CHECKING:
    from speccli.core.deploy.asked import Asked
    from speccli.core.fallback.ladder import Ladder
    from speccli.core.kube.client import Cluster

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
Accept = Annotated[
    list[str] | None,
    typer.Option(metavar="CODE", help="A critical finding that keeps nothing out; repeat."),
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is ready, and prove it.")
]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long the rollout may take.",
        show_default="each pod's start-up budget, one after the other",
    ),
]


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
    wait: Wait = True,
    timeout: Timeout = None,
    accept: Accept = None,
    beside: BesideOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Serve the same target with a lesser draft, or without one.

    A new revision, rolled out and proven like every other: the pods are restarted, one after the
    other where no GPU is free. `fallback restore` brings back what was served before.
    """
    from speccli.core.fallback.ways import down

    if proposal is not None:
        raise typer.Exit(
            accepted(name, proposal, namespace, connector(kubeconfig, context, namespace))
        )
    here = is_local(name, to, namespace, context, kubeconfig)
    connect = connector(kubeconfig, context, namespace)
    found, place = _ladder(name, here, namespace, connect)
    asked = _with(down(found, rung, place), accept, beside)
    raise typer.Exit(_run(asked, here, connect, wait, timeout, output_format))


@app.command("restore", epilog=_EPILOG)
def restore(
    name: Name,
    to: ToOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    wait: Wait = True,
    timeout: Timeout = None,
    accept: Accept = None,
    beside: BesideOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Bring back the revision that fallbacks led away from."""
    from speccli.core.deploy.place import place as place_of
    from speccli.core.fallback.ways import back, restored, restored_here

    here = is_local(name, to, namespace, context, kubeconfig)
    connect = connector(kubeconfig, context, namespace)
    found, place = _ladder(name, here, namespace, connect)
    if here:
        asked = restored_here(place_of(state(), name), back(found))
    else:
        asked = restored(connect(None), place, name, back(found))
    asked = _with(asked, accept, beside)
    raise typer.Exit(_run(asked, here, connect, wait, timeout, output_format))


app.command("watch", epilog=_EPILOG)(watch)


def _with(asked: Asked, accept: list[str] | None, beside: bool | None) -> Asked:
    from dataclasses import replace

    return replace(asked, accept=(*asked.accept, *(accept or ())), beside=beside)


def _ladder(
    name: str, here: bool, namespace: str | None, connect: Callable[[float | None], Cluster]
) -> tuple[Ladder, str | None]:
    """The ladder, and its namespace; None for a local deployment."""
    from speccli.core.deploy.place import place
    from speccli.core.fallback.ways import on_cluster, on_this_machine

    if here:
        return on_this_machine(place(state(), name)), None
    return on_cluster(connect(None), namespace, name)


def _run(
    asked: Asked,
    here: bool,
    connect: Callable[[float | None], Cluster],
    wait: bool,
    timeout: str | None,
    output_format: output.Format,
) -> int:
    from dataclasses import replace

    from speccli.commands.deploy import run, run_local
    from speccli.core.units import seconds

    limit = None if timeout is None else seconds(timeout, what="--timeout")
    asked = replace(asked, wait=wait, timeout_s=limit)
    return run_local(asked, output_format) if here else run(connect, asked, output_format)
