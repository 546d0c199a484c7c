from __future__ import annotations

from typing import Any

import pytest

from speccli.core.kube.discover import Found, Pod, engine_of, find, read_pod, selector_text
from speccli.core.kube.errors import ClusterError, Denied
from tests.core.kube.conftest import Connect
from tests.support.api_server import ApiServer, Question, Reply, listed, not_there, status
from tests.support.pods import crashed, loading, pending, ready, terminating

BASE = "/apis/apps/v1/namespaces/prod/deployments"
PODS = "/api/v1/namespaces/prod/pods"
LABEL = "specctl.dev/deployment"


def deployment(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}


def test_one_of_ours_has_all_its_pools(api: ApiServer, connect: Connect) -> None:
    body = deployment("chat", labels={LABEL: "chat"})
    api.script = lambda asked: Reply(body=body) if asked.path == f"{BASE}/chat" else None
    assert find(connect(), "chat") == Found("chat", "prod", f"{LABEL}=chat")


def test_anybodys_has_the_pods_of_its_own_selector(api: ApiServer, connect: Connect) -> None:
    body = deployment("theirs")
    api.script = lambda asked: Reply(body=body) if asked.path == f"{BASE}/theirs" else None
    assert find(connect(), "theirs") == Found("theirs", "prod", "app=x")


def test_a_stateful_set_will_do(api: ApiServer, connect: Connect) -> None:
    api.groups["apps/v1"] = [*api.groups["apps/v1"], ("statefulsets", "StatefulSet", True)]

    def script(asked: Question) -> Reply | None:
        if asked.path.endswith("/statefulsets/old"):
            return Reply(body=deployment("old"))
        return not_there("old", "deployments") if asked.path == f"{BASE}/old" else None

    api.script = script
    assert find(connect(), "old").selector == "app=x"


def test_who_may_not_read_deployments_finds_labelled_pods(api: ApiServer, connect: Connect) -> None:
    denied = status(
        403, "Forbidden", 'User "sre" cannot get resource "deployments" in API group ""'
    )

    def script(asked: Question) -> Reply | None:
        if "/apps/v1/namespaces" in asked.path:
            return denied
        return listed(ready("a")) if asked.path == PODS else None

    api.groups["apps/v1"] = [*api.groups["apps/v1"], ("statefulsets", "StatefulSet", True)]
    api.script = script
    assert find(connect(), "chat").selector == f"{LABEL}=chat"
    api.script = lambda asked: listed() if asked.path == PODS else script(asked)
    with pytest.raises(Denied, match="sre may not get deployments"):
        find(connect(), "chat")


def test_who_may_not_read_stateful_sets_is_told_that_there_is_no_deployment(
    api: ApiServer, connect: Connect
) -> None:
    def script(asked: Question) -> Reply | None:
        if "statefulsets/" in asked.path:
            return status(403, "Forbidden", "no")
        if asked.path.startswith(f"{BASE}/"):
            return not_there("x", "deployments")
        return listed() if asked.path in (PODS, BASE) else None

    api.groups["apps/v1"] = [*api.groups["apps/v1"], ("statefulsets", "StatefulSet", True)]
    api.script = script
    with pytest.raises(ClusterError, match="no deployment chat in namespace prod"):
        find(connect(), "chat")


def test_a_mistyped_name_is_told_the_nearest(api: ApiServer, connect: Connect) -> None:
    def script(asked: Question) -> Reply | None:
        if asked.path == BASE:
            return listed(deployment("chat"), deployment("code"))
        return (
            listed()
            if asked.path == PODS
            else not_there("x", "deployments")
            if asked.path.startswith(f"{BASE}/") or "statefulsets/" in asked.path
            else None
        )

    api.groups["apps/v1"] = [*api.groups["apps/v1"], ("statefulsets", "StatefulSet", True)]
    api.script = script
    with pytest.raises(ClusterError, match="no deployment chatt in namespace prod") as raised:
        find(connect(), "chatt")
    assert raised.value.hint == "did you mean chat?"
    with pytest.raises(ClusterError) as raised:
        find(connect(), "zzz")
    assert raised.value.hint == "there are chat, code"


def test_every_operator_of_a_selector() -> None:
    selector = {
        "matchLabels": {"a": "1"},
        "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["x", "y"]},
            {"key": "c", "operator": "NotIn", "values": ["z"]},
            {"key": "d", "operator": "Exists"},
            {"key": "e", "operator": "DoesNotExist"},
        ],
    }
    assert selector_text(selector) == "a=1,b in (x,y),c notin (z),d,!e"


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param(
            [{"name": "proxy"}, {"name": "engine", "ports": [{"containerPort": 9}]}],
            ("engine", 9),
            id="ours-by-name",
        ),
        pytest.param(
            [
                {"name": "istio", "ports": [{"name": "http", "containerPort": 15020}]},
                {
                    "name": "vllm",
                    "resources": {"limits": {"nvidia.com/gpu": "2"}},
                    "ports": [
                        {"name": "grpc", "containerPort": 50051},
                        {"name": "metrics", "containerPort": 8001},
                    ],
                },
            ],
            ("vllm", 8001),
            id="the-one-with-gpus",
        ),
        pytest.param(
            [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 8000}]}],
            ("a", 8000),
            id="the-usual-port",
        ),
        pytest.param([{"name": "a"}], ("a", 8000), id="no-port-told"),
    ],
)
def test_which_container_serves_and_where(
    containers: list[dict[str, Any]], expected: tuple[str, int]
) -> None:
    assert engine_of({"spec": {"containers": containers}}) == expected


@pytest.mark.parametrize(
    ("pod", "stage", "running", "crash"),
    [
        pytest.param(ready("a"), None, True, False, id="ready"),
        pytest.param(loading("a"), "loading", True, False, id="loading"),
        pytest.param(pending("a"), "pending", False, False, id="pending"),
        pytest.param(terminating("a"), "terminating", True, False, id="terminating"),
        pytest.param(crashed("a"), None, False, True, id="crashed"),
    ],
)
def test_what_a_pod_is_doing(
    pod: dict[str, Any], stage: str | None, running: bool, crash: bool
) -> None:
    seen = read_pod(pod)
    assert (seen.stage, seen.running, seen.crashed) == (stage, running, crash)


def test_the_pool_is_the_pods_label() -> None:
    assert read_pod(ready("a", labels={"specctl.dev/pool": "standby"})).pool == "standby"
    assert read_pod(ready("a", labels={"specctl.dev/spec-method": "none"})).meant == "none"
    assert read_pod(ready("a")).meant is None
    assert read_pod(ready("a")).pool is None
    assert read_pod(ready("a", labels=None)).pool is None


def test_another_start_is_another_process() -> None:
    assert read_pod(crashed("a")).incarnation != read_pod(ready("a")).incarnation
    assert isinstance(read_pod(ready("a")), Pod)
