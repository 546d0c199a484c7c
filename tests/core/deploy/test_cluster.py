"""The order of a deployment: judged, tried, intended, applied, proven, recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked
from speccli.core.deploy.cluster import Outcome
from speccli.core.deploy.gate import GateError
from speccli.core.deploy.remove import delete, deletion, restored
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.kube.errors import Clash, Conflict, Denied, NotInstalled
from speccli.core.kube.progress import Progress
from speccli.core.kube.record import Record, from_object
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.load import load
from tests.core.deploy.fake_cluster import FakeCluster, Killed

RECIPE = "llama-3.3-70b-eagle3-h100"
PLAIN = {"name": "chat", "autoscaler": "none", "monitoring": False}


class Heard:
    """What was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    warn = say

    def progress(self, now: Progress) -> None:
        pass

    def __contains__(self, words: str) -> bool:
        return any(words in line for line in self.lines)


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def heard() -> Heard:
    return Heard()


def asked(*changes: str, options: dict[str, Any] | None = None, **more: Any) -> Asked:
    sets = ["storage.persist=false", *changes]
    return Asked(load(RECIPE, sets), RenderOptions(**{**PLAIN, **(options or {})}), **more)


def deploy(fake: FakeCluster, heard: Heard, wanted: Asked) -> Outcome:
    return deploying.deploy(lambda _: fake, wanted, heard)  # type: ignore[arg-type,return-value]


def record(fake: FakeCluster) -> Record:
    return from_object(fake.objects["ConfigMap", "chat-specctl"])


def test_the_intent_is_written_before_anything_is_applied(fake: FakeCluster, heard: Heard) -> None:
    outcome = deploy(fake, heard, asked())
    assert outcome.exit_code is ExitCode.OK
    assert fake.calls == [
        "specctl ConfigMap chat-specctl",
        "specctl ServiceAccount chat",
        "specctl NetworkPolicy chat",
        "specctl Service chat",
        "specctl PodDisruptionBudget chat",
        "specctl Deployment chat",
        "specctl ConfigMap chat-specctl",
        "specctl ConfigMap chat-specctl",
    ]
    told = record(fake).current
    assert (told.number, told.state) == (1, "ready")
    assert told.proof is not None
    assert told.proof["verdict"] == "proven"
    assert [ref.kind for ref in told.objects][-1] == "Deployment"


def test_the_same_again_writes_no_record(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, asked())
    fake.calls.clear()
    again = deploy(fake, heard, asked())
    assert again.unchanged
    assert not [call for call in fake.calls if "ConfigMap" in call]


def scaled(by: str) -> dict[str, Any]:
    """Two servers, told by the recipe or left to an autoscaler."""
    return {"autoscaler": by} | ({"replicas": 2} if by == "none" else {})


def test_cut_short_after_any_write_the_same_again_completes_it(heard: Heard) -> None:
    """With the replicas' change of hands, a scaler that comes and one that goes."""
    for there, here in (("none", "hpa"), ("hpa", "none")):
        for count in range(40):
            fake = FakeCluster()
            before = asked(options=scaled(there), wait=False)
            after = asked("draft.K=4", options=scaled(here))
            deploy(fake, heard, before)
            fake.objects["Deployment", "chat"]["spec"]["replicas"] = 2
            fake.calls.clear()
            fake.die_after = count
            try:
                deploy(fake, heard, after)
            except Killed:
                fake.die_after = None
                assert fake.objects["Deployment", "chat"]["spec"]["replicas"] == 2
                assert deploy(fake, heard, after).exit_code is ExitCode.OK
                assert fake.objects["Deployment", "chat"]["spec"]["replicas"] == 2
                assert (("HorizontalPodAutoscaler", "chat") in fake.objects) is (here == "hpa")
                told = record(fake)
                assert (told.current.state, told.current.recipe["draft"]["K"]) == ("ready", 4)
                assert told.current.number == 2
            else:
                assert count > 8, "nothing was cut short"
                break
        else:
            pytest.fail("it was never completed")


