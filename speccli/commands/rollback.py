"""`specctl rollback NAME`: a former revision again."""

from __future__ import annotations

from typing import Annotated

import typer

from speccli import output
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
from speccli.options import FormatOption


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")],
    to_revision: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The revision.", show_default="the newest that was proven"
        ),
    ] = None,
    to: ToOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    accept: AcceptOption = None,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take fields over that others have set.")
    ] = False,
    beside: BesideOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Bring a former revision of a deployment back.

    Its recipe and options from the record are deployed as a new revision, with the same trial,
    rollout and proof; what was accepted then is accepted again. Exits as deploy does.
    """
    from dataclasses import replace

    from speccli.commands.deploy import run, run_local
    from speccli.core.units import seconds

    limit = None if timeout is None else seconds(timeout, what="--timeout")
    if is_local(name, to, namespace, context, kubeconfig):
        from speccli.core.deploy.local import restored as restored_here
        from speccli.core.deploy.place import place

        asked = restored_here(place(state(), name), to_revision)
        asked = replace(asked, accept=(*asked.accept, *(accept or ())))
        asked = replace(asked, wait=wait, timeout_s=limit, beside=beside)
        raise typer.Exit(run_local(asked, output_format))
    from speccli.core.deploy.remove import restored

    connect = connector(kubeconfig, context, namespace)
    asked = restored(connect(None), namespace, name, to_revision)
    asked = replace(asked, accept=(*asked.accept, *(accept or ())))
    asked = replace(asked, wait=wait, timeout_s=limit, force=force_conflicts, beside=beside)
    raise typer.Exit(run(connect, asked, output_format))
