"""The roles of manifests/rbac on a real API server: they are enough, and they are not more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.kube.client import Cluster as Client
from speccli.core.kube.errors import Denied
from speccli.core.manifests import RenderOptions, objects
from speccli.core.recipes.load import load
from tests.support.kube.cluster import Cluster

pytestmark = pytest.mark.real_kubernetes
FOLDER = Path(__file__).parents[3] / "manifests" / "rbac"
RECIPE = "llama-3.3-70b-eagle3-h100"


def rules(name: str, kind: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((FOLDER / name).read_text())
    return [rule for each in documents if each["kind"] == kind for rule in each["rules"]]


def connected(kubeconfig: Path) -> Client:
    return Client.connect(kubeconfig=str(kubeconfig), deadline=30)


def applied(cluster: Cluster) -> list[dict[str, Any]]:
    options = RenderOptions(
        namespace=cluster.namespace, name="pool", kubernetes=(1, 37), pools=("structured",)
    )
    return objects(load(RECIPE), options)


def test_who_may_deploy_can_apply_read_and_delete(cluster: Cluster) -> None:
    file = cluster.account("deployer", rules("deploy.yaml", "Role"))
    client = connected(file)
    made = applied(cluster)
    for each in made:
        client.apply(each)
    for each in made:
        client.apply(each, dry_run=True)
    pods = cluster.wait_ready(2)
    name = pods[0]["metadata"]["name"]
    status, body = client.proxy(cluster.namespace, name, 8000, "/metrics")
    assert (status, b"vllm:" in body) == (200, True)
    assert client.logs(cluster.namespace, name)
    assert client.events(cluster.namespace, name)
    refused: list[Callable[[], Any]] = [
        lambda: client.get("v1", "Secret", "hf-token", cluster.namespace),
        lambda: client.list("v1", "Node"),
        lambda: client.list("v1", "Pod", "kube-system"),
    ]
    for ask in refused:
        with pytest.raises(Denied):
            ask()
    for each in reversed(made):
        meta = each["metadata"]
        assert client.delete(each["apiVersion"], each["kind"], meta["name"], cluster.namespace)


def test_who_may_deploy_can_count_gpus_with_the_clusters_role(cluster: Cluster) -> None:
    file = cluster.account(
        "deployer", rules("deploy.yaml", "Role"), rules("deploy-cluster.yaml", "ClusterRole")
    )
    client = connected(file)
    assert {node["metadata"]["name"] for node in client.list("v1", "Node")} >= {"h100-a"}
    labels = "kubernetes.io/service-name=kubernetes"
    assert client.list("discovery.k8s.io/v1", "EndpointSlice", "default", labels=labels)


def test_who_may_read_sees_metrics_and_changes_nothing(cluster: Cluster) -> None:
    for each in applied(cluster):
        cluster.api.apply(each, "specctl")
    name = cluster.wait_ready(2)[0]["metadata"]["name"]
    client = connected(cluster.account("reader", rules("read.yaml", "Role")))
    assert len(client.list("v1", "Pod", cluster.namespace)) == 2
    assert client.proxy(cluster.namespace, name, 8000, "/metrics")[0] == 200
    refused: list[Callable[[], Any]] = [
        lambda: client.proxy(cluster.namespace, name, 8000, "/v1/completions", "POST", b"{}"),
        lambda: client.logs(cluster.namespace, name),
        lambda: client.delete("v1", "Pod", name, cluster.namespace),
        lambda: client.apply(applied(cluster)[0]),
    ]
    for ask in refused:
        with pytest.raises(Denied):
            ask()
