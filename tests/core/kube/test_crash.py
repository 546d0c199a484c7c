"""Pods that do not serve, by what their cluster and their log say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from speccli.core.kube.crash import Crash, classify, classify_pod, phase_of, worst
from tests.core.kube.conftest import Connect
from tests.support.api_server import ApiServer, Question, Reply, listed, status
from tests.support.pods import (
    crashed,
    ended,
    evicted,
    loading,
    pending,
    pod,
    ready,
    terminating,
    waiting,
)

LOADED = "INFO Starting to load model m...\nINFO Model loading took 70.0 GiB memory\n"


def event(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": "2026-09-01T00:00:00Z"}


@pytest.mark.parametrize(
    "fine",
    [
        pytest.param(ready("a"), id="ready"),
        pytest.param(loading("a"), id="loading"),
        pytest.param(terminating("a"), id="terminating"),
        pytest.param(pod("a", {"phase": "Pending"}, node=None), id="not-looked-at-yet"),
        pytest.param(waiting("a", "ContainerCreating", ""), id="being-created"),
    ],
)
def test_what_serves_or_is_on_its_way_has_no_cause(fine: dict[str, Any]) -> None:
    assert classify(fine) is None


@pytest.mark.parametrize(
    ("message", "cause", "fix"),
    [
        pytest.param(
            "0/12 nodes are available: 4 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable"
            ", 7 node(s) didn't match Pod's node affinity/selector. preemption: 0/12 nodes …",
            "0 of 12 nodes can take it: 4 with too few free nvidia.com/gpu; 1 cordoned; "
            "7 without the label that the pod asks for",
            "free GPUs",
            id="gpus-go-first",
        ),
        pytest.param(
            "0/3 nodes are available: 3 node(s) had untolerated taint {nvidia.com/gpu: present}.",
            "0 of 3 nodes can take it: 3 with the taint nvidia.com/gpu: present",
            "toleration",
            id="taint",
        ),
        pytest.param(
            "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. …",
            "0 of 2 nodes can take it: its volume claim is not bound",
            "kubectl describe pvc",
            id="no-count",
        ),
        pytest.param(
            'persistentvolumeclaim "models" not found',
            "volume claim",
            "describe pvc",
            id="no-claim",
        ),
    ],
)
def test_no_node_takes_it_with_counts(message: str, cause: str, fix: str) -> None:
    found = classify(pending("a", message))
    assert found is not None
    assert (found.code, found.phase) == ("UNSCHEDULABLE", "scheduling")
    assert cause in found.cause
    assert fix in found.fix
    assert found.evidence == message


@pytest.mark.parametrize(
    ("reason", "message", "code", "cause"),
    [
        ("ErrImagePull", "manifest unknown", "IMAGE_PULL", "no such image"),
        ("ImagePullBackOff", "pull access denied, repository …", "IMAGE_PULL", "let the node in"),
        ("ErrImagePull", "toomanyrequests: rate limit", "IMAGE_PULL", "sheds load"),
        ("ErrImagePull", "write /var/lib: no space left on device", "IMAGE_PULL", "disk is full"),
        (
            "ErrImagePull",
            "dial tcp: lookup x: no such host",
            "IMAGE_PULL",
            "not reach the registry",
        ),
        ("InvalidImageName", "couldn't parse", "IMAGE_NAME", "name is none"),
        (
            "CreateContainerConfigError",
            'secret "hf-token" not found',
            "NO_SECRET",
            "there is no Secret hf-token",
        ),
        (
            "CreateContainerConfigError",
            "couldn't find key HF_TOKEN in Secret prod/hf",
            "NO_SECRET",
            "the Secret prod/hf has no key HF_TOKEN",
        ),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root (pod: …)",
            "RUNS_AS_ROOT",
            "the image runs as root",
        ),
        (
            "RunContainerError",
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please "
            "update your driver to a newer version, or use an earlier cuda container: unknown",
            "DRIVER_OLD",
            "too old for the image (cuda>=12.8)",
        ),
        (
            "RunContainerError",
            'exec: "vllm": executable file not found in $PATH',
            "NO_COMMAND",
            "the image has no vllm",
        ),
        ("CreateContainerError", "context deadline exceeded", "CONTAINER", "cannot be started"),
    ],
)
def test_a_container_that_does_not_start(reason: str, message: str, code: str, cause: str) -> None:
    found = classify(waiting("a", reason, message))
    assert found is not None
    assert (found.code, found.phase) == (code, "image")
    assert cause in found.cause


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Multi-Attach error for volume pvc-1 Volume is already used", "VOLUME_BUSY"),
        ('MountVolume.SetUp failed: persistentvolumeclaim "models" not found', "NO_VOLUME"),
        ("MountVolume.MountDevice failed for volume: timeout", "VOLUME"),
    ],
)
def test_a_volume_in_the_way(message: str, code: str) -> None:
    events = [event("Scheduled", "ok"), event("FailedMount", message)]
    found = classify(waiting("a", "ContainerCreating", ""), events)
    assert found is not None
    assert found.code == code


@pytest.mark.parametrize(
    ("reason", "message", "code", "cause"),
    [
        (
            "Evicted",
            "The node was low on resource: ephemeral-storage. Threshold …",
            "EVICTED",
            "low on ephemeral-storage",
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu",
            "NO_GPU",
            "promised GPUs",
        ),
        ("NodeLost", "", "NODE_LOST", "node went away"),
        ("Preempting", "", "PREEMPTED", "higher priority"),
        ("Other", "x", "FAILED", "its node ended it (Other)"),
    ],
)
def test_a_pod_that_its_node_gave_up(reason: str, message: str, code: str, cause: str) -> None:
    found = classify(evicted("a", message, reason))
    assert found is not None
    assert found.code == code
    assert cause in found.cause


def test_host_memory_is_told_from_the_gpus() -> None:
    found = classify(crashed("a", code=137, reason="OOMKilled"), (), LOADED)
    assert found == Crash(
        "a",
        "OOM_KILLED",
        "compile",
        "it used more host memory than it may (64Gi)",
        "raise its memory limit: weights pass through host memory, and /dev/shm counts too",
        "OOMKilled",
        3,
        137,
    )


def test_a_startup_probe_that_is_too_short() -> None:
    events = [
        event("Unhealthy", "Startup probe failed: Get http://10.0.0.7:8000/health: refused"),
        event("Killing", "Container engine failed startup probe, will be restarted"),
    ]
    times: dict[str, Any] = {
        "startedAt": "2026-09-01T00:00:00Z",
        "finishedAt": "2026-09-01T00:10:30Z",
    }
    found = classify(crashed("a", code=137, **times), events, "INFO Starting to load model m")
    assert found is not None
    assert (found.code, found.phase) == ("STARTUP_PROBE", "weights")
    assert found.cause.startswith("it was ended after 630 s while it still loaded")


def test_a_liveness_probe_and_a_kill_without_one() -> None:
    killed = crashed("a", code=137)
    alive = [event("Killing", "Container engine failed liveness probe, will be restarted")]
    found = classify(killed, alive, LOADED)
    assert found is not None
    assert found.code == "LIVENESS_PROBE"
    found = classify(killed, (), LOADED)
    assert found is not None
    assert (found.code, found.exit_code) == ("KILLED", 137)


def test_a_log_is_believed_over_an_exit_code() -> None:
    log = LOADED + "ERROR ValueError: No available memory for the cache blocks. Try increasing"
    found = classify(crashed("a"), (), log)
    assert found is not None
    assert (found.code, found.phase, found.restarts) == ("KV_CACHE_NONE", "compile", 3)


def test_an_error_that_nobody_knows_is_told_as_it_is() -> None:
    log = (
        "(EngineCore pid=9) ERROR 11-29 10:00:00 [core.py:1] RuntimeError: the moon is full\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
    )
    found = classify(crashed("a"), (), log)
    assert found is not None
    assert (found.code, found.cause) == ("UNKNOWN", "RuntimeError: the moon is full")
    found = classify(crashed("a", code=7), (), "nothing")
    assert found is not None
    assert found.cause == "it ended (exit 7), and its log tells no error"


@pytest.mark.parametrize(
    ("code", "name"), [(139, "SEGFAULT"), (135, "SHM"), (127, "NO_COMMAND"), (0, "ENDED")]
)
def test_exit_codes_that_say_something(code: int, name: str) -> None:
    found = classify(crashed("a", code=code), (), "")
    assert found is not None
    assert found.code == name
    assert f"exit {code}" in found.cause


def test_a_start_that_the_runtime_refuses() -> None:
    state = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "engine",
                "state": ended(
                    128,
                    "StartError",
                    message='failed to create: exec: "vlm": executable file not found in $PATH',
                ),
            }
        ],
    }
    found = classify(pod("a", state), (), "")
    assert found is not None
    assert found.cause == "the image has no vlm"


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        ("", "start"),
        ("Starting to load model m", "weights"),
        ("Starting to load model m\nLoading drafter model...", "weights"),
        (LOADED, "compile"),
        (LOADED + "Capturing CUDA graphs (mixed prefill-decode): 40%", "capture"),
        (LOADED + "Application startup complete.", "ready"),
    ],
)
def test_how_far_a_start_came(log: str, phase: str) -> None:
    assert phase_of(log) == phase


class TestReading:
    def test_pod_events_and_the_log_of_the_run_that_ended(
        self, api: ApiServer, connect: Connect
    ) -> None:
        def script(asked: Question) -> Reply | None:
            if asked.path.endswith("/pods/a/log"):
                assert asked.query["previous"] == "true"
                assert asked.query["container"] == "engine"
                return Reply(body=b"vllm: error: unrecognized arguments: --speculative")
            if asked.path.endswith("/pods/a"):
                return Reply(body=crashed("a", code=2))
            return listed() if asked.path.endswith("/events") else None

        api.script = script
        found = classify_pod(connect(), "prod", "a")
        assert found is not None
        assert found.line == "a: UNKNOWN_FLAG at start: this vLLM knows no --speculative"
        assert found.to_json()["exit_code"] == 2

    def test_what_may_not_be_read_is_done_without(self, api: ApiServer, connect: Connect) -> None:
        def script(asked: Question) -> Reply | None:
            if asked.path.endswith("/pods/a"):
                return Reply(body=crashed("a", code=139))
            denied = asked.path.endswith(("/log", "/events"))
            return status(403, "Forbidden", "no") if denied else None

        api.script = script
        found = classify_pod(connect(), "prod", "a")
        assert found is not None
        assert found.code == "SEGFAULT"

    def test_a_pod_that_is_gone(self, api: ApiServer, connect: Connect) -> None:
        api.script = lambda asked: (
            status(404, "NotFound", "gone", name="a") if "/pods/a" in asked.path else None
        )
        assert classify_pod(connect(), "prod", "a") is None


def test_the_one_that_tells_most() -> None:
    unknown = Crash("a", "UNKNOWN", "start", "", "", "", 9)
    known = Crash("b", "NO_GPU", "start", "", "", "", 1)
    often = Crash("c", "NO_GPU", "start", "", "", "", 4)
    assert worst([unknown, known, often]) == often
    assert worst([]) is None


def test_every_code_is_documented() -> None:
    root = Path(__file__).parents[3]
    table = (root / "speccli/core/engines/vllm_crash_table.py").read_text()
    engine = (root / "speccli/core/engines/vllm_crash.py").read_text()
    words = (root / "speccli/core/kube/crash_words.py").read_text()
    codes = set(re.findall(r'"([A-Z]{2,}(?:_[A-Z]+)*)"', table + engine + words))
    page = (root / "docs" / "kubernetes.md").read_text()
    missing = sorted(code for code in codes if f"`{code}`" not in page)
    assert codes >= {"KV_CACHE_TOO_SMALL", "UNSCHEDULABLE", "DRAFT_MISMATCH"}
    assert not missing
