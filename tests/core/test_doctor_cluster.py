"""Doctor's look at a cluster, against a scripted API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speccli.core.config import Settings
from speccli.core.doctor import Asked, Check, exit_code, run
from speccli.core.doctor.machine import Surroundings
from tests.support.api_server import ApiServer, Question, Reply, listed, status, write_kubeconfig
from tests.support.pods import crashed, ready

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NODES = [
    {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    for name, product in (("n1", "NVIDIA-H100-80GB-HBM3"), ("n2", "NVIDIA-H200"))
]


class Server:
    """Answers what doctor asks."""

    def __init__(self, *refused: str, pods: Any = ()) -> None:
        self.refused = refused
        self.pods = list(pods)

    def __call__(self, asked: Question) -> Reply | None:
        if asked.path == REVIEWS:
            wanted = asked.json["spec"]["resourceAttributes"]
            sub = f"/{wanted['subresource']}" if "subresource" in wanted else ""
            named = f"{wanted['verb']} {wanted['resource']}{sub}"
            return Reply(201, {"status": {"allowed": named not in self.refused}})
        if asked.path == "/api/v1/nodes":
            return listed(*NODES)
        if asked.path.endswith("/pods"):
            return listed(*self.pods)
        if asked.path.endswith("/deployments/chat"):
            labels = {"specctl.dev/deployment": "chat"}
            return Reply(body={"metadata": {"name": "chat", "labels": labels}, "spec": {}})
        if asked.path.endswith("/pods/bad"):
            return Reply(body=crashed("bad", code=2))
        if asked.path.endswith("/log"):
            return Reply(body=b"vllm: error: unrecognized arguments: --nope")
        return listed() if asked.path.endswith("/events") else None


async def look(folder: Path, api: ApiServer, **settings: Any) -> dict[str, Check]:
    path = write_kubeconfig(folder / "k", api.url)
    around = Surroundings({"HOME": str(folder)}, folder)
    asked = Asked(Settings(kubeconfig=str(path), **settings))
    return {check.name: check for check in await run(asked, around, machine=())}


async def test_all_is_well(tmp_path: Path) -> None:
    groups = {
        "v1": [("pods", "Pod", True), ("nodes", "Node", False), ("events", "Event", True)],
        "apps/v1": [("deployments", "Deployment", True)],
        "keda.sh/v1alpha1": [("scaledobjects", "ScaledObject", True)],
        "monitoring.coreos.com/v1": [("podmonitors", "PodMonitor", True)],
    }
    with ApiServer(Server(pods=[ready("a")]), groups=groups) as api:
        found = await look(tmp_path, api, deployment="chat")
    assert exit_code(found.values()) == 0
    assert found["kubeconfig"].what == f"context here, {api.url}"
    assert found["API server"].what.startswith("Kubernetes 1.37.2 answers")
    assert found["read"].what == "may read pods, metrics, logs and events in prod"
    assert found["deploy"].state == "ok"
    assert found["KEDA"].state == "ok"
    assert found["GPUs"].what == "NVIDIA-H100-80GB-HBM3: 7 of 8 free; NVIDIA-H200: 8 of 8 free"
    assert found["chat"].what == "pods: 1 serving"


async def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    server = Server("get pods/proxy", "patch deployments", pods=[ready("a"), crashed("bad")])
    with ApiServer(server) as api:
        found = await look(tmp_path, api, deployment="chat")
    assert exit_code(found.values()) == 2
    assert (found["read"].state, found["read"].what) == ("fail", "may not get pods/proxy in prod")
    assert found["deploy"].what == "may not patch deployments.apps in prod"
    assert found["KEDA"].state == "warn"
    assert found["chat"].what == "pods: 1 serving, 1 crashed"
    assert found["chat"].why == "bad: UNKNOWN_FLAG at start: this vLLM knows no --nope"
    assert found["chat"].fix


async def test_nodes_that_may_not_be_read_are_no_fault(tmp_path: Path) -> None:
    said = 'User "sre" cannot list resource "nodes" in API group "" at the cluster scope'

    def script(asked: Question) -> Reply | None:
        if asked.path == "/api/v1/nodes":
            return status(403, "Forbidden", said)
        return Server()(asked)

    with ApiServer(script) as api:
        found = await look(tmp_path, api)
    assert (found["GPUs"].state, found["GPUs"].what) == (
        "skip",
        "not allowed: sre may not list nodes in the whole cluster",
    )


async def test_a_server_that_is_down_is_unknown(tmp_path: Path) -> None:
    with ApiServer() as api:
        url = api
    found = await look(tmp_path, url)
    assert (found["API server"].state, int(exit_code(found.values()))) == ("unknown", 3)
    assert "connect refused" in found["API server"].what


async def test_a_broken_kubeconfig_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text("a: b: c")
    asked = Asked(Settings(kubeconfig=str(path)))
    (found,) = await run(asked, Surroundings({"HOME": str(tmp_path)}, tmp_path), machine=())
    assert (found.name, found.state) == ("kubeconfig", "fail")
    assert "is not YAML" in found.what


@pytest.mark.parametrize("named", [True, False], ids=["there", "gone"])
async def test_a_cluster_nobody_asked_for_is_left_alone(tmp_path: Path, named: bool) -> None:
    with ApiServer() as api:
        path = write_kubeconfig(tmp_path / "k", api.url)
        if not named:
            path.unlink()
        around = Surroundings({"HOME": str(tmp_path), "KUBECONFIG": str(path)}, tmp_path)
        found = {check.name: check for check in await run(Asked(Settings()), around, machine=())}
        assert found["kubeconfig"].state == ("skip" if named else "warn")
        assert api.asked == []
