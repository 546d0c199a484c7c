"""What applying would change, and the applying itself: in order, strictly, each object once.

Everything is tried on the server first (`dryRun=All`), so that a field that belongs to somebody
else, or an object that is not valid, stops it before anything has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from speccli.core.errors import SpecctlError
from speccli.core.kube import fields
from speccli.core.kube.errors import Denied, NotInstalled
from speccli.core.kube.refs import Ref, selector_of
from speccli.core.manifests.names import DEPLOYMENT, MANAGER, NAMESPACE

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

Object = Mapping[str, Any]
Verb = Literal["create", "change", "same"]
SCALERS = frozenset({"ScaledObject", "HorizontalPodAutoscaler"})
KEPT = frozenset({"PersistentVolumeClaim"})
"""Hold what cannot be made again in a minute: only `delete --purge` removes them."""
KINDS: tuple[tuple[str, str, bool], ...] = (
    ("keda.sh/v1alpha1", "ScaledObject", True),
    ("autoscaling/v2", "HorizontalPodAutoscaler", True),
    ("keda.sh/v1alpha1", "TriggerAuthentication", True),
    ("monitoring.coreos.com/v1", "PodMonitor", True),
    ("monitoring.coreos.com/v1", "PrometheusRule", True),
    ("gateway.networking.k8s.io/v1", "HTTPRoute", True),
    ("inference.networking.k8s.io/v1", "InferencePool", True),
    ("policy/v1", "PodDisruptionBudget", True),
    ("apps/v1", "Deployment", True),
    ("v1", "Service", True),
    ("networking.k8s.io/v1", "NetworkPolicy", True),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", True),
    ("v1", "ConfigMap", True),
    ("v1", "PersistentVolumeClaim", True),
    ("v1", "ServiceAccount", True),
    ("scheduling.k8s.io/v1", "PriorityClass", False),
)
"""Every kind that is ever rendered but Namespaces, in the order in which they are removed."""
LEAD = frozenset({"Service", "HTTPRoute"})
"""Lead clients to pods: a deployment that was overtaken must not turn them back."""
GONE_S = 60.0
"""How long an object with a finalizer may take to go."""


@dataclass(frozen=True, slots=True)
class Step:
    """One object."""

    wanted: Mapping[str, Any]
    live: Mapping[str, Any] | None
    becomes: Mapping[str, Any]
    """What the server would make of it."""
    hands_over: bool = False
    """The replicas go from the recipe to an autoscaler."""
    takes_back: bool = False
    """The replicas come back from one."""

    @property
    def ref(self) -> Ref:
        """Which object."""
        return Ref.of(self.wanted)

    @property
    def verb(self) -> Verb:
        """What happens to it."""
        if self.live is None:
            return "create"
        same = fields.telling(self.live) == fields.telling(self.becomes)
        return "same" if same and not self.takes_back else "change"

    @property
    def rolls(self) -> bool:
        """Whether pods are replaced."""
        if self.live is None or self.wanted["kind"] != "Deployment":
            return False
        return bool(_template(self.live) != _template(self.becomes))

    @property
    def diff(self) -> str:
        """As a unified diff of YAML; empty where nothing changes."""
        return fields.difference(str(self.ref), self.live, self.becomes)


def _template(value: Object) -> Any:
    return value["spec"]["template"]


def tried(
    cluster: Cluster, objects: Iterable[dict[str, Any]], *, force: bool, scaled: Collection[str]
) -> list[Step]:
    """What the server would make of each object. Nothing is changed.

    `scaled`: Deployments whose replicas an autoscaler of ours may have set, until now.

    Raises:
        Conflict: a field belongs to somebody else (without `force`).
        ClusterError: an object is not valid, its kind is not installed, or it may not be applied.
    """
    return [_tried(cluster, each, force, scaled) for each in objects]


def _tried(cluster: Cluster, wanted: dict[str, Any], force: bool, scaled: Collection[str]) -> Step:
    ref = Ref.of(wanted)
    live = cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace)
    hands_over = takes_back = False
    attempt = wanted
    if ref.kind == "Deployment":
        hands_over = fields.gives_up_replicas(live, wanted)
        takes_back = fields.takes_back_replicas(live, wanted, scaler_leaves=ref.name in scaled)
        if live is not None and hands_over:
            attempt = fields.with_replicas(wanted, fields.replicas_of(live))
        elif takes_back:
            attempt = fields.with_replicas(wanted, None)
    becomes: Mapping[str, Any] = cluster.apply(attempt, dry_run=True, force=force)
    if takes_back:
        becomes = fields.with_replicas(becomes, fields.replicas_of(wanted))
    return Step(wanted, live, becomes, hands_over, takes_back)


def with_strategy(value: Object, strategy: Object) -> dict[str, Any]:
    """The same Deployment with another way to replace pods."""
    return {**value, "spec": {**value["spec"], "strategy": dict(strategy)}}


def carry_out(cluster: Cluster, step: Step, *, force: bool) -> Mapping[str, Any]:
    """Apply one object for good; what may be cut short anywhere, and be done again from the start.

    Replicas change hands through a third manager: at no moment does nobody own them, for then the
    server would set them back to one.
    """
    if step.hands_over and step.live is not None:
        held = fields.only_replicas(step.wanted, fields.replicas_of(step.live))
        cluster.apply(held, manager=fields.HANDOVER)
    if step.takes_back:
        held = fields.only_replicas(step.wanted, fields.replicas_of(step.wanted))
        cluster.apply(held, manager=fields.HANDOVER, force=True)
    done = cluster.apply(_as_seen(step), force=force)
    if step.takes_back:
        cluster.apply(fields.only_replicas(step.wanted, None), manager=fields.HANDOVER)
    return done


def _as_seen(step: Step) -> dict[str, Any]:
    """The object; a Service only as long as it is the one that was looked at.

    Nobody else writes into one, so that its version tells whether somebody has moved the traffic.
    """
    wanted = dict(step.wanted)
    version = ((step.live or {}).get("metadata") or {}).get("resourceVersion")
    if step.ref.kind == "Service" and step.verb == "change" and version:
        wanted["metadata"] = {**wanted["metadata"], "resourceVersion": version}
    return wanted


def leftovers(
    cluster: Cluster,
    namespace: str,
    name: str,
    wanted: Iterable[Ref],
    known: Iterable[Ref],
    say: Callable[[str], None] = lambda _: None,
) -> list[Ref]:
    """Objects of the deployment that are there and not wanted, in the order to remove them.

    Found by their labels, and by the record: a label may have been taken off, a kind may not be
    listed by whoever deploys. What a controller made (KEDA's HPA) is its controller's, and what
    somebody else made under a name of ours stays: `say` is told of it.
    """
    keep = {ref.identity for ref in wanted}
    found: dict[tuple[str, str, str | None, str], Ref] = {}
    former = [ref for ref in known if ref.identity not in keep]
    for ref in (
        *_labelled(cluster, namespace, name),
        *_remembered(cluster, namespace, former, name, say),
    ):
        if ref.identity not in keep:
            found.setdefault(ref.identity, ref)
    order = [kind for _, kind, _ in KINDS]
    return sorted(found.values(), key=lambda ref: order.index(ref.kind))


def _labelled(cluster: Cluster, namespace: str, name: str) -> Iterator[Ref]:
    for api_version, kind, namespaced in KINDS:
        place = namespace if namespaced else None
        try:
            every = cluster.list(api_version, kind, place, labels=_selector(name, namespace, place))
        except (NotInstalled, Denied):
            continue
        for value in every:
            if not value["metadata"].get("ownerReferences"):
                metadata = value["metadata"]
                yield Ref(api_version, kind, metadata["name"], metadata.get("namespace"))


def _selector(name: str, namespace: str, place: str | None) -> str:
    mine = selector_of(name)
    return mine if place else f"{mine},{NAMESPACE}={namespace}"


def _remembered(
    cluster: Cluster,
    namespace: str,
    known: Iterable[Ref],
    name: str,
    say: Callable[[str], None],
) -> Iterator[Ref]:
    removable = {kind for _, kind, _ in KINDS}
    for ref in known:
        if ref.kind not in removable:
            continue
        try:
            value = cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace)
        except NotInstalled:
            continue
        except Denied:
            yield ref  # it was ours; whoever may not remove it is told so when it is tried
            continue
        if value is None:
            continue
        if is_ours(value, name, namespace):
            yield ref
        else:
            say(f"{ref} stays: a former revision had one, but this one is not of {name}")


def is_ours(value: Object, name: str, namespace: str) -> bool:
    """Whether it still is: somebody may have made another object of that name since."""
    metadata = value["metadata"]
    labels = metadata.get("labels") or {}
    if DEPLOYMENT not in labels:
        managers = [each.get("manager") for each in metadata.get("managedFields") or ()]
        return MANAGER in managers
    mine = labels[DEPLOYMENT] == name
    return bool(mine and (metadata.get("namespace") or labels.get(NAMESPACE)) == namespace)


def remove(
    cluster: Cluster,
    refs: Iterable[Ref],
    *,
    wait_s: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Ref]:
    """Remove objects in order; what was there.

    `wait_s`: how long each may take to be gone (finalizers, a pod's drain); None: no wait.

    Raises:
        ClusterError: one may not be removed, or does not go.
    """
    gone = []
    for ref in refs:
        if cluster.delete(ref.api_version, ref.kind, ref.name, ref.namespace):
            gone.append(ref)
        if wait_s is not None:
            _await_end(cluster, ref, wait_s, clock, sleep)
    return gone


def _await_end(
    cluster: Cluster,
    ref: Ref,
    wait_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    give_up = clock() + wait_s
    while (value := cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace)) is not None:
        if clock() >= give_up:
            held = ", ".join(value["metadata"].get("finalizers") or ()) or "nothing named"
            raise SpecctlError(
                f"{ref} does not go within {wait_s:.0f} s: it is held by {held}",
                hint="see that its controller runs, then do the same again",
            )
        sleep(0.5)


def parted(refs: Sequence[Ref]) -> tuple[list[Ref], list[Ref], list[Ref]]:
    """What is removed at once, what at the end, and what is kept.

    An autoscaler that is not wanted any more would fight with the one that is.
    """
    first = [ref for ref in refs if ref.kind in SCALERS]
    kept = [ref for ref in refs if ref.kind in KEPT]
    last = [ref for ref in refs if ref.kind not in SCALERS | KEPT]
    return first, last, kept
