"""`specctl list`: what is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._cluster_options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    To,
    connector,
    state,
)
from speccli.options import FormatOption

if TYPE_CHECKING:
    from rich.console import RenderableType


def command(
    to: Annotated[
        To | None,
        typer.Option("--to", help="Of a cluster, or of this machine.", show_default="both"),
    ] = None,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Of every namespace.")
    ] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """List what is deployed, on a cluster and on this machine.

    Without --to and without a kubeconfig it lists this machine's alone. Where the cluster does not
    answer it lists this machine's too, and exits 3.
    """
    from speccli.core.deploy.look import listing
    from speccli.core.views import deploy as view

    connect = connector(kubeconfig, context, namespace)
    found = listing(
        state(),
        lambda: connect(None),
        to=None if to is None else to.value,
        namespace=namespace,
        everywhere=everywhere,
        named=bool(context or kubeconfig or namespace or everywhere),
    )
    for note in found.notes:
        diagnostics.warn(note)

    def table() -> RenderableType:
        from speccli.tables.deploy import list_table

        return list_table(found.deployments)

    output.emit(lambda: view.listed(found.deployments), table, output_format)
    if found.exit_code:
        raise typer.Exit(int(found.exit_code))
