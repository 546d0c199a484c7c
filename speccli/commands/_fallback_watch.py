"""`specctl fallback watch`: a loop that retreats by itself, or proposes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._alert_options import StateOption
from speccli.commands._cluster_options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    Told,
    connector,
)
from speccli.commands._fallback_moves import Move as Asked
from speccli.commands._fallback_moves import preview_of
from speccli.options import CLUSTER, SourceOptions, source_without

if TYPE_CHECKING:
    from speccli.core.alert.notify import Notifier
    from speccli.core.baseline import Baseline
    from speccli.core.bench.results import Result
    from speccli.core.config import Settings
    from speccli.core.fallback.lease import Lease
    from speccli.core.fallback.watch import Watch
    from speccli.core.kube.client import Cluster

_NOT = (
    *("endpoint", "replay", "interval", "window", "method", "floor", "hold"),
    *("gpu_hour_usd", "gpus_per_engine", "baseline_cost", *CLUSTER),
)
_LEASE_S = 5.0
"""For one call about the lease: within what a leader may go without one."""


@dataclasses.dataclass(frozen=True)
class _How:
    """How it watches."""

    auto: bool
    every_s: float
    listen: tuple[str, int] | None
    lasting_s: float | None
    state: Path | None
    dry_run: bool
    bench: Result | None


Auto = Annotated[
    bool, typer.Option("--auto", help="Move by itself; else it proposes, and waits for a yes.")
]
Every = Annotated[str, typer.Option("--every", metavar="TIME", help="Time between two looks.")]
Baselines = Annotated[
    list[str] | None,
    typer.Option(
        "--baseline",
        metavar="NAME",
        help="A baseline (or file); each is used for the method and K it is of; repeat.",
    ),
]
Benches = Annotated[
    list[Path] | None,
    typer.Option(
        "--bench", metavar="FILE", help="A bench of the rungs: the faster is gone to; repeat."
    ),
]
Alertmanagers = Annotated[
    list[str] | None,
    typer.Option("--alertmanager", metavar="URL", help="Tell this Alertmanager; repeat."),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="URL",
        help="Tell this apprise URL (better: SPECCTL_NOTIFY); repeat.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say who would be told what; tell nobody.")]
Listen = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Where /metrics and /healthz are; `none`: nowhere."),
]
Lasting = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="How long; until SIGTERM if not given."),
]


@source_without(*_NOT)
def watch(
    source: SourceOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")],
    auto: Auto = False,
    every: Every = "15s",
    baseline: Baselines = None,
    bench: Benches = None,
    alertmanager: Alertmanagers = None,
    notify: Notify = None,
    dry_run: DryRun = False,
    listen: Listen = "127.0.0.1:9468",
    for_: Lasting = None,
    state: StateOption = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Watch a deployment, and retreat from a draft that has gone bad; back through a canary.

    When, and how far, is in its recipe (fallback: hold, cool_down, moves_per_hour, quiet, ...).
    Several may run: a Lease has one of them decide. Each thing it does is a line of JSON on
    stdout, an Event, an entry in the ConfigMap NAME-fallback and a metric. SIGTERM ends it with 0.
    """
    import asyncio

    from speccli.core.alert.endpoint import address
    from speccli.core.bench.merge import read_all
    from speccli.core.errors import UsageError
    from speccli.core.units import seconds

    every_s = seconds(every, what="--every")
    if every_s < 1:
        raise UsageError(f"--every {every}: at least 1 s", hint="try 15s")
    given = source.settings()
    settings = dataclasses.replace(
        given,
        endpoint=None,
        deployment=None,
        namespace=namespace,
        context=context,
        kubeconfig=kubeconfig,
        alertmanager=tuple(alertmanager) if alertmanager else given.alertmanager,
        notify=tuple(notify) if notify else given.notify,
    )
    lasting_s = seconds(for_, what="--for") if for_ else None
    result = read_all(bench) if bench else None
    how = _How(auto, every_s, address(listen), lasting_s, state, dry_run, result)
    raise typer.Exit(asyncio.run(_watching(settings, name, baseline or [], how)))


