"""What a rendering depends on beside the recipe: the cluster, and what is wanted of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from speccli.core.errors import UsageError
from speccli.core.recipes.model import PoolName, Recipe

Server = tuple[int, int]

OLDEST: Server = (1, 29)
NEWEST: Server = (1, 37)
"""Servers whose schemas every rendering is held against."""

SLEEP: Server = (1, 30)
"""preStop.sleep: in the schema from 1.29, but off there (PodLifecycleSleepAction)."""
IMAGE_VOLUME: Server = (1, 31)
IMAGE_VOLUME_ON: Server = (1, 35)
"""volumes[].image: in the schema from 1.31, on without a feature gate from 1.35."""
TOLERANCE: Server = (1, 33)
TOLERANCE_ON: Server = (1, 35)
"""behavior.*.tolerance: in the schema from 1.33, on without a feature gate from 1.35."""
CLAIMS: Server = (1, 34)
"""resource.k8s.io/v1."""

PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
"""Where the Prometheus operator's server is, in the namespace `monitoring`."""

Autoscaler = Literal["keda", "hpa", "none"]
Rules = Literal["all", "scaling", "none"]
Traffic = Literal["main", "standby"]

_LONGEST = 43
"""KEDA labels its HPA keda-hpa-NAME-structured, and a label's value has 63 characters at most."""
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How to render. Every default is what a cluster of today is likely to need."""

    namespace: str = "default"
    name: str | None = None
    """None: the recipe's, as a DNS label."""
    kubernetes: Server = SLEEP
    """The server's version; fields that it would not know are left out or refused."""
    pools: tuple[PoolName, ...] = ()
    """Pools beside the main one and those that the recipe names."""
    autoscaler: Autoscaler = "keda"
    replicas: int | None = None
    """Without an autoscaler; None: scaling.min."""
    surge: int = 0
    """Pods over the number at a rollout: as many as GPUs are free for."""
    image: str | None = None
    """In place of the recipe's."""
    dra: bool = False
    """GPUs through a ResourceClaim in place of the device plugin."""
    inference_pool: bool = False
    gateway: str | None = None
    """NAME or NAMESPACE/NAME of a Gateway: an HTTPRoute is made."""
    hostnames: tuple[str, ...] = ()
    create_namespace: bool = False
    monitoring: bool = True
    """PodMonitor, and with it the rules."""
    rules: Rules = "all"
    """Alerting too; what autoscaling reads; none."""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """What the Prometheus operator picks monitors and rules by."""
    prometheus: str = PROMETHEUS
    """What the autoscaler asks."""
    api_server: tuple[str, ...] = ()
    """Address ranges of the API servers, beside the recipe's `network.api_server`."""
    traffic: Traffic = "main"
    """The pool that takes the requests; a canary takes its share beside it."""
    raised: Mapping[str, int] = field(default_factory=dict)
    """Servers that pools have at least, by pool, in place of their `min`: while traffic moves."""
    restarted: Mapping[str, int] = field(default_factory=dict)
    """For which revision the pods of a pool were started anew: what they load had changed."""


def deployment_name(recipe: Recipe, options: RenderOptions) -> str:
    """The name of the deployment: a DNS label, short enough for what is derived from it.

    Raises:
        UsageError: `options.name` is none, or the recipe's name makes none.
    """
    if options.name is not None:
        name, what = options.name, f"--name {options.name!r}"
    else:
        name = re.sub(r"[^a-z0-9]+", "-", recipe.name.lower()).strip("-")
        what = f"the recipe's name {recipe.name!r}"
    if not _LABEL.fullmatch(name):
        raise UsageError(
            f"{what} makes no name for Kubernetes",
            hint="--name with small letters, digits and -, a letter first",
        )
    if len(name) > _LONGEST:
        raise UsageError(
            f"{what} has {len(name)} characters; {_LONGEST} at most", hint="--name with a short one"
        )
    return name


def server(text: str) -> Server:
    """`1.34`, `v1.34.2` as numbers.

    Raises:
        UsageError: no version, or one whose schemas renderings are not held against.
    """
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:[.+-].*)?", text.strip())
    if match is None:
        raise UsageError(f"--kubernetes {text!r} is no version", hint="write 1.34")
    version = (int(match[1]), int(match[2]))
    if version[0] != OLDEST[0]:
        raise UsageError(f"there is no Kubernetes {dotted(version)}", hint="write 1.34")
    if version < OLDEST:
        raise UsageError(
            f"Kubernetes {dotted(version)} is older than {dotted(OLDEST)}",
            hint="manifests are tested with 1.29 to 1.37",
        )
    return version


def dotted(version: Server) -> str:
    """As it is written."""
    return f"{version[0]}.{version[1]}"
