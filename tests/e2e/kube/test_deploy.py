"""A recipe on a real control plane: placed, ready, proven, recorded; and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speccli.core.manifests import sizes
from tests.e2e.kube.deploying import PLAIN, RECIPE, Typed
from tests.support.kube.cluster import Behaviour, Cluster, RefusedError, until

pytestmark = pytest.mark.real_kubernetes


@pytest.fixture
def typed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """In life a pod must have been ready for ten seconds before it counts."""
    monkeypatch.setattr(sizes, "MIN_READY_S", 1)
    return Typed(cluster, tmp_path)


def test_a_recipe_is_placed_by_gpus_ready_proven_and_recorded(typed: Typed) -> None:
    told = typed.deploy("--replicas", "2")
    assert told["exit"] == 0, told
    pods = typed.cluster.api.objects("Pod")
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"h100-a", "h100-b"}
    assert [pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in pods]
    assert told["rollout"]["end"] == "done"
    proof = told["proof"]
    assert (proof["verdict"], proof["asked"], proof["simulated"]) == ("proven", 2, True)
    for server in proof["servers"]:
        assert server["drafts"] > 20
        assert server["first_position"] > 0.4
    record = typed.record()
    assert record["schema"] == "specctl.deployment/v1"
    assert (record["revision"], record["state"]) == (1, "ready")
    assert record["recipe"]["draft"]["method"] == "eagle3"
    assert record["proof"]["verdict"] == "proven"


def test_a_second_deploy_changes_nothing(typed: Typed) -> None:
    typed.deploy("--replicas", "1")
    before = typed.owned()
    assert len(before) == 6
    again = typed.deploy("--replicas", "1")
    assert again["unchanged"]
    assert again["exit"] == 0
    assert {each["verb"] for each in again["objects"]} == {"same"}
    assert typed.owned() == before


def test_a_deploy_that_took_the_last_gpus_changes_nothing_the_second_time(typed: Typed) -> None:
    """The strategy is chosen by free GPUs, which are fewer once the pods are there."""
    first = typed.deploy("--replicas", "8")
    assert first["exit"] == 0, first
    before = typed.owned()
    assert typed.deploy("--replicas", "8")["unchanged"]
    assert typed.owned() == before


def test_a_trial_changes_nothing_and_shows_the_difference(typed: Typed) -> None:
    trial = typed("deploy", RECIPE, "--name", "chat", *PLAIN, "--dry-run", "-o", "json")
    assert trial.exit_code == 0, trial.stderr
    assert {each["verb"] for each in json.loads(trial.stdout)["objects"]} == {"create"}
    assert typed.owned() == {}
    typed.deploy()
    before = typed.owned()
    diff = typed("deploy", RECIPE, "--name", "chat", *PLAIN, "--set", "draft.K=5", "--diff")
    assert diff.exit_code == 0
    assert '"num_speculative_tokens":5' in diff.stdout
    assert '"num_speculative_tokens":3' in diff.stdout
    assert typed.owned() == before


def test_a_field_of_somebody_else_is_named_and_nothing_changes(typed: Typed) -> None:
    typed.deploy()
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": typed.cluster.namespace},
        "spec": {"template": {"spec": {"containers": [{"name": "engine", "image": "theirs:1"}]}}},
    }
    typed.cluster.api.apply(body, "argocd", force=True)
    before = typed.owned()
    del before["Deployment/chat"]
    refused = typed("deploy", RECIPE, "--name", "chat", *PLAIN, "--set", "draft.K=5")
    assert refused.exit_code == 3
    assert refused.stdout == ""
    assert (
        'Deployment chat: .spec.template.spec.containers[name="engine"].image is set by argocd'
        in refused.stderr
    )
    assert "--force-conflicts" in refused.stderr
    after = typed.owned()
    del after["Deployment/chat"]
    assert after == before
    assert typed.record()["revision"] == 1
    image = typed.cluster.api.get("Deployment", "chat")
    assert image["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs:1"


def test_a_broken_draft_is_refused_before_anything_is_applied(typed: Typed, tmp_path: Path) -> None:
    head = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({**head, "vocab_size": 128256}))
    words = ("deploy", RECIPE, "--name", "chat", *PLAIN, "--set", f"draft.config={tmp_path}")
    refused = typed(*words)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "refused, nothing was applied: PAIR_HIDDEN" in refused.stderr
    assert "--accept PAIR_HIDDEN" in refused.stderr
    assert typed.owned() == {}
    nowhere = typed(*words, "--kubeconfig", tmp_path / "none")
    assert "PAIR_HIDDEN" in nowhere.stderr, "no cluster is needed to know it"
    accepted = typed(*words, "--accept", "PAIR_HIDDEN", "-o", "json")
    assert accepted.exit_code == 0, accepted.stderr
    assert typed.record()["accepted"] == ["PAIR_HIDDEN"]


def test_a_missing_secret_is_refused(typed: Typed) -> None:
    words = ("deploy", RECIPE, "--name", "chat", *PLAIN, "--set", "secrets.api_key.name=keys")
    refused = typed(*words)
    assert refused.exit_code == 2
    assert f"DEPLOY_MISSING: there is no Secret keys in namespace {typed.cluster.namespace}" in (
        refused.stderr
    )
    assert typed.owned() == {}


def test_hardware_that_is_not_there_is_refused_with_what_there_is(typed: Typed) -> None:
    refused = typed("deploy", "llama-3.3-70b-eagle3-h100-nvl", "--name", "chat", *PLAIN)
    assert refused.exit_code == 2
    assert "DEPLOY_STOCK" in refused.stderr
    assert "NVIDIA-H100-80GB-HBM3, NVIDIA-H200" in refused.stderr


def test_a_crashing_pod_is_classified_and_the_pool_goes_on_serving(typed: Typed) -> None:
    typed.deploy()
    typed.cluster.pods(
        Behaviour(
            contains='"num_speculative_tokens":5',
            crash_log="ValueError: Model does not support EAGLE3 interface but "
            "aux_hidden_state_outputs was requested",
        )
    )
    told = typed.deploy("--set", "draft.K=5")
    assert told["exit"] == 2
    assert told["rollout"]["end"] == "failed"
    assert told["rollout"]["serving"] == 1
    assert told["crash"] is not None
    assert "EAGLE3" in json.dumps(told["crash"])
    assert told["proof"] is None
    assert typed.record()["state"] == "failed"
    pods = typed.cluster.api.objects("Pod")
    assert sum(p["status"]["containerStatuses"][0]["ready"] for p in pods) == 1


def test_a_pool_that_serves_without_speculation_is_found_out(typed: Typed) -> None:
    typed.cluster.pods(Behaviour(silent_speculation=True))
    told = typed.deploy()
    assert told["exit"] == 2
    assert told["proof"]["verdict"] == "refuted"
    assert told["proof"]["servers"][0]["code"] == "SPEC_NOT_ACTIVE"
    assert typed.record()["proof"]["verdict"] == "refuted"


def test_a_draft_that_is_never_right_is_found_out(typed: Typed) -> None:
    typed.cluster.pods(Behaviour(acceptance=0.05))
    told = typed.deploy()
    assert (told["exit"], told["proof"]["verdict"]) == (2, "refuted")


def test_a_start_that_takes_too_long_is_no_failure(typed: Typed) -> None:
    typed.cluster.pods(Behaviour(stop_loading_at="weights"))
    begun = typed("deploy", RECIPE, "--name", "chat", *PLAIN, "--no-wait")
    assert begun.exit_code == 0, begun.stderr

    def loads() -> bool:
        logs = map(typed.cluster.api.logs, typed.cluster.pod_names())
        try:
            return any("Starting to load model" in text for text in logs)
        except RefusedError:  # there is no log yet
            return False

    until(loads, "a pod that loads its weights")
    told = typed.deploy("--timeout", "2s")
    assert told["exit"] == 3
    assert told["rollout"]["end"] == "late"
    assert "loading the weights" in told["rollout"]["why"]
    assert typed.record()["state"] == "applied"


def test_rollback_brings_the_former_recipe_back(typed: Typed) -> None:
    typed.deploy()
    before = typed.cluster.api.get("Deployment", "chat")["spec"]["template"]
    typed.deploy("--set", "draft.K=5")
    done = typed("rollback", "chat", "-o", "json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["revision"], told["proof"]["verdict"]) == (3, "proven")
    assert typed.cluster.api.get("Deployment", "chat")["spec"]["template"] == before
    record = typed.record()
    assert record["restores"] == 1
    assert record["recipe"]["draft"]["K"] == 3
    assert [each["revision"] for each in record["previous"]] == [2, 1]


def test_rollback_leaves_a_failed_revision(typed: Typed) -> None:
    typed.deploy()
    typed.cluster.pods(Behaviour(contains='"num_speculative_tokens":5', crash_log="boom"))
    assert typed.deploy("--set", "draft.K=5")["exit"] == 2
    done = typed("rollback", "chat", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert typed.record()["restores"] == 1
    until(lambda: len(typed.cluster.api.objects("Pod")) == 1, "the crashing pod to go")


def test_delete_leaves_nothing_behind_but_what_it_says(typed: Typed) -> None:
    typed.deploy("--set", "storage.persist=true")
    done = typed("delete", "chat", "--yes")
    assert done.exit_code == 0, done.stderr
    assert set(typed.owned()) == {
        "PersistentVolumeClaim/chat-models",
        "PersistentVolumeClaim/chat-cache",
    }
    assert "stays: PersistentVolumeClaim chat-cache, PersistentVolumeClaim chat-models" in (
        done.stderr
    )
    assert typed.cluster.api.objects("Pod") == []
    assert typed.cluster.api.objects("ReplicaSet") == []
    assert typed("delete", "chat", "--yes", "--purge").exit_code == 0
    assert typed.owned() == {}
    assert typed("delete", "chat", "--yes").exit_code == 64


def test_delete_asks_and_takes_no_silence_for_a_yes(typed: Typed) -> None:
    typed.deploy("--no-wait")
    before = set(typed.owned())
    refused = typed("delete", "chat")
    assert refused.exit_code == 64
    assert "--yes" in refused.stderr
    assert set(typed.owned()) == before


def test_what_a_revision_has_no_more_is_removed(typed: Typed) -> None:
    typed.deploy("--pool", "structured")
    assert "Deployment/chat-structured" in typed.owned()
    assert typed.record()["proof"]["asked"] == 2
    told = typed.deploy()
    assert told["exit"] == 0
    assert {each["name"] for each in told["pruned"]} == {"chat-structured"}
    until(lambda: not [n for n in typed.owned() if "structured" in n], "its pods to finish")


def test_a_list_names_what_is_there(typed: Typed) -> None:
    typed.deploy()
    listed = json.loads(typed("list", "-n", typed.cluster.namespace, "-o", "json").stdout)
    (one,) = listed["deployments"]
    assert (one["name"], one["serving"], one["proof"]) == ("chat", 1, "proven")


def test_a_namespace_that_is_not_there_is_made_when_asked(typed: Typed) -> None:
    where = f"{typed.cluster.namespace}-more"
    refused = typed("deploy", RECIPE, "--name", "chat", *PLAIN, "-n", where)
    assert refused.exit_code == 64
    assert f"there is no namespace {where}" in refused.stderr
    words = ("-n", where, "--create-namespace", "--no-wait")
    assert typed("deploy", RECIPE, "--name", "chat", *PLAIN, *words).exit_code == 0
    assert typed("delete", "chat", "-n", where, "--yes").exit_code == 0
    typed.cluster.api.delete("Namespace", where)


def test_status_has_the_record_the_rollout_and_the_engines(typed: Typed) -> None:
    typed.cluster.pods(Behaviour(rate_per_s=4.0))
    typed.deploy("--replicas", "2")
    done = typed("status", "chat", "--window", "2s", "-o", "json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["record"]["state"] == "ready"
    assert told["rollout"]["serving"] == 2
    assert len(told["status"]["engines"]) == 2
    assert told["status"]["simulated"]
    table = typed("status", "chat", "--window", "2s")
    assert "ready, proven" in table.stdout
    assert "2 of 2 pods new, 2 serving" in table.stdout
    assert "SIMULATED" in table.stdout
    assert typed("status", "nothing").exit_code == 64


def test_replicas_change_hands_with_an_autoscaler_and_back(typed: Typed) -> None:
    api = typed.cluster.api
    typed.deploy("--replicas", "3", "--no-wait")
    seen = set()

    def replicas() -> int:
        count: int = api.get("Deployment", "chat")["spec"]["replicas"]
        seen.add(count)
        return count

    common = (RECIPE, "--name", "chat", "--no-monitoring", "--set", "storage.persist=false")
    handed = typed("deploy", *common, "--autoscaler", "hpa", "--no-wait")
    assert handed.exit_code == 0, handed.stderr
    assert replicas() == 3
    owners = [m["manager"] for m in api.get("Deployment", "chat")["metadata"]["managedFields"]]
    assert "specctl-handover" in owners
    typed.scale(4)
    again = typed("deploy", *common, "--autoscaler", "hpa", "--set", "draft.K=4", "--no-wait")
    assert again.exit_code == 0, again.stderr
    assert replicas() == 4
    back = typed("deploy", *common, "--autoscaler", "none", "--replicas", "2", "--no-wait")
    assert back.exit_code == 0, back.stderr
    assert replicas() == 2
    assert api.find("HorizontalPodAutoscaler", "chat") is None
    assert 1 not in seen
