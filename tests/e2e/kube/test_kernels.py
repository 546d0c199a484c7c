"""The kernel checks through a real API server: as a Job, and inside a pod that runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from speccli.core import kernels_gate
from speccli.core.kube.client import Cluster as Ours
from tests.support.kube.cluster import Behaviour, Cluster, until

pytestmark = pytest.mark.real_kubernetes

IMAGE = "registry.example/vllm/vllm-openai@sha256:" + "ab" * 32
JOB_IMAGE = "registry.example/engine@sha256:" + "ab" * 32
ONE = ("--only", "rejection.vllm-v1.edges", "--only", "drafting.ngram")


def specctl(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    where = ("--kubeconfig", str(cluster.kubeconfig), "--context", cluster.context)
    return subprocess.run(
        [sys.executable, "-m", "speccli", "kernels", "check", *words, *where],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def a_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a CUDA driver tells of one device. Torch is not there all the same,
    so that every check says it could not be carried out: a warning, and a result like any other."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    place = tmp_path_factory.mktemp("driver")
    source = place / "cuda.cpp"
    source.write_text(
        'extern "C" int cuInit(unsigned) { return 0; }\n'
        'extern "C" int cuDeviceGetCount(int* n) { return *n = 1, 0; }\n'
    )
    library = place / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_LIBRARY_PATH": str(place)}


def left_over(cluster: Cluster) -> list[str]:
    ours = Ours.connect(str(cluster.kubeconfig), cluster.context)
    labels = {"app.kubernetes.io/name": "specctl-kernels-check"}
    return [
        each["metadata"]["name"]
        for api, kind in (("batch/v1", "Job"), ("v1", "Pod"), ("v1", "ConfigMap"))
        for each in ours.list(api, kind, labels=labels)
        if "deletionTimestamp" not in each["metadata"]
    ]


def test_a_job_runs_the_checks_tells_of_each_and_is_taken_away(
    cluster: Cluster, a_device: dict[str, str]
) -> None:
    cluster.pods(Behaviour(contains="kernels_check", runs=True, env=a_device))
    done = specctl(cluster, "--job", "--image", JOB_IMAGE, *ONE, "-o", "json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert [c["name"] for c in document["checks"]] == ["rejection.vllm-v1.edges", "drafting.ngram"]
    assert {c["status"] for c in document["checks"]} == {"broken"}
    assert document["environment"]["image_digest"] == "sha256:" + "ab" * 32
    assert document["environment"]["node"] in {"h100-a", "h100-b", "h200-a"}
    assert "drafting.ngram" in done.stderr
    until(lambda: not left_over(cluster), "nothing is left of it")


def test_what_a_job_found_is_remembered_and_the_gate_asks_for_a_whole_pass(
    cluster: Cluster, a_device: dict[str, str]
) -> None:
    cluster.pods(Behaviour(contains="kernels_check", runs=True, env=a_device))
    assert specctl(cluster, "--job", "--image", JOB_IMAGE, *ONE).returncode == 1
    kept = kernels_gate.kept_in_cluster(Ours.connect(str(cluster.kubeconfig), cluster.context))
    assert [one.image for one in kept] == [JOB_IMAGE]
    answer = kernels_gate.fresh_pass(kept, kernels_gate.Wanted(JOB_IMAGE), datetime.now(UTC))
    assert not answer.ok
    assert "only some checks were run" in answer.lacks[0]
    later = datetime.now(UTC) + timedelta(days=30)
    assert not kernels_gate.fresh_pass(kept, kernels_gate.Wanted("other:1"), later).ok


def test_a_job_where_no_gpu_is_says_so_in_one_line(cluster: Cluster) -> None:
    cluster.pods(Behaviour(contains="kernels_check", runs=True))
    done = specctl(cluster, "--job", "--image", JOB_IMAGE)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no CUDA device in job specctl-kernels-check-" in done.stderr.splitlines()[-1]
    until(lambda: not left_over(cluster), "nothing is left of it")


def test_a_job_that_no_node_takes_ends_at_its_deadline_and_says_why(cluster: Cluster) -> None:
    words = ("--job", "--image", JOB_IMAGE, "--node", "cpu-a", "--deadline", "15s")
    done = specctl(cluster, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert "not started in time" in done.stderr
    assert "nvidia.com/gpu" in done.stderr or "node" in done.stderr
    until(lambda: not left_over(cluster), "nothing is left of it")


def test_an_image_that_cannot_be_pulled_is_told_at_once(cluster: Cluster) -> None:
    cluster.pods(Behaviour(contains="kernels_check", image_error="manifest unknown"))
    begun = time.monotonic()
    done = specctl(cluster, "--job", "--image", JOB_IMAGE)
    assert done.returncode == 3
    assert "image" in done.stderr.splitlines()[-2] + done.stderr.splitlines()[-1]
    assert time.monotonic() - begun < 180
    until(lambda: not left_over(cluster), "nothing is left of it")


def test_the_job_is_let_into_a_restricted_namespace(
    cluster: Cluster, a_device: dict[str, str]
) -> None:
    """Pod Security admission of the API server itself."""
    cluster.api.patch(
        "Namespace", cluster.namespace,
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )  # fmt: skip
    cluster.pods(Behaviour(contains="kernels_check", runs=True, env=a_device))
    done = specctl(cluster, "--job", "--image", JOB_IMAGE, *ONE)
    assert done.returncode == 1, done.stderr


def engine(cluster: Cluster, name: str) -> None:
    """A pod with a simulated engine in it."""
    cluster.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "containers": [
                    {
                        "name": "engine",
                        "image": IMAGE,
                        "command": ["vllm", "serve", "m"],
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                ],
            },
        }
    )

    def running() -> bool:
        states = cluster.api.get("Pod", name).get("status", {}).get("containerStatuses", [])
        return any("running" in one["state"] for one in states)

    until(running, f"{name} runs")


def test_inside_a_pod_the_checks_run_with_its_python_and_their_exit_code_comes_back(
    cluster: Cluster, a_device: dict[str, str]
) -> None:
    cluster.pods(Behaviour(env=a_device))
    engine(cluster, "engine-0")
    done = specctl(cluster, "--exec", "engine-0", *ONE, "-o", "json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert (document["shared"], len(document["checks"])) == (True, 2)
    assert document["environment"]["image"] == IMAGE
    assert "drafting.ngram" in done.stderr


def test_inside_a_pod_without_a_gpu_it_says_so_in_one_line(cluster: Cluster) -> None:
    engine(cluster, "engine-1")
    done = specctl(cluster, "--exec", "engine-1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no CUDA device in pod engine-1" in done.stderr


def test_a_pod_that_is_not_there_and_a_container_that_is_not_in_it(cluster: Cluster) -> None:
    done = specctl(cluster, "--exec", "nobody")
    assert done.returncode == 3
    assert "no pod nobody in namespace" in done.stderr
    engine(cluster, "engine-2")
    done = specctl(cluster, "--exec", "engine-2", "--container", "nothing")
    assert done.returncode == 3
    assert "nothing" in done.stderr


def test_an_interrupted_job_is_taken_away(cluster: Cluster, tmp_path: Path) -> None:
    """Ctrl-C while the pod waits for a node."""
    where = ("--kubeconfig", str(cluster.kubeconfig), "--context", cluster.context)
    words = ("kernels", "check", "--job", "--image", JOB_IMAGE, "--node", "cpu-a")
    running = subprocess.Popen(
        [sys.executable, "-m", "speccli", *words, *where],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    watchdog = threading.Timer(300, running.kill)
    watchdog.start()
    try:
        until(lambda: len(left_over(cluster)) == 3, "the package, the job and its pod are there")
        running.send_signal(2)
        assert running.wait(180) == 130
    finally:
        watchdog.cancel()
        running.kill()
        running.communicate()
    until(lambda: not left_over(cluster), "nothing is left of it")


def test_options_that_need_a_cluster_are_refused_before_one_is_asked(tmp_path: Path) -> None:
    def said(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "speccli", "kernels", "check", *words],
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip

    assert said("--job", "--exec", "x").returncode == 64
    assert said("--job").returncode == 64
    assert said("--local", "-n", "x").returncode == 64
