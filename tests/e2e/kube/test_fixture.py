"""The control plane that the other tests here stand on does what a cluster does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.kube.cluster import Behaviour, Cluster, RefusedError, World, is_ready, until

pytestmark = pytest.mark.real_kubernetes
Object = dict[str, Any]
LABELS = {"app.kubernetes.io/name": "vllm", "specctl.dev/deployment": "d"}
SPECULATIVE = json.dumps({"method": "eagle3", "model": "draft", "num_speculative_tokens": 3})


def pod_spec(gpus: int = 1, product: str = "", **container: Any) -> Object:
    engine = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve", "org/model"],
        "args": ["--speculative-config", SPECULATIVE, "--shutdown-timeout", "20"],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
        **container,
    }
    spec: Object = {"containers": [engine], "tolerations": [{"operator": "Exists"}]}
    if product:
        spec["nodeSelector"] = {"nvidia.com/gpu.product": product}
    return spec


def deployment(replicas: int = 1, **pod: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod_spec(**pod)},
        },
    }


def test_the_scheduler_places_by_gpu_count(cluster: Cluster) -> None:
    cluster.api.create(deployment(3, gpus=8, product="NVIDIA-H100-80GB-HBM3"))

    def settled() -> list[Object] | None:
        pods = cluster.api.objects("Pod")
        return pods if len(pods) == 3 and sum(map(is_ready, pods)) == 2 else None

    pods = until(settled, "two of three pods ready")
    nodes = [pod["spec"].get("nodeName") for pod in pods]
    assert sorted(filter(None, nodes)) == ["h100-a", "h100-b"]
    (waiting,) = (pod for pod in pods if not pod["spec"].get("nodeName"))
    (condition,) = waiting["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in condition["message"]


def test_a_pod_serves_through_the_proxy_and_says_it_is_simulated(cluster: Cluster) -> None:
    cluster.api.create(deployment())
    (pod,) = cluster.wait_ready(1, LABELS)
    name = pod["metadata"]["name"]
    status, page = cluster.api.proxy(name, "metrics")
    assert status == 200
    assert b"vllm:spec_decode_num_drafts_total" in page
    assert b"SIMULATED/org/model" in page
    body = {"model": "SIMULATED/org/model", "prompt": "x" * 40, "max_tokens": 8}
    status, answer = cluster.api.proxy(name, "v1/completions", body=body)
    assert status == 200, answer
    assert json.loads(answer)["usage"]["completion_tokens"] == 8


def test_logs_come_through_the_api_server(cluster: Cluster) -> None:
    cluster.api.create(deployment())
    (pod,) = cluster.wait_ready(1)
    name = pod["metadata"]["name"]
    lines = cluster.api.logs(name).splitlines()
    assert "SIMULATED" in lines[0]
    assert lines[-1].endswith("Application startup complete.")
    assert cluster.api.logs(name, tailLines=1).splitlines() == lines[-1:]
    with pytest.raises(RefusedError, match="previous terminated container"):
        cluster.api.logs(name, previous="true")


def test_a_crash_shows_in_status_events_and_the_log_before(cluster: Cluster) -> None:
    cluster.pods(Behaviour(load_s=0.1, crash_log="ValueError: no such head", exit_code=3))
    cluster.api.create(deployment())

    def told(pod: Object) -> dict[str, str]:
        return dict(cluster.api.events(pod["metadata"]["name"]))

    def backing_off() -> Object | None:
        """The event comes after the status."""
        for pod in cluster.api.objects("Pod"):
            (status,) = pod["status"].get("containerStatuses") or [{}]
            waits = status.get("state", {}).get("waiting", {})
            if waits.get("reason") == "CrashLoopBackOff" and "BackOff" in told(pod):
                return pod
        return None

    pod = until(backing_off, "a crash loop")
    name, (status,) = pod["metadata"]["name"], pod["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert status["lastState"]["terminated"]["reason"] == "Error"
    assert status["restartCount"] >= 1
    assert "ValueError: no such head" in cluster.api.logs(name, previous="true")


@pytest.mark.parametrize(
    ("behaviour", "state", "reason"),
    [
        pytest.param(Behaviour(load_s=0, oom=True), "terminated", "OOMKilled", id="memory"),
        pytest.param(Behaviour(image_error="not found"), "waiting", "ImagePullBackOff", id="image"),
    ],
)
def test_a_failing_container_says_why(
    cluster: Cluster, behaviour: Behaviour, state: str, reason: str
) -> None:
    cluster.pods(behaviour)
    cluster.api.create(deployment())

    def seen() -> bool:
        statuses = [
            c for p in cluster.api.objects("Pod") for c in p["status"].get("containerStatuses", [])
        ]
        states = [c[where] for c in statuses for where in ("state", "lastState")]
        return any(one.get(state, {}).get("reason") == reason for one in states)

    until(seen, reason)


def test_an_engine_that_stays_unhealthy_is_never_ready(cluster: Cluster) -> None:
    cluster.pods(Behaviour(load_s=0.1, unready=True))
    cluster.api.create(deployment())

    def unhealthy() -> str | None:
        for name in cluster.pod_names():
            found: dict[str, str] = dict(cluster.api.events(name))
            if "Unhealthy" in found and "statuscode: 503" in found["Unhealthy"]:
                return name
        return None

    name = until(unhealthy, "a failed startup probe")
    assert not is_ready(cluster.api.get("Pod", name))


def test_a_secret_that_is_missing_keeps_a_container_from_starting(cluster: Cluster) -> None:
    key = {"secretKeyRef": {"name": "hf", "key": "token"}}
    cluster.api.create(deployment(env=[{"name": "HF_TOKEN", "valueFrom": key}]))

    def said() -> str | None:
        for pod in cluster.api.objects("Pod"):
            for status in pod["status"].get("containerStatuses", []):
                waiting: dict[str, str] = status["state"].get("waiting", {})
                if waiting.get("reason") == "CreateContainerConfigError":
                    return waiting["message"]
        return None

    assert until(said, "the error") == 'secret "hf" not found'
    meta = {"name": "hf"}
    cluster.api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": "x"}}
    )
    cluster.wait_ready(1)


def test_a_deleted_pod_finishes_what_it_has(cluster: Cluster) -> None:
    cluster.pods(Behaviour(load_s=0.1, step_factor=2))
    cluster.api.create(deployment())
    (pod,) = cluster.wait_ready(1)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    body = {"prompt": "x", "max_tokens": 100, "ignore_eos": True}

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster.api.proxy, name, "v1/completions", body=body)
        until(
            lambda: (
                b'running{engine="0",model_name="SIMULATED/org/model"} 1.0'
                in cluster.api.proxy(name, "metrics")[1]
            ),
            "a request",
        )
        cluster.api.delete("Pod", name)
        status, answer = asked.result(30)
    assert status == 200
    assert json.loads(answer)["usage"]["completion_tokens"] == 100

    def gone() -> bool:
        return all(pod["metadata"]["uid"] != uid for pod in cluster.api.objects("Pod"))

    until(gone, "the pod to go")
    cluster.wait_ready(1)


def test_a_claim_gets_a_volume(cluster: Cluster) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "200Gi"}},
        },
    }
    cluster.api.create(claim)
    until(
        lambda: cluster.api.get("PersistentVolumeClaim", "models")["status"]["phase"] == "Bound",
        "the claim to be bound",
    )


def test_an_account_may_do_what_its_role_says_and_no_more(cluster: Cluster, world: World) -> None:
    allowed = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    kubeconfig = cluster.account("reader", [allowed])
    user = json.loads(kubeconfig.read_text())["users"][0]["user"]
    assert set(user) == {"token"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{cluster.namespace}:reader",
            "resourceAttributes": {"namespace": cluster.namespace, "resource": "pods"},
        },
    }
    for verb, expected in (("list", True), ("delete", False)):
        review["spec"]["resourceAttributes"]["verb"] = verb  # type: ignore[index]
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert world.plane.api.ask("POST", path, review)["status"]["allowed"] is expected