def test_replicas_go_to_an_autoscaler_without_a_moment_of_one(
    fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, asked(options={"replicas": 3}))
    fake.calls.clear()
    deploy(fake, heard, asked(options={"autoscaler": "hpa"}))
    assert fake.objects["Deployment", "chat"]["spec"]["replicas"] == 3
    writes = [call for call in fake.calls if "Deployment" in call or "Horizontal" in call]
    assert writes == [
        "specctl-handover Deployment chat",
        "specctl Deployment chat",
        "specctl HorizontalPodAutoscaler chat",
    ]


def scaled_to(fake: FakeCluster, count: int, manager: str = "kube-controller-manager") -> None:
    """An autoscaler sets the replicas."""
    live = fake.objects["Deployment", "chat"]
    live["spec"]["replicas"] = count
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    told = {"operation": "Update", "subresource": "scale", "fieldsV1": fields}
    live["metadata"]["managedFields"] = [{"manager": manager, **told}]


def test_replicas_come_back_from_a_scaler_that_is_gone_already(heard: Heard) -> None:
    """Cut short between the scaler's end and the Deployment: the record tells whose they were."""
    after = asked(options=scaled("none"))
    for count in range(12):
        fake = FakeCluster(gpus=16)
        deploy(fake, heard, asked(options=scaled("hpa"), wait=False))
        scaled_to(fake, 5)
        fake.calls.clear()
        fake.die_after = count
        try:
            deploy(fake, heard, after)
        except Killed:
            fake.die_after = None
            deploy(fake, heard, after)
        assert fake.objects["Deployment", "chat"]["spec"]["replicas"] == 2, count


def test_a_scaler_of_somebody_else_keeps_its_replicas(heard: Heard) -> None:
    fake = FakeCluster(gpus=16)
    deploy(fake, heard, asked(options={"replicas": 2}))
    scaled_to(fake, 5)
    with pytest.raises(Conflict, match="replicas"):
        deploy(fake, heard, asked(options={"replicas": 3}))
    deploy(fake, heard, asked(options={"replicas": 3}, force=True))
    deploy(fake, heard, asked(options={"autoscaler": "hpa"}))
    scaled_to(fake, 5, "kubectl")
    with pytest.raises(Conflict, match="replicas"):
        deploy(fake, heard, asked(options={"replicas": 3}))


def test_critical_findings_keep_it_out_before_a_cluster_is_asked(heard: Heard) -> None:
    def nowhere(_: float | None) -> Any:
        pytest.fail("it was asked")

    broken = asked("hardware.count=1", "serving.tensor_parallel=1", "target.quantization=bf16")
    with pytest.raises(GateError, match="PLAN_MEMORY"):
        deploying.deploy(nowhere, broken, heard)


def test_a_clash_stops_it_before_anything_is_written(fake: FakeCluster, heard: Heard) -> None:
    fake.clash = Clash("argocd", ".spec.replicas")
    with pytest.raises(Conflict, match="nothing was applied: Deployment chat: .spec.replicas"):
        deploy(fake, heard, asked())
    assert fake.calls == []
    assert deploy(fake, heard, asked(force=True)).exit_code is ExitCode.OK


def test_a_kind_that_is_not_installed_says_what_to_do(fake: FakeCluster, heard: Heard) -> None:
    with pytest.raises(NotInstalled) as refused:
        deploy(fake, heard, asked(options={"autoscaler": "keda"}))
    assert "--autoscaler hpa or none" in (refused.value.hint or "")
    assert fake.calls == []


