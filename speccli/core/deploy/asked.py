"""What is asked of a deployment, and what it comes to before anything has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from speccli.core.deploy.gate import Gate
from speccli.core.kube.apply import Step
from speccli.core.kube.record import Record, Revision
from speccli.core.kube.refs import Ref
from speccli.core.kube.stock import Stock, Strategy
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.marks import Marks
from speccli.core.recipes.model import Recipe
from speccli.core.recipes.strict import build

if TYPE_CHECKING:
    from speccli.core.kube.progress import Progress
    from speccli.core.manifests.pools import Unit

_OF_THE_CLUSTER = frozenset({"kubernetes", "create_namespace", "surge", "namespace", "name"})
"""Options that each deployment finds out by itself, or that say where the record is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A recipe, and how it is to be deployed."""

    recipe: Recipe
    options: RenderOptions = field(default_factory=RenderOptions)
    namespace: str | None = None
    """None: the context's."""
    accept: tuple[str, ...] = ()
    """Codes of critical findings that do not keep it out."""
    carried: tuple[str, ...] = ()
    """Those of them that nobody typed: a former revision has them."""
    force: bool = False
    """Whether fields of other managers are taken over."""
    moves: bool = False
    """Whether `options.traffic` was asked for; else the traffic stays where it is."""
    awaited: tuple[str, ...] = ()
    """The pools that the rollout and the proof are about; none: all."""
    wait: bool = True
    timeout_s: float | None = None
    """For the rollout; None: by the pods' own budgets."""
    stragglers_s: float | None = None
    """After how long servers that do not come are done without, where others of their pool serve;
    None: all are waited for."""
    restores: int | None = None
    """The revision that is brought back."""
    trial: Mapping[str, Any] | None = None
    """What a canary is tried for, where this is one: `Revision.trial`."""
    kernels_max_age_s: float | None = None
    """How old a pass of the kernel checks may be; None: none is asked for."""
    beside: bool | None = None
    """On this machine: whether the next engine starts before the former one ends; None: where
    there is room."""

    def waits_for(self, pool: str) -> bool:
        """Whether the rollout and the proof are about this pool."""
        return not self.awaited or pool in self.awaited


class Reporter(Protocol):
    """Who is told what goes on."""

    def say(self, text: str) -> None:
        """Something has happened."""

    def warn(self, text: str) -> None:
        """Something that the reader should know."""

    def progress(self, now: Progress) -> None:
        """How far the rollout has come; often the same as before."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool, with what the cluster has for it."""

    unit: Unit
    stock: Stock
    strategy: Strategy
    replicas: int
    """How many pods there are, or will be."""
    rolls: bool
    """Whether pods are replaced."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a deployment comes to."""

    asked: Asked
    name: str
    namespace: str
    context: str
    gate: Gate
    pools: tuple[Pool, ...]
    steps: tuple[Step, ...]
    prune_first: tuple[Ref, ...]
    prune_last: tuple[Ref, ...]
    kept: tuple[Ref, ...]
    """Claims of former revisions: they stay."""
    record: Record
    """As it is to be."""
    known: bool
    """Whether the record has this revision already."""
    crowded: bool
    """Whether what is pruned holds GPUs that the rest needs."""

    @property
    def revision(self) -> Revision:
        """What is deployed."""
        return self.record.current

    @property
    def changes(self) -> bool:
        """Whether anything but the record would change."""
        steps = any(step.verb != "same" for step in self.steps)
        return steps or bool(self.prune_first or self.prune_last)

    @property
    def timeout_s(self) -> float:
        """How long the rollout may take: each pod's own budget, one after the other."""
        if self.asked.timeout_s is not None:
            return self.asked.timeout_s
        return 60.0 + max(each.unit.times.progress * max(1, each.replicas) for each in self.pools)


def plain_options(options: RenderOptions) -> dict[str, Any]:
    """What is written down of the options: what was chosen, as JSON gives it back."""
    told = {key: value for key, value in asdict(options).items() if key not in _OF_THE_CLUSTER}
    usual = asdict(RenderOptions())
    chosen = {key: value for key, value in told.items() if value != usual[key]}
    value: dict[str, Any] = json.loads(json.dumps(chosen))
    return value


def options_again(told: Mapping[str, Any]) -> RenderOptions:
    """Options from what was written down.

    Raises:
        UsageError: this version has no such option.
    """
    return build(RenderOptions, told, Marks({(): "the record"}))


def for_cluster(
    options: RenderOptions,
    namespace: str,
    kubernetes: tuple[int, int],
    api_server: tuple[str, ...],
) -> RenderOptions:
    """The options with what the cluster decides."""
    ranges = tuple(dict.fromkeys((*options.api_server, *api_server)))
    return replace(options, namespace=namespace, kubernetes=kubernetes, api_server=ranges)
