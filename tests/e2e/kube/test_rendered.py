"""What specctl renders runs on a real control plane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from speccli.core.manifests.build import objects
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.load import load
from tests.support.kube.cluster import Cluster, World, until

pytestmark = pytest.mark.real_kubernetes
RECIPE = "llama-3.3-70b-eagle3-h100"


def _applied(cluster: Cluster, **options: Any) -> list[dict[str, Any]]:
    chosen = RenderOptions(namespace=cluster.namespace, name="pool", kubernetes=(1, 37), **options)
    made = objects(load(RECIPE), chosen)
    for body in made:
        cluster.api.apply(body, "specctl")
    return made


def test_a_second_apply_changes_nothing(cluster: Cluster, world: World) -> None:
    world.need_keda()
    made = _applied(cluster)
    cluster.wait_ready(1)

    def taken_up() -> bool:
        """KEDA has written what it writes into the object by itself."""
        told = cluster.api.get("ScaledObject", "pool").get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in told)

    until(taken_up, "KEDA to take the ScaledObject up")

    def versions() -> dict[str, str]:
        found = {}
        for body in made:
            kind, name = body["kind"], body["metadata"]["name"]
            meta = cluster.api.get(kind, name)["metadata"]
            # What controllers write into a status counts for resourceVersion, not for this.
            managed = [m["time"] for m in meta["managedFields"] if m["manager"] == "specctl"]
            found[f"{kind}/{name}"] = f"{meta.get('generation')} {managed}"
        return found

    before = versions()
    _applied(cluster)
    assert versions() == before


def test_claims_of_devices_are_allocated_by_the_scheduler(cluster: Cluster, world: World) -> None:
    world.need_devices()
    _applied(cluster, dra=True, autoscaler="none", replicas=2)
    pods = cluster.wait_ready(2)
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"h100-a", "h100-b"}
    claims = cluster.api.objects("ResourceClaim")
    allocated = [claim["status"]["allocation"]["devices"]["results"] for claim in claims]
    assert [len(results) for results in allocated] == [2, 2]
    devices = [(r["pool"], r["device"]) for results in allocated for r in results]
    assert len(set(devices)) == 4


def test_a_pod_security_restricted_namespace_takes_its_pods(cluster: Cluster) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.api.patch("Namespace", cluster.namespace, {"metadata": {"labels": label}})
    _applied(cluster)
    cluster.wait_ready(1)


def test_a_budget_keeps_the_last_pod_from_eviction(cluster: Cluster) -> None:
    _applied(cluster, autoscaler="none", replicas=2)
    pods = cluster.wait_ready(2)

    def evict(pod: dict[str, Any]) -> int:
        meta = {"name": pod["metadata"]["name"], "namespace": cluster.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"{cluster.api.path('Pod', meta['name'])}/eviction"
        return cluster.api.raw("POST", path, json.dumps(body).encode())[0]

    (budget,) = (b["metadata"]["name"] for b in cluster.api.objects("PodDisruptionBudget"))

    def allowed() -> int:
        status = cluster.api.get("PodDisruptionBudget", budget).get("status", {})
        return int(status.get("disruptionsAllowed", 0))

    until(allowed, "a disruption that is allowed")
    assert [evict(pod) for pod in pods] == [201, 429]
