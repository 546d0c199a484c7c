"""What a rollout looks like: from conditions, container states, events and logs."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.kube.progress import Progress, newest_hashes, pod_view, workload_of
from speccli.core.kube.rollout import Patience, most_telling

HASHES = frozenset({"new"})
Object = dict[str, Any]


def pod(name: str = "chat-new-a", template: str = "new", **status: Any) -> Object:
    labels = {"pod-template-hash": template, "specctl.dev/pool": "main"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "h100-a"},
        "status": {"phase": "Pending", **status},
    }


def container(restarts: int = 0, last: Object | None = None, **state: Object) -> Object:
    told = {"name": "engine", "restartCount": restarts, "state": state, "lastState": last or {}}
    return {"containerStatuses": [told]}


def ready(name: str = "chat-new-a", template: str = "new") -> Object:
    return pod(name, template, conditions=[{"type": "Ready", "status": "True"}])


@pytest.mark.parametrize(
    ("value", "phase", "words", "trouble"),
    [
        pytest.param(
            {**pod(), "spec": {}}, "scheduling", "waiting for the scheduler", None, id="just-made"
        ),
        pytest.param(
            {
                **pod(
                    conditions=[
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "0/4 nodes: 2 Insufficient nvidia.com/gpu",
                        }
                    ]
                ),
                "spec": {},
            },
            "scheduling",
            "Insufficient nvidia.com/gpu",
            "Unschedulable",
            id="no-gpu",
        ),
        pytest.param(
            pod(**container(waiting={"reason": "ImagePullBackOff", "message": "not found"})),
            "image",
            "ImagePullBackOff: not found",
            "ImagePullBackOff",
            id="image",
        ),
        pytest.param(
            pod(**container(waiting={"reason": "CreateContainerConfigError", "message": 'no "k"'})),
            "image",
            'no "k"',
            "CreateContainerConfigError",
            id="a-secret-without-the-key",
        ),
        pytest.param(
            pod(
                **container(
                    3,
                    {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    waiting={"reason": "CrashLoopBackOff"},
                )
            ),
            "crashed",
            "exit 137 (OOMKilled); 3 restarts",
            "CrashLoopBackOff",
            id="crash-loop",
        ),
        pytest.param(
            pod(phase="Failed", reason="Evicted", message="low on memory"),
            "crashed",
            "Evicted: low on memory",
            "Evicted",
            id="evicted",
        ),
        pytest.param(
            {**ready(), "metadata": {**ready()["metadata"], "deletionTimestamp": "now"}},
            "leaving",
            "finishing",
            None,
            id="leaving-though-ready",
        ),
        pytest.param(ready(), "ready", "serving", None, id="ready"),
    ],
)
def test_a_pod_says_how_far_it_is(
    value: Object, phase: str, words: str, trouble: str | None
) -> None:
    view = pod_view(value, HASHES)
    assert (view.phase, view.trouble) == (phase, trouble)
    assert words in view.detail


@pytest.mark.parametrize(
    ("log", "phase", "words"),
    [
        ("", "weights", "importing vLLM"),
        ("Starting to load model x...\n", "weights", "loading the weights"),
        (
            "Starting to load model x...\n"
            "Loading safetensors checkpoint shards:  45% Completed | 9/20\n",
            "weights",
            "loading the weights 45 %",
        ),
        ("Loading drafter model...\n", "weights", "loading the draft model"),
        ("Model loading took 3 GiB\nDynamo bytecode transform time: 4 s\n", "compile", "compiling"),
        ("Capturing CUDA graphs (decode, FULL):  71%|#\n", "compile", "capturing CUDA graphs 71 %"),
    ],
)
def test_a_running_pod_says_it_in_its_log(log: str, phase: str, words: str) -> None:
    view = pod_view(pod(**container(running={"startedAt": "t"})), HASHES, log=log)
    assert (view.phase, view.detail) == (phase, words)


def test_a_log_that_was_not_read_is_no_phase_of_a_start() -> None:
    view = pod_view(pod(**container(running={"startedAt": "t"})), HASHES, log=None)
    assert view.detail == "running, not ready"


def test_events_tell_what_a_container_waits_for() -> None:
    waiting = pod(**container(waiting={"reason": "ContainerCreating"}))
    pulling = [{"reason": "Pulling", "message": 'Pulling image "vllm"'}]
    mount = [*pulling, {"reason": "FailedMount", "message": "timed out"}]
    assert "Pulling image" in pod_view(waiting, HASHES, events=pulling).detail
    assert pod_view(waiting, HASHES, events=mount).trouble == "FailedMount"


def deployment(**status: Any) -> Object:
    return {
        "metadata": {
            "name": "chat",
            "uid": "d1",
            "generation": 3,
            "annotations": {"deployment.kubernetes.io/revision": "7"},
        },
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 3, **status},
    }


@pytest.mark.parametrize(
    ("status", "done"),
    [
        pytest.param(
            {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, True, id="all-new"
        ),
        pytest.param(
            {"replicas": 3, "updatedReplicas": 2, "availableReplicas": 2}, False, id="an-old-one"
        ),
        pytest.param(
            {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, False, id="one-loads"
        ),
        pytest.param(
            {
                "observedGeneration": 2,
                "replicas": 2,
                "updatedReplicas": 2,
                "availableReplicas": 2,
            },
            False,
            id="the-controller-has-not-looked",
        ),
    ],
)
def test_a_rollout_is_done_when_every_pod_is_new_and_serves(status: Object, done: bool) -> None:
    assert workload_of(deployment(**status)).done is done


def test_a_pod_that_is_ready_since_a_moment_does_not_count_as_serving_yet() -> None:
    young = workload_of(deployment(replicas=2, updatedReplicas=2, readyReplicas=2))
    assert young.line == "chat: 2 of 2 pods new, 0 serving, 2 just ready"


def test_a_pool_of_none_is_done() -> None:
    none = deployment(observedGeneration=3)
    none["spec"]["replicas"] = 0
    assert workload_of(none).done


def replica_set(revision: str, template: str, owner: str = "d1") -> Object:
    return {
        "metadata": {
            "labels": {"pod-template-hash": template},
            "annotations": {"deployment.kubernetes.io/revision": revision},
            "ownerReferences": [{"uid": owner}],
        }
    }


def test_pods_are_new_by_their_deployments_revision() -> None:
    sets = [replica_set("6", "old"), replica_set("7", "new"), replica_set("7", "other", "d2")]
    assert newest_hashes([deployment()], sets) == {"new"}
    assert newest_hashes([deployment(observedGeneration=2)], sets) == frozenset()


# ---- patience ----


def progress(*pods: Object, **status: Any) -> Progress:
    views = tuple(pod_view(each, HASHES) for each in pods)
    return Progress((workload_of(deployment(**status)),), views)


def crashing(restarts: int) -> Object:
    last = {"terminated": {"exitCode": 1}}
    return pod(**container(restarts, last, waiting={"reason": "CrashLoopBackOff"}))


def test_two_crashes_of_a_new_pod_are_a_failure() -> None:
    patience = Patience(0.0)
    assert patience.failure(progress(pod()), 0.0) is None
    assert patience.failure(progress(crashing(0)), 1.0) is None
    failed = patience.failure(progress(crashing(1)), 2.0)
    assert failed is not None
    assert failed[1] == "chat-new-a"


def test_crashes_from_before_the_watch_do_not_count() -> None:
    patience = Patience(0.0)
    assert patience.failure(progress(crashing(5)), 0.0) is None
    assert patience.failure(progress(crashing(6)), 1.0) is not None


def test_a_former_pod_that_crashes_fails_nothing() -> None:
    old = crashing(0)
    old["metadata"]["labels"]["pod-template-hash"] = "old"
    patience = Patience(0.0)
    patience.failure(progress(old), 0.0)
    old["status"] = crashing(9)["status"]
    assert patience.failure(progress(old), 1.0) is None


def test_a_wrong_image_is_a_failure_once_it_has_lasted() -> None:
    patience = Patience(0.0)
    wrong = pod(**container(waiting={"reason": "ImagePullBackOff", "message": "not found"}))
    assert patience.failure(progress(wrong), 0.0) is None
    assert patience.failure(progress(wrong), 119.0) is None
    assert patience.failure(progress(pod()), 119.5) is None, "somebody mended it"
    assert patience.failure(progress(wrong), 130.0) is None
    assert patience.failure(progress(wrong), 250.0) is not None


EXPIRED = {
    "conditions": [
        {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "too slow"}
    ]
}


def test_a_progress_deadline_that_passes_is_a_failure_at_once() -> None:
    patience = Patience(0.0)
    assert patience.failure(progress(), 0.0) is None
    failed = patience.failure(progress(**EXPIRED), 1.0)
    assert failed is not None
    assert failed[0].startswith("too slow")


def test_one_that_had_passed_before_gets_a_chance() -> None:
    patience = Patience(0.0)
    assert patience.failure(progress(**EXPIRED), 0.0) is None
    assert patience.failure(progress(**EXPIRED), 29.0) is None
    assert patience.failure(progress(**EXPIRED), 31.0) is not None


def test_a_pod_without_a_gpu_may_wait() -> None:
    patience = Patience(0.0)
    waiting = {**pod(), "spec": {}}
    assert all(patience.failure(progress(waiting), float(t)) is None for t in range(0, 3600, 60))


def test_the_pod_with_trouble_tells_most() -> None:
    loading = pod_view(pod("a", **container(running={})), HASHES, log="")
    wrong = pod_view(pod("b", **container(waiting={"reason": "ErrImagePull"})), HASHES)
    found = most_telling([loading, wrong, pod_view(ready("c"), HASHES)])
    assert found is not None
    assert found.name == "b"
    assert most_telling([pod_view(ready(), HASHES)]) is None