def test_one_replica_without_a_free_gpu_is_told_as_downtime(heard: Heard) -> None:
    fake = FakeCluster(gpus=2)
    deploy(fake, heard, asked())
    assert "DOWNTIME" not in heard
    deploy(fake, heard, asked("draft.K=5"))
    assert "DOWNTIME" in heard
    strategy = fake.objects["Deployment", "chat"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


def test_gpus_that_may_not_be_counted_keep_one_replica_serving(
    fake: FakeCluster, heard: Heard
) -> None:
    fake.denied = frozenset({"Node"})
    outcome = deploy(fake, heard, asked())
    assert outcome.prepared.pools[0].stock.unknown
    strategy = fake.objects["Deployment", "chat"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}


def test_more_pods_than_gpus_is_a_warning(heard: Heard) -> None:
    fake = FakeCluster(gpus=2)
    deploy(fake, heard, asked(options={"replicas": 3}))
    assert "warning DEPLOY_STOCK: chat: 3 more pods of 2 GPUs, and room for 1" in heard


def test_pools_that_share_nodes_share_their_gpus(heard: Heard) -> None:
    fake = FakeCluster(gpus=4)
    both = asked(options={"pools": ("structured",), "replicas": 2})
    deploy(fake, heard, both)
    told = "chat-structured: 1 more pods of 2 GPUs, and room for 0, beside the other pools"
    assert f"warning DEPLOY_STOCK: {told}" in heard
    enough = Heard()
    deploy(FakeCluster(gpus=8), enough, both)
    assert "DEPLOY_STOCK" not in enough


def test_a_cordoned_node_is_a_warning(fake: FakeCluster, heard: Heard) -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    fake.node = {"unschedulable": True, "taints": [taint]}
    deploy(fake, heard, asked(wait=False))
    assert "warning DEPLOY_STOCK" in heard
    assert "h100-a is cordoned or not ready" in heard


def test_what_is_there_is_not_refused_for_want_of_nodes(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, asked())
    fake.gpus = 0
    deploy(fake, heard, asked("draft.K=4", wait=False))
    assert "warning DEPLOY_STOCK: chat: no node takes a pod" in heard
    with pytest.raises(GateError, match="DEPLOY_STOCK"):
        deploy(FakeCluster(gpus=0), heard, asked(wait=False))


def test_a_rollout_that_waits_for_room_is_replaced_another_way(heard: Heard) -> None:
    fake = FakeCluster(gpus=4)
    deploy(fake, heard, asked())
    deploy(fake, heard, asked("draft.K=4", wait=False))
    live = fake.objects["Deployment", "chat"]
    assert live["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    fake.gpus = 2  # somebody took the free ones
    live["status"] |= {"replicas": 2, "updatedReplicas": 1}
    deploy(fake, heard, asked("draft.K=4", wait=False))
    strategy = fake.objects["Deployment", "chat"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}, "no pod waits: it gets on"
    labels = live["spec"]["template"]["metadata"]["labels"]
    fake.waiting = [{"kind": "Pod", "metadata": {"name": "new", "labels": labels}, "spec": {}}]
    fake.objects["Deployment", "chat"]["status"] |= {"replicas": 2, "updatedReplicas": 1}
    deploy(fake, heard, asked("draft.K=4", wait=False))
    strategy = fake.objects["Deployment", "chat"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}
    assert "chat is rolled: no node has 2 GPUs free" in heard


def test_what_is_applied_is_what_was_tried(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, asked())
    applied = fake.objects["Deployment", "chat"]["spec"]["strategy"]
    tried = [each for each in fake.tried if each["kind"] == "Deployment"]
    assert tried[-1]["spec"]["strategy"] == applied
    assert "chat-specctl" in [each["metadata"]["name"] for each in fake.tried]


def test_no_wait_proves_nothing_and_says_so(fake: FakeCluster, heard: Heard) -> None:
    outcome = deploy(fake, heard, asked(wait=False))
    assert (outcome.ended, outcome.proof, outcome.exit_code) == (None, None, ExitCode.OK)
    assert record(fake).current.state == "applied"


def test_another_who_deploys_meanwhile_is_named(fake: FakeCluster, heard: Heard) -> None:
    class Other(Heard):
        def progress(self, now: Progress) -> None:
            other = fake.objects["ConfigMap", "chat-specctl"]
            told = json.loads(other["data"]["record.json"])
            told |= {"revision": 9, "by": "ops@bastion"}
            other["data"]["record.json"] = json.dumps(told)

    with pytest.raises(SpecctlError, match="ops@bastion deployed revision 9"):
        deploy(fake, Other(), asked())


def taken_by_another(fake: FakeCluster) -> None:
    """Somebody else writes an intent of theirs."""
    other = fake.objects["ConfigMap", "chat-specctl"]
    told = json.loads(other["data"]["record.json"]) | {"by": "ops@bastion", "at": "later"}
    other["data"]["record.json"] = json.dumps(told)
    other["metadata"]["resourceVersion"] = "of another"


@pytest.mark.parametrize("when", ["before-the-intent", "at-the-intent", "after-the-intent"])
def test_of_two_who_deploy_at_once_one_applies_nothing(
    fake: FakeCluster, heard: Heard, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(fake, heard, asked())
    fake.calls.clear()
    apply = fake.apply

    def applied(obj: Any, dry_run: bool = False, **more: Any) -> Any:
        intent = obj["metadata"]["name"] == "chat-specctl" and not dry_run
        if intent and when == "at-the-intent":
            taken_by_another(fake)
        done = apply(obj, dry_run, **more)
        tried = dry_run and obj["kind"] == "Deployment"
        if (intent and when == "after-the-intent") or (tried and when == "before-the-intent"):
            taken_by_another(fake)
        return done

    monkeypatch.setattr(fake, "apply", applied)
    with pytest.raises(SpecctlError, match="ops@bastion deployed revision"):
        deploy(fake, heard, asked("draft.K=4"))
    assert [call for call in fake.calls if "ConfigMap" not in call] == []


def test_what_runs_is_compared_before_it_is_called_proven(fake: FakeCluster) -> None:
    class Other(Heard):
        def progress(self, now: Progress) -> None:
            live = fake.objects["Deployment", "chat"]["spec"]["template"]
            live["metadata"]["annotations"]["specctl.dev/config-hash"] = "another"

    with pytest.raises(SpecctlError, match="Deployment chat is not as revision 1 has it"):
        deploy(fake, Other(), asked())
    assert not record(fake).current.proven


def test_the_record_is_specctls_own_and_taken_back(
    fake: FakeCluster, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = fake.apply

    def applied(obj: Any, dry_run: bool = False, force: bool = False, **more: Any) -> Any:
        if obj["kind"] == "ConfigMap" and not force:
            raise Conflict("cannot apply", clashes=[Clash("kubectl-edit", ".data")])
        return apply(obj, dry_run, force, **more)

    monkeypatch.setattr(fake, "apply", applied)
    assert deploy(fake, heard, asked()).exit_code is ExitCode.OK


def test_rollback_accepts_what_was_accepted_then(fake: FakeCluster, heard: Heard) -> None:
    broken = ("hardware.count=1", "serving.tensor_parallel=1", "target.quantization=bf16")
    deploy(fake, heard, asked(*broken, accept=("PLAN_MEMORY",)))
    deploy(fake, heard, asked())
    back = restored(fake, None, "chat", None)  # type: ignore[arg-type]
    assert back.accept == ("PLAN_MEMORY",)
    assert back.recipe.hardware.count == 1
    assert deploy(fake, heard, back).record.current.restores == 1


def test_a_deletion_removes_the_record_last_and_can_be_done_again(
    fake: FakeCluster, heard: Heard
) -> None:
    sets = ["storage.persist=true"]
    deploy(fake, heard, asked(*sets))
    for count in range(20):
        fake.calls.clear()
        fake.die_after = count
        what = deletion(fake, None, "chat", purge=False)  # type: ignore[arg-type]
        assert str(what.goes[-1]) == "ConfigMap chat-specctl"
        assert {ref.kind for ref in what.stays} == {"PersistentVolumeClaim"}
        try:
            delete(fake, what, wait_s=None, say=heard.say)  # type: ignore[arg-type]
        except Killed:
            continue
        break
    kinds = {kind for kind, _ in fake.objects}
    assert kinds == {"Namespace", "PersistentVolumeClaim"}
    fake.die_after = None
    with pytest.raises(UsageError, match="no deployment chat"):
        restored(fake, None, "chat", None)  # type: ignore[arg-type]


PRIORITY = "PriorityClass"
FIRST = "scheduling.priority=100"


def test_a_priority_class_is_of_one_namespaces_deployment(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, asked(FIRST))
    (ours,) = [name for kind, name in fake.objects if kind == PRIORITY]
    theirs = json.loads(json.dumps(fake.objects[PRIORITY, ours]).replace("llm", "other"))
    fake.objects[PRIORITY, theirs["metadata"]["name"]] = theirs
    deploy(fake, heard, asked())
    assert [name for kind, name in fake.objects if kind == PRIORITY] == [theirs["metadata"]["name"]]


def test_two_deployments_never_share_a_priority_class() -> None:
    def name(namespace: str, deployment: str) -> str:
        from speccli.core.manifests.build import objects

        options = RenderOptions(namespace=namespace, **{**PLAIN, "name": deployment})  # type: ignore[arg-type]
        every = objects(asked(FIRST).recipe, options)
        return str(next(e["metadata"]["name"] for e in every if e["kind"] == PRIORITY))

    assert name("a-b", "c") != name("a", "b-c")


def test_what_may_not_be_removed_is_named_and_the_proof_is_recorded(
    fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, asked(FIRST))
    fake.kept = frozenset({PRIORITY})
    assert deploy(fake, heard, asked()).exit_code is ExitCode.OK
    assert "PriorityClass specctl.llm.chat is not wanted any more, and stays" in heard
    assert record(fake).current.proven


def test_what_somebody_else_made_under_a_name_of_ours_stays(
    fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, asked(FIRST, options={"autoscaler": "hpa"}))
    made = {"manager": "kubectl", "operation": "Update", "fieldsV1": {}}
    theirs = {"name": "chat", "namespace": "llm", "managedFields": [made]}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": theirs}
    fake.objects["PodDisruptionBudget", "chat"] = budget
    left = deletion(fake, None, "chat", purge=True)  # type: ignore[arg-type]
    assert "PodDisruptionBudget chat" not in map(str, left.goes)
    budget["metadata"] = {**theirs, "managedFields": [made | {"manager": "specctl"}]}
    left = deletion(fake, None, "chat", purge=True)  # type: ignore[arg-type]
    assert "PodDisruptionBudget chat" in map(str, left.goes)


def test_a_rollback_admits_the_api_servers_that_were_typed(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, asked(options={"api_server": ("10.9.0.0/16",)}))
    deploy(fake, heard, asked("draft.K=4"))
    assert "10.9.0.0/16" not in str(fake.objects["NetworkPolicy", "chat"])
    deploy(fake, heard, restored(fake, None, "chat", None))  # type: ignore[arg-type]
    assert "10.9.0.0/16" in str(fake.objects["NetworkPolicy", "chat"])


def test_a_rollback_cut_short_is_completed_by_the_same_command(
    fake: FakeCluster, heard: Heard
) -> None:
    for k in (2, 4, 5):
        deploy(fake, heard, asked(f"draft.K={k}"))
    fake.calls.clear()
    fake.die_after = 2
    with pytest.raises(Killed):
        deploy(fake, heard, restored(fake, None, "chat", None))  # type: ignore[arg-type]
    fake.die_after = None
    deploy(fake, heard, restored(fake, None, "chat", None))  # type: ignore[arg-type]
    told = record(fake).current
    assert (told.number, told.restores, told.recipe["draft"]["K"]) == (4, 2, 4)


def test_what_nobody_typed_is_not_told_as_idle(heard: Heard) -> None:
    lost = FakeCluster(gpus=0)
    deploy(lost, heard, asked(accept=("DEPLOY_STOCK",), wait=False))
    lost.gpus = 8
    deploy(lost, heard, asked("draft.K=4"))
    told = Heard()
    back = restored(lost, None, "chat", 1)  # type: ignore[arg-type]
    deploy(lost, told, replace(back, accept=(*back.accept, "PAIR_VOCAB")))
    assert "--accept PAIR_VOCAB: there is no such critical finding" in told
    assert "--accept DEPLOY_STOCK" not in told


def test_an_interruption_says_what_goes_on_only_where_something_does(fake: FakeCluster) -> None:
    class Impatient(Heard):
        def progress(self, now: Progress) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        deploy(fake, Impatient(), asked())
    assert "what was applied stays" in "".join(stopped.value.__notes__)

    def early(_: float | None) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        deploying.deploy(early, asked(), Heard())
    assert not hasattr(stopped.value, "__notes__")


def leads_to(fake: FakeCluster) -> str:
    return str(fake.objects["Service", "chat"]["spec"]["selector"]["specctl.dev/service"])


def with_standby(*changes: str, **more: Any) -> Asked:
    return asked(*changes, options={"pools": ("standby",)}, **more)


def moved(traffic: str) -> Asked:
    return asked(options={"pools": ("standby",), "traffic": traffic}, moves=True)


def test_a_plain_deploy_leaves_the_traffic_where_it_is(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, with_standby())
    assert leads_to(fake) == "chat"
    deploy(fake, heard, moved("standby"))
    assert leads_to(fake) == "chat-standby"
    deploy(fake, heard, with_standby("draft.K=2"))
    assert leads_to(fake) == "chat-standby"
    assert "the traffic stays with the pool standby; --traffic main moves it" in heard
    assert record(fake).current.options["traffic"] == "standby"
    deploy(fake, heard, moved("main"))
    assert leads_to(fake) == "chat"
    assert "traffic" not in record(fake).current.options


def test_a_deployment_without_its_standby_takes_the_traffic_back_and_says_so(
    fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, moved("standby"))
    deploy(fake, heard, asked())
    assert leads_to(fake) == "chat"
    assert "is not wanted any more: the main pool takes it" in heard
    assert ("Deployment", "chat-standby") not in fake.objects


def test_a_rollback_moves_the_traffic_as_it_was(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, with_standby())
    deploy(fake, heard, moved("standby"))
    back = restored(fake, None, "chat", 1)  # type: ignore[arg-type]
    assert deploy(fake, heard, back).exit_code is ExitCode.OK
    assert leads_to(fake) == "chat"


def test_a_rollout_may_be_about_one_pool_alone(fake: FakeCluster, heard: Heard) -> None:
    fake.ready = lambda each: each["metadata"]["name"] == "chat-standby"
    outcome = deploy(fake, heard, replace(with_standby(), awaited=("standby",)))
    assert outcome.proof is not None
    assert {server.pool for server in outcome.proof.servers} == {"standby"}


def test_pods_that_were_started_anew_are_not_started_once_more(
    fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, asked(options={"restarted": {"main": 3}}))
    template = fake.objects["Deployment", "chat"]["spec"]["template"]
    deploy(fake, heard, asked("scaling.max=7"))
    assert fake.objects["Deployment", "chat"]["spec"]["template"] == template


def test_a_deletion_takes_the_standby_that_serves_along(fake: FakeCluster, heard: Heard) -> None:
    deploy(fake, heard, moved("standby"))
    asked_for = deletion(fake, None, "chat", purge=False)  # type: ignore[arg-type]
    names = {(ref.kind, ref.name) for ref in asked_for.goes}
    assert names >= {("Deployment", "chat-standby"), ("Service", "chat-standby")}
    delete(fake, asked_for, wait_s=None, say=heard.say)  # type: ignore[arg-type]
    assert not [key for key in fake.objects if key[0] in {"Deployment", "Service", "ConfigMap"}]


def test_a_deletion_takes_the_lease_of_the_watch_along_and_says_who_holds_it(
    fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, asked())
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "chat-fallback", "namespace": "llm"},
        "spec": {"holderIdentity": "watch-0"},
    }
    fake.objects["Lease", "chat-fallback"] = lease
    others = deletion(fake, None, "chat", purge=False)  # type: ignore[arg-type]
    assert "Lease chat-fallback" not in map(str, others.goes), "somebody else's of that name"
    lease["metadata"]["managedFields"] = [{"manager": "specctl"}]
    what = deletion(fake, None, "chat", purge=False)  # type: ignore[arg-type]
    assert [str(ref) for ref in what.goes[-2:]] == [
        "Lease chat-fallback",
        "ConfigMap chat-specctl",
    ]
    assert what.watch == "watch-0"
    delete(fake, what, wait_s=None, say=heard.say)  # type: ignore[arg-type]
    assert ("Lease", "chat-fallback") not in fake.objects


@pytest.mark.parametrize("denied", ["get", "delete"])
def test_a_lease_that_is_out_of_reach_keeps_nothing_else_and_is_told(
    denied: str, fake: FakeCluster, heard: Heard
) -> None:
    deploy(fake, heard, asked())
    fake.objects["Lease", "chat-fallback"] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "chat-fallback",
            "namespace": "llm",
            "managedFields": [{"manager": "specctl"}],
        },
    }
    setattr(fake, "kept" if denied == "delete" else "denied", frozenset({"Lease"}))
    what = deletion(fake, None, "chat", purge=True)  # type: ignore[arg-type]
    kept = delete(fake, what, wait_s=None, say=heard.say)  # type: ignore[arg-type]
    assert {kind for kind, _ in fake.objects} == {"Namespace", "Lease"}
    assert [str(ref) for ref in kept] == (["Lease chat-fallback"] if denied == "delete" else [])
    assert ("Lease chat-fallback stays: not allowed" in heard) is (denied == "delete")
    assert str(what.unseen) == ("None" if denied == "delete" else "Lease chat-fallback")
    fake.denied = frozenset()
    with pytest.raises(UsageError, match="no deployment chat"):
        deletion(fake, None, "chat", purge=True)  # type: ignore[arg-type]


