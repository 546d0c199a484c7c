"""`specctl delete NAME`: take a deployment away."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics
from speccli.commands._cluster_options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    ToOption,
    connector,
    is_local,
    state,
)
from speccli.commands.deploy import interrupted
from speccli.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speccli.core.deploy.remove import Deletion
    from speccli.core.kube.refs import Ref

_CUT_SHORT = "the same command completes it"


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Its claims too, with the weights and graphs on them.")
    ] = False,
    to: ToOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until everything is gone.")
    ] = True,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long each object, or another who works on it, may take."
        ),
    ] = "10m",
) -> None:
    """Take a deployment away, with all that belongs to it.

    Shows what goes and what stays, and asks. Claims stay unless --purge is given. Running requests
    finish first, as the recipe's shutdown timeout has it.
    """
    from speccli.core.units import seconds

    limit = seconds(timeout, what="--timeout")
    if is_local(name, to, namespace, context, kubeconfig):
        from speccli.core.deploy import place

        here = place.place(state(), name)
        if not place.is_kept(state(), name):
            raise UsageError(f"no local deployment {name}", hint="specctl list")
        _ask(f"stop the engine {name} at {here.url} and forget it", yes)
        with interrupted(_CUT_SHORT):
            place.delete(here, diagnostics.say, limit)
        return
    from speccli.core.deploy.remove import delete, deletion

    cluster = connector(kubeconfig, context, namespace)(None)
    asked = deletion(cluster, namespace, name, purge=purge)
    _show(asked)
    _ask(f"delete {name} from namespace {asked.namespace} of {cluster.context}", yes)
    with interrupted(_CUT_SHORT):
        kept = delete(cluster, asked, wait_s=limit if wait else None, say=diagnostics.say)
    diagnostics.say(_left(asked, kept, wait=wait))


def _show(asked: Deletion) -> None:
    diagnostics.say(f"goes: {', '.join(map(str, asked.goes))}")
    if asked.stays:
        diagnostics.say(f"stays: {', '.join(map(str, asked.stays))}")
    if asked.watch:
        diagnostics.warn(
            f"{asked.watch} leads a fallback watch of it: one that still runs makes its Lease "
            "again; end it too (kubectl delete -f manifests/fallback/watch.yaml)"
        )


def _left(asked: Deletion, kept: Sequence[Ref], *, wait: bool) -> str:
    gone = "is gone" if wait else "goes: its pods finish what they have"
    told = [f"{asked.name} {gone}"]
    if asked.stays:
        told.append(f"left: {', '.join(map(str, asked.stays))} (--purge removes it)")
    if kept:
        told.append(f"left: {', '.join(map(str, kept))}, which these credentials may not remove")
    if asked.unseen:
        told.append(
            f"whether {asked.unseen} of a fallback watch is left is not known: these credentials "
            "may not look for it"
        )
    if wait and len(told) == 1:
        return f"{told[0]}, and nothing of it is left"
    return "; ".join(told)


def _ask(what: str, yes: bool) -> None:
    """Go on, or not.

    Raises:
        UsageError: nobody is there to be asked.
        Abort: no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked whether to {what}", hint="--yes")
    typer.confirm(f"{what}?", abort=True, err=True)
