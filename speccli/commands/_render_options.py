"""The options of what is rendered, shared by the commands that render."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from speccli.core.manifests import RenderOptions
    from speccli.core.recipes.model import PoolName


class Pool(StrEnum):
    """A pool beside the main one."""

    STRUCTURED = "structured"
    CANARY = "canary"
    STANDBY = "standby"

    @property
    def word(self) -> PoolName:
        """As recipes name it."""
        return _WORDS[self]


_WORDS: dict[Pool, PoolName] = {
    Pool.STRUCTURED: "structured",
    Pool.CANARY: "canary",
    Pool.STANDBY: "standby",
}


Autoscaler = Literal["keda", "hpa", "none"]
Rules = Literal["all", "scaling", "none"]
Traffic = Literal["main", "standby"]


@dataclass(frozen=True)
class RenderFlags:
    """How a recipe becomes manifests. None: not typed."""

    name: Annotated[
        str | None,
        typer.Option(help="Name of the deployment.", show_default="the recipe's"),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Where it goes.", show_default="default"),
    ] = None
    create_namespace: Annotated[
        bool, typer.Option("--create-namespace", help="Make the namespace too, restricted.")
    ] = False
    kubernetes: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The server's version, 1.29 to 1.37.",
            show_default="1.30; 1.34 with --dra",
        ),
    ] = None
    pool: Annotated[
        list[Pool] | None, typer.Option(help="A pool beside the main one; repeat for more.")
    ] = None
    canary: Annotated[bool, typer.Option("--canary", help="The same as --pool canary.")] = False
    autoscaler: Annotated[Autoscaler, typer.Option(help="What scales it.")] = "keda"
    replicas: Annotated[
        int | None,
        typer.Option(min=0, help="With --autoscaler none.", show_default="scaling.min"),
    ] = None
    surge: Annotated[
        int | None,
        typer.Option(
            min=0, help="Servers more during a rollout, where GPUs are free.", show_default="0"
        ),
    ] = None
    image: Annotated[
        str | None, typer.Option(help="The engine's image, in place of the recipe's.")
    ] = None
    dra: Annotated[
        bool, typer.Option("--dra", help="GPUs through a ResourceClaim; 1.34 and newer.")
    ] = False
    inference_pool: Annotated[
        bool, typer.Option("--inference-pool", help="An InferencePool a pool.")
    ] = False
    gateway: Annotated[
        str | None, typer.Option(metavar="[NS/]NAME", help="An HTTPRoute of this Gateway.")
    ] = None
    hostname: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="With --gateway; repeat for more.")
    ] = None
    monitoring: Annotated[
        bool, typer.Option("--monitoring/--no-monitoring", help="PodMonitor and PrometheusRule.")
    ] = True
    rules: Annotated[
        Rules, typer.Option(help="Alerts too, only what autoscaling reads, or none.")
    ] = "all"
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="What the operator picks monitors and rules by: release=kps; repeat.",
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The Prometheus that the autoscaler asks.",
            show_default="http://prometheus-operated.monitoring.svc:9090",
        ),
    ] = None
    api_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR",
            help="Where API servers are, so that specctl may read through them; repeat.",
        ),
    ] = None

    traffic: Annotated[
        Traffic | None,
        typer.Option(
            help="The pool that takes the requests.",
            show_default="main; of a deployment that is there: as it is",
        ),
    ] = None

    def options(self) -> RenderOptions:
        """What they ask for.

        Raises:
            UsageError: a word that is not what it should be.
        """
        from speccli.core.alert.rules.write import labels_of
        from speccli.core.manifests import options as core

        oldest = core.CLAIMS if self.dra else core.SLEEP
        wanted = [*(self.pool or ()), *([Pool.CANARY] if self.canary else [])]
        return core.RenderOptions(
            namespace=self.namespace or "default",
            name=self.name,
            kubernetes=core.server(self.kubernetes) if self.kubernetes else oldest,
            pools=tuple(dict.fromkeys(each.word for each in wanted)),
            autoscaler=self.autoscaler,
            replicas=self.replicas,
            surge=self.surge or 0,
            image=self.image,
            dra=self.dra,
            inference_pool=self.inference_pool,
            gateway=self.gateway,
            hostnames=tuple(self.hostname or ()),
            create_namespace=self.create_namespace,
            monitoring=self.monitoring,
            rules=self.rules,
            monitor_labels=labels_of(self.label or ()),
            prometheus=self.prometheus or core.PROMETHEUS,
            api_server=tuple(self.api_server or ()),
            traffic=self.traffic or "main",
        )