def _policy(fake: FakeCluster) -> list[str]:
    rules = fake.objects["NetworkPolicy", "chat"]["spec"]["ingress"]
    peers = (peer for rule in rules for peer in rule["from"])
    return [peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer]


def test_who_may_not_see_the_api_servers_leaves_their_way_in_open(
    fake: FakeCluster, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, denied = fake.list, [False]

    def listed(api_version: str, kind: str, namespace: str | None = None, **more: Any) -> Any:
        if kind != "EndpointSlice" or namespace != "default":
            return told(api_version, kind, namespace, **more)
        if denied[0]:
            raise Denied("not allowed: may not list EndpointSlices in default")
        return [{"endpoints": [{"addresses": ["10.9.8.7"]}]}]

    monkeypatch.setattr(fake, "list", listed)
    deploy(fake, heard, asked())
    assert _policy(fake) == ["10.9.8.7/32"]
    denied[0] = True
    outcome = deploy(fake, heard, asked())
    assert outcome.unchanged
    deploy(fake, heard, asked("draft.K=2"))
    assert _policy(fake) == ["10.9.8.7/32"]
    assert any(line.endswith("goes on letting in 10.9.8.7/32") for line in heard.lines)


def test_who_may_not_see_the_api_servers_keeps_no_range_that_was_named_and_widens_none(
    fake: FakeCluster, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = fake.list

    def listed(api_version: str, kind: str, namespace: str | None = None, **more: Any) -> Any:
        if kind == "EndpointSlice" and namespace == "default":
            raise Denied("not allowed: may not list EndpointSlices in default")
        return told(api_version, kind, namespace, **more)

    monkeypatch.setattr(fake, "list", listed)
    typed = {"api_server": ("10.2.0.0/16",)}
    deploy(fake, heard, asked("network.api_server=[10.1.0.0/16]", options=typed))
    assert _policy(fake) == ["10.1.0.0/16", "10.2.0.0/16"]
    rules = fake.objects["NetworkPolicy", "chat"]["spec"]["ingress"]
    rules[0]["from"] += [
        {"ipBlock": {"cidr": "10.9.8.7/32"}},
        {"ipBlock": {"cidr": "172.16.0.0/12", "except": ["172.16.9.0/24"]}},
    ]
    deploy(fake, heard, asked("draft.K=2"))
    assert _policy(fake) == ["10.9.8.7/32"]