async def _watching(settings: Settings, name: str, baselines: list[str], how: _How) -> int:
    from speccli.core.alert.watch import until_stopped
    from speccli.core.fallback.lease import Lease, identity
    from speccli.core.fallback.rights import at_start
    from speccli.core.kube.record import fallback_name

    known = _baselines(settings, baselines, how.state)
    notifier = _notifier(settings, name, dry=how.dry_run)
    named = (settings.kubeconfig, settings.context, settings.namespace)
    connect = _kept(connector(*named))
    place = settings.namespace or connect(None).namespace
    pages = settings.prometheus is None
    for line in at_start(connect(None), place, name, auto=how.auto, pages=pages):
        diagnostics.warn(line)
    leading = _kept(connector(*named))
    lease = Lease(lambda: leading(_LEASE_S), place, fallback_name(name), identity())
    watching = _watch(settings, name, place, known, how, connect, lease, notifier)
    if how.listen is not None:
        url = await watching.gauges.listen(*how.listen)
        diagnostics.say(f"metrics at {url}/metrics")
    try:
        with lease.held_in_background():
            try:
                return await until_stopped(watching.round, how.every_s, how.lasting_s)
            finally:
                await watching.aclose()
    finally:
        await watching.gauges.aclose()


def accepted(asked: Asked, proposal: str) -> int:
    """Say yes to a proposal, and carry it, or show it only; the exit code."""
    import time

    from speccli.core.deploy.prepare import who
    from speccli.core.errors import SpecctlError
    from speccli.core.fallback.carrying import carried
    from speccli.core.fallback.proposals import accept, concluded, standing_proposal
    from speccli.core.views.fallback_moves import accepted as view

    cluster, name, namespace = asked.connect(None), asked.name, asked.namespace
    if asked.dry_run or asked.out:
        shown = standing_proposal(cluster, namespace, name, proposal)
        return preview_of(asked, shown.kind, shown.target)
    move = accept(cluster, namespace, name, proposal, who(), time.time())
    place = namespace or cluster.namespace
    ended = carried(asked.connect, place, name, move, Told(), baseline=move.well, continued=True)
    code = {"done": 0, "failed": 2, "refused": 2}.get(ended.outcome or "", 3)
    try:
        concluded(cluster, namespace, name, move, ended, who(), time.time())
    except SpecctlError as error:
        diagnostics.warn(f"how it ended is not written down: {error.message}")
    diagnostics.settle()
    told = view(name, place, move, ended, code)
    if asked.output_format is output.Format.TABLE:
        output.text(ended.words)
    else:
        output.emit(lambda: told, lambda: "", asked.output_format)
    return code


def _watch(
    settings: Settings,
    name: str,
    place: str,
    known: tuple[Baseline, ...],
    how: _How,
    connect: Callable[[float | None], Cluster],
    lease: Lease,
    notifier: Notifier,
) -> Watch:
    from speccli.core import config
    from speccli.core.fallback.gauges import Gauges
    from speccli.core.fallback.sight import Looking
    from speccli.core.fallback.watch import Watch

    environment = config.here()[0]
    looking = Looking(name, place, settings, how.every_s, known, how.bench, how.state, environment)
    return Watch(
        connect,
        lease,
        looking,
        how.auto,
        Gauges(name, how.every_s),
        notifier,
        output.text,
        Told(),
        bug=diagnostics.bug,
    )


def _kept(connect: Callable[[float | None], Cluster]) -> Callable[[float | None], Cluster]:
    """One connection for each deadline: it renews its credentials by itself."""
    made: dict[float | None, Cluster] = {}

    def kept(deadline_s: float | None = None) -> Cluster:
        if deadline_s not in made:
            made[deadline_s] = connect(deadline_s)
        return made[deadline_s]

    return kept


def _baselines(settings: Settings, names: list[str], state: Path | None) -> tuple[Baseline, ...]:
    from speccli.core import config
    from speccli.core.alert.check import stored

    wanted = names or ([settings.baseline] if settings.baseline else [])
    return tuple(stored(each, state, config.here()[0]) for each in wanted)


def _notifier(settings: Settings, name: str, *, dry: bool) -> Notifier:
    from speccli.core.alert.notify import Notifier, channels_of
    from speccli.core.open import access_of

    channels = channels_of(settings.alertmanager or (), settings.notify or (), access_of(settings))
    return Notifier(channels, name, dry=dry)
