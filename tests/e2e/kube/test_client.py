"""specctl's client against a real API server: what it refuses is what we say that it refuses."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from speccli.core.kube.client import Cluster as Client
from speccli.core.kube.errors import (
    ClusterError,
    Conflict,
    Denied,
    Expired,
    Invalid,
    NotInstalled,
    NotThere,
)
from tests.support.kube.cluster import Cluster

pytestmark = pytest.mark.real_kubernetes
Object = dict[str, Any]


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return Client.connect(str(cluster.kubeconfig), deadline=30)


def deployment(namespace: str, replicas: int | None = 1, **container: Any) -> Object:
    labels = {"app": "idle"}
    engine = {"name": "idle", "image": "registry.k8s.io/pause:3.10", **container}
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [engine]}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "idle", "namespace": namespace},
        "spec": spec | ({} if replicas is None else {"replicas": replicas}),
    }


def test_it_says_where_it_is(cluster: Cluster, client: Client) -> None:
    assert (client.context, client.namespace) == ("real", cluster.namespace)
    assert client.version() == (1, 37)


def test_the_same_applied_again_changes_nothing(cluster: Cluster, client: Client) -> None:
    wanted = deployment(cluster.namespace, 0)
    first = client.apply(wanted)
    again = client.apply(wanted)
    assert first["metadata"]["generation"] == again["metadata"]["generation"] == 1
    would = client.apply(deployment(cluster.namespace, 3), dry_run=True)
    assert would["spec"]["replicas"] == 3
    live = client.get("apps/v1", "Deployment", "idle")
    assert live is not None
    assert live["spec"]["replicas"] == 0


def test_a_field_of_somebody_elses_is_named_and_left_alone(
    cluster: Cluster, client: Client
) -> None:
    client.apply(deployment(cluster.namespace, 0))
    cluster.api.apply(deployment(cluster.namespace, 0, image="other:1"), "kubectl", force=True)
    with pytest.raises(Conflict) as raised:
        client.apply(deployment(cluster.namespace, 0))
    (clash,) = raised.value.clashes
    assert clash.manager == "kubectl"
    assert clash.field == '.spec.template.spec.containers[name="idle"].image'
    client.apply(deployment(cluster.namespace, 0), force=True)


def test_what_the_schema_does_not_have_is_named(cluster: Cluster, client: Client) -> None:
    with pytest.raises(Invalid, match=r"unknown field .*imagee"):
        client.apply(deployment(cluster.namespace, 0, imagee="x"))
    client.apply(deployment(cluster.namespace, 0))
    changed = deployment(cluster.namespace, 0)
    changed["spec"]["selector"]["matchLabels"] = {"app": "other"}
    changed["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    with pytest.raises(Invalid, match=r"spec\.selector: .*immutable"):
        client.apply(changed, dry_run=True)
    with pytest.raises(Invalid, match="managedFields"):
        client.apply(
            deployment(cluster.namespace, 0)
            | {"metadata": {"name": "idle", "managedFields": [{"manager": "x"}]}}
        )


def test_what_is_not_there(cluster: Cluster, client: Client) -> None:
    assert client.get("v1", "Pod", "nothing") is None
    assert client.delete("v1", "Pod", "nothing") is False
    assert client.list("v1", "Pod", "no-such-namespace") == []
    with pytest.raises(NotInstalled, match="LeaderWorkerSet is not installed"):
        client.list("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    missing = deployment("no-such-namespace", 0)
    with pytest.raises(NotThere, match='namespaces "no-such-namespace" not found'):
        client.apply(missing)


def test_deleting_takes_what_it_owns_along(cluster: Cluster, client: Client) -> None:
    client.apply(deployment(cluster.namespace, 0))
    deadline = time.monotonic() + 30
    while not client.list("apps/v1", "ReplicaSet") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert client.delete("apps/v1", "Deployment", "idle") is True
    while client.get("apps/v1", "Deployment", "idle") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert client.list("apps/v1", "ReplicaSet") == []


def test_a_watch_goes_on_from_a_list(cluster: Cluster, client: Client) -> None:
    _, version = client.list_with_version("v1", "ConfigMap")
    meta = {"name": "seen"}
    cluster.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    for kind, obj in client.watch("v1", "ConfigMap", version, lasting_s=10):
        if obj["metadata"].get("name") == "seen":
            assert kind == "ADDED"
            break
    else:
        pytest.fail("the watch never told of it")


def test_long_lists_come_in_pages(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccli.core.kube.client._PAGE", 2)
    for i in range(5):
        meta = {"name": f"m{i}", "labels": {"of": "pages"}}
        cluster.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    found = client.list("v1", "ConfigMap", labels={"of": "pages"})
    assert sorted(each["metadata"]["name"] for each in found) == [f"m{i}" for i in range(5)]


def test_what_an_account_may_not_is_named_as_the_server_names_it(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    mine = Client.connect(str(cluster.account("narrow", [rule])), deadline=30)
    assert mine.list("v1", "Pod") == []
    with pytest.raises(Denied) as raised:
        mine.list("v1", "Node")
    who = f"system:serviceaccount:{cluster.namespace}:narrow"
    assert str(raised.value) == f"not allowed: {who} may not list nodes in the whole cluster"
    with pytest.raises(Denied, match=r"may not patch deployments\.apps in namespace"):
        mine.apply(deployment(cluster.namespace, 0))
    with pytest.raises(Denied, match=r"may not get pods/proxy in namespace"):
        mine.proxy(cluster.namespace, "any", 8000, "metrics")
    assert mine.can("list", "pods") is True
    assert mine.can("get", "pods/proxy") is False
    assert mine.can("list", "nodes", "*") is False


def test_a_token_that_is_none(cluster: Cluster) -> None:
    kubeconfig = cluster.account("gone", [])
    text = kubeconfig.read_text()
    client = Client.connect(str(kubeconfig), deadline=30)
    kubeconfig.write_text(_with_token(text, "not-a-token"))
    client.renew(client.credentials())
    with pytest.raises(Expired, match="does not accept the credentials"):
        client.list("v1", "Pod")


def _with_token(text: str, token: str) -> str:
    content = json.loads(text)
    content["users"][0]["user"] = {"token": token}
    return json.dumps(content)


def test_a_pod_that_is_not_there_is_not_asked(cluster: Cluster, client: Client) -> None:
    with pytest.raises(ClusterError, match="not found"):
        client.proxy(cluster.namespace, "nothing", 8000, "metrics")
    with pytest.raises(NotThere):
        client.logs(cluster.namespace, "nothing")
