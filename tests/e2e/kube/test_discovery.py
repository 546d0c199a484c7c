"""`--deployment` on a real control plane: pods found, read through the proxy, told apart."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.kube.client import Cluster as Client
from speccli.core.kube.crash import Crash, classify_pod
from tests.e2e.kube.deploying import Typed
from tests.e2e.test_tmux import Tmux
from tests.support.kube.cluster import Behaviour, Cluster, is_ready, until
from tests.support.real import absent

pytestmark = pytest.mark.real_kubernetes
Object = dict[str, Any]
ROLE = Path(__file__).parents[3] / "manifests" / "rbac" / "read.yaml"
SPECULATIVE = json.dumps({"method": "eagle3", "model": "draft", "num_speculative_tokens": 3})
OURS = {"app.kubernetes.io/name": "vllm", "specctl.dev/deployment": "chat"}
WATCHED = ("--window", "2s", "--interval", "0.5s", "--deadline", "30s", "-o", "json")


def deployment(
    name: str = "chat",
    labels: Mapping[str, str] = OURS,
    replicas: int = 2,
    gpus: int = 1,
    called: str = "engine",
    **container: Any,
) -> Object:
    engine = {
        "name": called,
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve", "org/model"],
        "args": ["--speculative-config", SPECULATIVE],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus), "memory": "64Gi"}},
        "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
        **container,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {"containers": [engine], "tolerations": [{"operator": "Exists"}]},
            },
        },
    }


@pytest.fixture
def typed(cluster: Cluster, tmp_path: Path) -> Typed:
    return Typed(cluster, tmp_path)


def engines(typed: Typed, *words: str, name: str = "chat") -> dict[str, Object]:
    """What `status` tells of each pod."""
    done = typed("status", "--deployment", name, *words, *WATCHED)
    assert done.stdout, done.stderr
    return {each["target"]: each for each in json.loads(done.stdout)["engines"]}


def names(cluster: Cluster, labels: Mapping[str, str] = OURS) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.api.objects("Pod", labels)}


def test_the_engines_of_a_deployment_and_no_others(cluster: Cluster, typed: Typed) -> None:
    cluster.pods(Behaviour(load_s=0.2, rate_per_s=4))
    other = {"app.kubernetes.io/name": "vllm", "specctl.dev/deployment": "other"}
    cluster.api.create(deployment())
    cluster.api.create(deployment("other", other, 1))
    cluster.wait_ready(2, OURS)
    found = engines(typed)
    assert set(found) == names(cluster)
    assert {each["state"] for each in found.values()} <= {"ok", "no-traffic"}
    assert {each["version"] for each in found.values()} == {"0.32.0"}
    done = typed("top", "--once", "--deployment", "chat", "--window", "1s")
    assert done.exit_code == 0
    assert all(f"{name}/0" in done.stdout for name in names(cluster))


def test_a_pool_that_specctl_did_not_deploy(cluster: Cluster, typed: Typed) -> None:
    labels = {"app": "theirs"}
    cluster.pods(Behaviour(load_s=0.2))
    cluster.api.create(deployment("theirs", labels, 1, called="vllm"))
    cluster.wait_ready(1, labels)
    assert set(engines(typed, name="theirs")) == names(cluster, labels)
    done = typed("status", "--deployment", "their")
    assert done.exit_code == 3
    assert "did you mean theirs?" in done.stderr


def test_a_pod_that_loads_is_loading_and_says_how_far_it_is(cluster: Cluster, typed: Typed) -> None:
    cluster.pods(Behaviour(load_s=0.2, stop_loading_at="drafter"))
    cluster.api.create(deployment(replicas=1))

    def loads() -> Object | None:
        found = engines(typed)
        told = next(iter(found.values()), {})
        return told if "draft" in str(told.get("reason")) else None

    told = until(loads, "a pod that loads its draft")
    assert (told["state"], told["reason"]) == ("loading", "loading the draft model")


def test_a_pod_without_a_node_is_pending_with_counts(cluster: Cluster, typed: Typed) -> None:
    cluster.api.create(deployment(replicas=1, gpus=9))

    def waits() -> Object | None:
        told = next(iter(engines(typed).values()), {})
        return told if "nodes" in str(told.get("reason")) else None

    told = until(waits, "a pod that waits")
    assert told["state"] == "pending"
    assert "with too few free nvidia.com/gpu" in told["reason"]


def test_pods_come_and_go_while_they_are_recorded(
    cluster: Cluster, typed: Typed, tmp_path: Path
) -> None:
    cluster.pods(Behaviour(load_s=0.2, rate_per_s=2))
    cluster.api.create(deployment(replicas=1))
    cluster.wait_ready(1, OURS)
    first = names(cluster)
    file = tmp_path / "r.jsonl"

    def served() -> set[str]:
        """Pods of which the last two lines are pages: the first may come before the pod is ready.

        The file's last line may not be whole yet.
        """
        lines = file.read_text().split("\n")[1:-1] if file.exists() else []
        pages: dict[str, list[bool]] = {}
        for each in map(json.loads, lines):
            page = each.get("status") == 200 and not each.get("stage")
            pages.setdefault(each["target"], []).append(page)
        return {name for name, told in pages.items() if len(told) > 1 and all(told[-2:])}

    words = ("record", file, "--deployment", "chat", "--interval", "0.5s", "--deadline", "30s")
    env = {**os.environ, **{name: str(value) for name, value in typed.env.items()}}
    command = [sys.executable, "-m", "speccli", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as recorder:
        try:
            until(lambda: served() == first, "a page of the first pod")
            cluster.api.patch("Deployment", "chat", {"spec": {"replicas": 2}})
            until(lambda: len(served()) == 2, "a page of the second pod")
            recorder.send_signal(signal.SIGINT)
            _, said = recorder.communicate(timeout=60)
        finally:
            recorder.kill()
    assert recorder.returncode == 0, said
    told = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert {each["target"] for each in told} == names(cluster) > first
    later = next(iter(names(cluster) - first))
    states = [each.get("stage", "served") for each in told if each["target"] == later]
    assert states[-1] == "served"
    assert not [each for each in told if each.get("error") and not each.get("stage")]


@pytest.mark.parametrize(
    ("behaviour", "code", "cause"),
    [
        pytest.param(
            Behaviour(
                load_s=0.2,
                crash_log="(EngineCore pid=1) ERROR 11-29 10:00:00 [core.py:1] ValueError: No "
                "available memory for the cache blocks. Try increasing",
            ),
            "KV_CACHE_NONE",
            "leave no memory for the KV cache",
            id="log",
        ),
        pytest.param(
            Behaviour(load_s=0.2, oom=True), "OOM_KILLED", "more host memory than it may", id="oom"
        ),
        pytest.param(
            Behaviour(image_error="manifest unknown"), "IMAGE_PULL", "no such image", id="image"
        ),
    ],
)
def test_a_pod_that_does_not_start_is_classified(
    cluster: Cluster, typed: Typed, behaviour: Behaviour, code: str, cause: str
) -> None:
    cluster.pods(behaviour)
    cluster.api.create(deployment(replicas=1))
    client = Client.connect(str(cluster.kubeconfig), deadline=30)

    def classified() -> Crash | None:
        for name in names(cluster):
            found = classify_pod(client, cluster.namespace, name)
            if found is not None and found.code == code:
                return found
        return None

    found = until(classified, f"a pod with {code}")
    assert cause in found.cause

    def told() -> Object | None:
        (each,) = engines(typed).values()
        return each if cause in str(each["reason"]) else None

    assert until(told, "the same of status")["fix"] == found.fix


def test_a_startup_probe_that_is_too_short_is_told_from_a_crash(cluster: Cluster) -> None:
    cluster.pods(Behaviour(load_s=0.2, stop_loading_at="weights"))
    probe = {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 30}
    cluster.api.create(deployment(replicas=1, startupProbe=probe))
    client = Client.connect(str(cluster.kubeconfig), deadline=30)

    def classified() -> Crash | None:
        for name in names(cluster):
            found = classify_pod(client, cluster.namespace, name)
            if found is not None and found.code == "STARTUP_PROBE":
                return found
        return None

    found = until(classified, "a startup probe that ends it")
    assert found.phase in {"start", "weights"}  # on a busy machine it may not come to the weights
    assert "while it still loaded" in found.cause


def test_the_reading_role_is_enough_and_plain_about_what_it_lacks(
    cluster: Cluster, typed: Typed
) -> None:
    cluster.pods(Behaviour(load_s=0.2))
    cluster.api.create(deployment())
    cluster.wait_ready(2, OURS)
    rules = [
        rule
        for each in yaml.safe_load_all(ROLE.read_text())
        if each["kind"] == "Role"
        for rule in each["rules"]
    ]
    reader = str(cluster.account("reader", rules))
    assert set(engines(typed, "--kubeconfig", reader)) == names(cluster)
    done = typed("doctor", "--deployment", "chat", "--kubeconfig", reader, "-o", "json")
    checks = json.loads(done.stdout)["checks"]
    said = {each["what"] for each in checks if each["name"] == "read"}
    assert said == {f"may not get pods/log in {cluster.namespace}"} | {
        f"may not list events in {cluster.namespace}"
    }
    blind = [rule for rule in rules if "pods/proxy" not in rule["resources"]]
    nobody = str(cluster.account("blind", blind))
    done = typed("status", "--deployment", "chat", "--kubeconfig", nobody)
    assert done.exit_code == 3
    assert "may not get pods/proxy in namespace" in done.stderr


def test_the_live_screen_shows_them(cluster: Cluster, tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        absent("tmux is not installed: scripts/system-packages installs it")
    cluster.pods(Behaviour(load_s=0.2, rate_per_s=4))
    cluster.api.create(deployment())
    cluster.wait_ready(2, OURS)
    tmux = Tmux(120, 40)
    words = [sys.executable, "-m", "speccli", "top", "--deployment", "chat"]
    env = f"KUBECONFIG={cluster.kubeconfig} XDG_CACHE_HOME={tmp_path}"
    seen: Callable[[str], bool] = lambda text: all(f"{n}/0" in text for n in names(cluster))  # noqa: E731
    try:
        tmux.open(f"{env} {shlex.join(words)}")
        text = tmux.until(seen, "both pods")
        assert "2 engines" in text or "SIMULATED" in text
        cluster.api.patch("Deployment", "chat", {"spec": {"replicas": 3}})
        until(lambda: len(list(filter(is_ready, cluster.api.objects("Pod", OURS)))) == 3, "three")
        tmux.until(seen, "the third pod")
        tmux.type("q")
        tmux.until(lambda _: tmux.ask("pane_dead") == "0", "the shell again")
    finally:
        tmux.close()
