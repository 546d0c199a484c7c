"""Which cluster, and what is told of a rollout: shared by the commands about deployments."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics
from speccli.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from speccli.core.kube.client import Cluster
    from speccli.core.kube.progress import Progress


class To(StrEnum):
    """Where engines run."""

    KUBERNETES = "kubernetes"
    LOCAL = "local"


ContextOption = Annotated[
    str | None, typer.Option(help="A context of the kubeconfig.", show_default="the current one")
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The kubeconfig.", show_default="KUBECONFIG, ~/.kube/config"),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", metavar="NS", help="Its namespace.", show_default="the context's"
    ),
]
ToOption = Annotated[
    To | None,
    typer.Option(
        "--to",
        help="Where it is.",
        show_default="local where there is one of that name and no cluster is named",
    ),
]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option(metavar="CODE", help="A critical finding that keeps nothing out; repeat."),
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is ready, and prove it.")
]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long the rollout may take.",
        show_default="each pod's start-up budget, one after the other",
    ),
]
BesideOption = Annotated[
    bool | None,
    typer.Option(
        "--beside/--stop-first",
        help="On this machine: start the next engine beside the present one, or after it.",
        show_default="beside, where there is room",
    ),
]


def connector(
    kubeconfig: str | None, context: str | None, namespace: str | None
) -> Callable[[float | None], Cluster]:
    """What connects to the cluster that was named, each call within so many seconds."""

    def connect(deadline_s: float | None = None) -> Cluster:
        from speccli.core.kube.client import DEADLINE_S, Cluster

        return Cluster.connect(kubeconfig, context, namespace, deadline_s or DEADLINE_S)

    return connect


def state() -> Path:
    """The state folder, where local deployments are kept."""
    import os

    from speccli.core.state import state_folder

    return state_folder(None, os.environ)


def is_local(name: str, to: To | None, *named: str | None) -> bool:
    """Whether a local deployment is meant. `named`: options that name a cluster."""
    if to is not None:
        return to is To.LOCAL
    if any(named):
        return False
    from speccli.core.deploy.place import is_kept

    try:
        return is_kept(state(), name)
    except UsageError:
        return False  # no home, no state: nothing is kept here


class Told:
    """Tells what goes on: on a terminal in place, else a line each time something changes."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Something has happened."""
        diagnostics.say(text)

    def warn(self, text: str) -> None:
        """Something to know."""
        diagnostics.warn(text)

    def progress(self, now: Progress) -> None:
        """How far a rollout has come."""
        diagnostics.live([*(each.line for each in now.workloads), *(p.line for p in now.pods)])
        if not diagnostics.is_live():
            for name, key, line in _lines(now):
                if self._said.get(name) != key:
                    self._said[name] = key
                    diagnostics.say(line)


def _lines(now: Progress) -> list[tuple[str, str, str]]:
    """What each line is about, what of it is news, and the line."""
    told = [(f"workload {each.name}", each.line, each.line) for each in now.workloads]
    for pod in now.pods:
        # Shares of what is loaded change at every look; the phase and the trouble are news.
        key = f"{pod.phase} {pod.trouble} {pod.restarts} {pod.detail.rstrip('0123456789 %')}"
        told.append((f"pod {pod.name}", key, pod.line))
    return told
