"""`specctl deploy RECIPE`: gate, apply, wait, prove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._cluster_options import (
    AcceptOption,
    BesideOption,
    ContextOption,
    KubeconfigOption,
    TimeoutOption,
    To,
    Told,
    WaitOption,
    connector,
    state,
)
from speccli.commands._render_options import RenderFlags
from speccli.core.errors import UsageError
from speccli.options import FormatOption, SetOption, with_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.deploy.asked import Asked
    from speccli.core.kube.client import Cluster

    Connect = Callable[[float | None], Cluster]


Diff = Annotated[
    bool, typer.Option("--diff", help="Show what would change, as the server sees it.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Judge and try everything, change nothing.")
]
RequireKernels = Annotated[
    bool,
    typer.Option(
        "--require-kernels",
        help="Only where `specctl kernels check` has passed: image, driver, every node.",
    ),
]
KernelsMaxAge = Annotated[
    str, typer.Option(metavar="TIME", help="With --require-kernels: how old a pass may be.")
]
ForceConflicts = Annotated[
    bool, typer.Option("--force-conflicts", help="Take fields over that others have set.")
]


@with_options(RenderFlags, without=("kubernetes", "surge"))
def command(
    flags: RenderFlags,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A built-in recipe's name, or a file.")
    ],
    changes: SetOption = None,
    to: Annotated[
        To, typer.Option("--to", help="On a cluster, or as a process on this machine.")
    ] = To.KUBERNETES,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    diff: Diff = False,
    dry_run: DryRun = False,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    accept: AcceptOption = None,
    require_kernels: RequireKernels = False,
    kernels_max_age: KernelsMaxAge = "7d",
    force_conflicts: ForceConflicts = False,
    beside: BesideOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Deploy a recipe, and prove that it speculates.

    Pre-flight, then a trial of every object on the server, then the objects, the rollout and a few
    requests whose drafts are counted. Refuses critical findings before anything is applied. The
    same again changes nothing and completes what was cut short. Exits 0 when proven, 2 when
    refused, failed or refuted, 3 when not ready in time or not to be told.
    """
    from speccli.core.deploy.asked import Asked
    from speccli.core.recipes.load import load
    from speccli.core.units import seconds

    if to is To.LOCAL and (diff or dry_run):
        raise UsageError(
            "--diff and --dry-run are for clusters", hint="specctl plan RECIPE shows the line"
        )
    asked = Asked(
        load(recipe, changes or ()),
        flags.options(),
        namespace=flags.namespace,
        accept=tuple(accept or ()),
        force=force_conflicts,
        moves=flags.traffic is not None,
        wait=wait,
        timeout_s=None if timeout is None else seconds(timeout, what="--timeout"),
        kernels_max_age_s=(
            seconds(kernels_max_age, what="--kernels-max-age") if require_kernels else None
        ),
        beside=beside,
    )
    if to is To.LOCAL:
        raise typer.Exit(run_local(asked, output_format))
    connect = connector(kubeconfig, context, flags.namespace)
    if diff or dry_run:
        raise typer.Exit(_attempt(connect, asked, output_format, diff=diff))
    raise typer.Exit(run(connect, asked, output_format))


def run(connect: Connect, asked: Asked, output_format: output.Format) -> int:
    """Deploy on a cluster, and print how it went; the exit code."""
    if asked.beside is not None:
        raise UsageError("--beside and --stop-first are for --to local")
    from speccli.core.deploy.cluster import deploy
    from speccli.core.views import deploy as view

    with interrupted("nothing was applied"):
        outcome = deploy(connect, asked, Told())
    diagnostics.settle()

    def table() -> RenderableType:
        from speccli.tables.deploy import outcome_table

        return outcome_table(outcome)

    output.emit(lambda: view.deploy(outcome), table, output_format)
    return int(outcome.exit_code)


def _attempt(connect: Connect, asked: Asked, output_format: output.Format, *, diff: bool) -> int:
    from speccli.core.deploy.cluster import attempt
    from speccli.core.views import deploy as view

    prepared = attempt(connect, asked, Told())

    def table() -> RenderableType:
        from speccli.tables.deploy import prepared_table

        return prepared_table(prepared)

    if diff and output_format is output.Format.TABLE:
        output.text(view.diff_text(prepared))
    else:
        output.emit(lambda: view.tried(prepared, diff=diff), table, output_format)
    return 0


def run_local(asked: Asked, output_format: output.Format) -> int:
    """Deploy on this machine, and print how it went; the exit code."""
    from speccli.core.deploy.local import deploy
    from speccli.core.views import deploy as view

    with interrupted("nothing is waited for any more: specctl list"):
        outcome = deploy(state(), asked, diagnostics.say)

    def table() -> RenderableType:
        from speccli.tables.deploy import local_table

        return local_table(outcome)

    output.emit(lambda: view.local(outcome), table, output_format)
    return int(outcome.exit_code)


@contextmanager
def interrupted(otherwise: str) -> Iterator[None]:
    """Where somebody stops waiting, it is said what goes on: as noted already, or `otherwise`."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        diagnostics.settle()
        if not getattr(stopped, "__notes__", ()):
            stopped.add_note(otherwise)
        raise
