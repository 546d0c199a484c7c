"""The manifests of `alert check` and `alert watch` on a real control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kube.cluster import Cluster, until

pytestmark = pytest.mark.real_kubernetes
MANIFESTS = Path(__file__).parents[3] / "manifests"
FILES = {
    "CronJob": MANIFESTS / "cron" / "alert-check.yaml",
    "Deployment": MANIFESTS / "monitoring" / "alert-watch.yaml",
}


@pytest.mark.parametrize("kind", FILES)
def test_a_restricted_namespace_takes_them_and_their_pod_asks_nothing_of_the_api_server(
    cluster: Cluster, kind: str
) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.api.patch("Namespace", cluster.namespace, {"metadata": {"labels": label}})
    made = list(yaml.safe_load_all(FILES[kind].read_text()))
    for body in made:
        cluster.api.apply(body)  # strictly: an unknown field is refused
    once = versions(cluster, made)
    for body in made:
        cluster.api.apply(body)
    assert versions(cluster, made) == once
    if kind == "CronJob":
        run_now(cluster, next(each for each in made if each["kind"] == kind))
    (pod,) = until(lambda: bound(cluster), f"a pod on a node; {cluster.diagnosis()}")
    volumes = {name for volume in pod["spec"]["volumes"] for name in volume if name != "name"}
    assert volumes == {"configMap", "persistentVolumeClaim", "emptyDir"}
    claims = cluster.api.objects("PersistentVolumeClaim")
    assert [claim["status"]["phase"] for claim in claims] == ["Bound"]


def bound(cluster: Cluster) -> list[dict[str, Any]]:
    return [pod for pod in cluster.api.objects("Pod") if pod["spec"].get("nodeName")]


def versions(cluster: Cluster, made: list[dict[str, Any]]) -> list[int]:
    found = (cluster.api.get(each["kind"], each["metadata"]["name"]) for each in made)
    return [each["metadata"].get("generation", 0) for each in found]


def run_now(cluster: Cluster, cron: dict[str, Any]) -> None:
    """What `kubectl create job --from=cronjob/…` does."""
    spec = cron["spec"]["jobTemplate"]["spec"]
    meta = {"name": "now", "namespace": cluster.namespace}
    cluster.api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
