"""`fallback watch` on a real control plane, as the account that manifests/rbac gives it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.fallback.rights import at_start
from speccli.core.kube.client import Cluster as Client
from speccli.core.kube.errors import Denied
from tests.e2e.kube.deploying import Typed
from tests.support.kube.cluster import Behaviour, Cluster, until
from tests.support.processes import started

pytestmark = pytest.mark.real_kubernetes
MANIFESTS = Path(__file__).parents[3] / "manifests"
POOL = "specctl.dev/pool"
FAST = ("--set", "fallback.hold=2s", "--set", "fallback.quiet=[]")
GOES = 15 + 2.2 * 2 + 10
"""Within which another leads once the leader is gone: its lease, one try, and a slow machine."""


def role(kind: str = "Role") -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((MANIFESTS / "rbac" / "fallback-watch.yaml").read_text())
    return [rule for each in documents if each["kind"] == kind for rule in each["rules"]]


@pytest.fixture
def typed(cluster: Cluster, tmp_path: Path) -> Typed:
    return Typed(cluster, tmp_path)


class Watching:
    """Processes that watch, as the account of the manifests."""

    def __init__(self, cluster: Cluster, folder: Path, stack: contextlib.ExitStack) -> None:
        self.cluster, self._folder, self._stack = cluster, folder, stack
        self.kubeconfig = cluster.account("specctl-fallback-watch", role())

    def start(self, *words: str) -> subprocess.Popen[str]:
        made = started(
            *("fallback", "watch", "chat", "--every", "1s", "--listen", "none", *words),
            KUBECONFIG=str(self.kubeconfig),
            XDG_CACHE_HOME=str(self._folder / "cache"),
            SPECCTL_STATE=str(self._folder / "state"),
        )
        self._stack.enter_context(made)
        self._stack.callback(_told, made)
        return made

    def lease(self) -> dict[str, Any]:
        found = self.cluster.api.find("Lease", "chat-fallback")
        spec: dict[str, Any] = (found or {}).get("spec") or {}
        return spec

    def holder(self) -> str:
        return str(self.lease().get("holderIdentity") or "")

    def kept(self, file: str = "state.json") -> dict[str, Any]:
        value = self.cluster.api.find("ConfigMap", "chat-fallback")
        told: dict[str, Any] = json.loads(value["data"][file]) if value else {}
        return told

    def serves(self) -> str:
        selector = self.cluster.api.get("Service", "chat")["spec"]["selector"]
        return str(selector["specctl.dev/service"])

    def reasons(self) -> set[str]:
        every = self.cluster.api.objects("Event")
        mine = [e for e in every if e["reason"].startswith("Fallback")]
        assert {e["involvedObject"]["name"] for e in mine} <= {"chat"}
        return {e["reason"] for e in mine}


def _told(process: subprocess.Popen[str]) -> None:
    """End it, and show what it said: a test that failed has it in its report."""
    if process.stderr is not None and not process.stderr.closed:
        process.kill()
        sys.stdout.write(process.communicate()[1])


@pytest.fixture
def watching(cluster: Cluster, tmp_path: Path) -> Iterator[Watching]:
    with contextlib.ExitStack() as stack:
        yield Watching(cluster, tmp_path, stack)


def gone_bad(cluster: Cluster) -> None:
    """The main pool's engines come back with a draft of which nothing is accepted.

    Their load is one that a server can bear: where it waits the standby first gets its servers.
    """
    bad = Behaviour(labels={POOL: "main"}, acceptance=0.0, rate_per_s=2, load_s=0.2)
    cluster.pods(bad)
    for name in cluster.pod_names({POOL: "main"}):
        cluster.api.delete("Pod", name, grace_s=0)


def deployed(typed: Typed) -> None:
    told = typed.deploy("--replicas", "1", "--pool", "standby", *FAST)
    assert told["exit"] == 0, told
    assert len(typed.cluster.pod_names()) == 2


def test_a_draft_gone_bad_is_left_by_itself_though_the_leader_is_killed_in_the_move(
    typed: Typed, watching: Watching
) -> None:
    deployed(typed)
    first = watching.start("--auto")
    until(watching.holder, "a leader")
    second = watching.start("--auto")
    leader = watching.holder()
    gone_bad(typed.cluster)
    until(lambda: watching.kept().get("under_way"), "a move")
    until(lambda: "FallbackBegun" in watching.reasons(), "the Event of its beginning")
    first.kill()  # no release: the second waits for what the lease lasts
    at = time.monotonic()
    assert watching.holder() == leader
    until(lambda: watching.holder() not in {"", leader}, "another leader", GOES)
    assert time.monotonic() - at > 8
    assert watching.lease()["leaseTransitions"] == 1
    until(lambda: watching.serves() == "chat-standby", "the switch")
    until(lambda: "FallbackDone" in watching.reasons(), "the Event of it")
    assert watching.reasons() == {"FallbackBegun", "FallbackContinued", "FallbackDone"}

    state = watching.kept()
    assert (state["rung"], state["under_way"], len(state["moves"])) == ("ngram", None, 1)
    audit = watching.kept("audit.json")["entries"]
    assert [each["what"] for each in audit] == ["begun", "continued", "done"]
    assert len({each["id"] for each in audit}) == 1
    begun, _, done = audit
    assert (done["from"], done["to"], done["code"]) == ("eagle3", "ngram", "ZERO_ACCEPTANCE")
    assert (begun["by"], done["by"]) == (leader, watching.holder())

    second.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=180)
    assert second.returncode == 0, err
    assert "may not" not in err  # its account has all that it asked for at its start
    assert "cannot be made" not in err
    assert watching.holder() == ""  # released: the next need not wait
    assert [json.loads(line)["what"] for line in out.splitlines()] == ["continued", "done"]


def test_without_auto_it_proposes_and_one_command_says_yes(
    typed: Typed, watching: Watching
) -> None:
    deployed(typed)
    process = watching.start()
    gone_bad(typed.cluster)
    until(lambda: watching.kept().get("proposal"), "a proposal")
    proposal = watching.kept()["proposal"]
    assert watching.serves() == "chat"
    until(lambda: "FallbackProposed" in watching.reasons(), "the Event")
    refused = typed("fallback", "apply", "chat", "--proposal", "0000")
    assert refused.exit_code == 64
    assert f"the one that stands is {proposal['id']}" in refused.stderr
    done = typed("fallback", "apply", "chat", "--proposal", proposal["id"])
    assert done.exit_code == 0, done.stderr
    assert watching.serves() == "chat-standby"
    again = typed("fallback", "apply", "chat", "--proposal", proposal["id"])
    assert again.exit_code == 64
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=180)
    assert "proposed" in [json.loads(line)["what"] for line in out.splitlines()]
    audit = [each["what"] for each in watching.kept("audit.json")["entries"]]
    assert audit[:3] == ["proposed", "accepted", "done"]

    gone = typed("delete", "chat", "--yes", "--no-wait")
    assert gone.exit_code == 0, gone.stderr
    find, kept = typed.cluster.api.find, ("Lease", "ConfigMap")
    until(lambda: not any(find(kind, "chat-fallback") for kind in kept), "what it kept goes")


MAY = {
    "leases.coordination.k8s.io": ("get", "create", "update"),
    "configmaps": ("get", "list", "create", "patch"),
    "events": ("get", "list", "create"),
    "pods": ("get", "list", "watch"),
    "pods/log": ("get",),
    "pods/proxy": ("get", "create"),
    "replicasets.apps": ("get", "list"),
    "endpointslices.discovery.k8s.io": ("list",),
    "deployments.apps": ("get", "list", "watch", "create", "patch", "delete"),
    "poddisruptionbudgets.policy": ("get", "list", "create", "patch", "delete"),
    "services": ("get", "list", "patch"),
    "serviceaccounts": ("get", "list", "patch"),
    "persistentvolumeclaims": ("get", "list", "patch"),
    "networkpolicies.networking.k8s.io": ("get", "list", "patch"),
    "horizontalpodautoscalers.autoscaling": ("get", "list", "patch"),
    "scaledobjects.keda.sh": ("get", "list", "patch"),
    "podmonitors.monitoring.coreos.com": ("get", "list", "patch"),
    "prometheusrules.monitoring.coreos.com": ("get", "list", "patch"),
}
MAY_NOT = {
    "secrets": ("get", "list", "watch", "create", "patch"),
    "pods": ("create", "patch", "delete"),
    "pods/exec": ("get", "create"),
    "pods/portforward": ("get", "create"),
    "services": ("create", "delete"),
    "serviceaccounts": ("create", "delete"),
    "serviceaccounts/token": ("create",),
    "configmaps": ("delete",),
    "leases.coordination.k8s.io": ("delete", "list"),
    "persistentvolumeclaims": ("create", "delete"),
    "roles.rbac.authorization.k8s.io": ("get", "create", "patch", "bind", "escalate"),
    "rolebindings.rbac.authorization.k8s.io": ("create", "patch"),
    "nodes": ("get", "list"),
    "daemonsets.apps": ("create",),
    "jobs.batch": ("create",),
}


def test_its_account_may_make_each_call_of_its_moves_and_reads_no_secret(
    cluster: Cluster,
) -> None:
    client = Client.connect(str(cluster.account("watch", role())), deadline=30)
    lacks = [f"{v} {r}" for r, verbs in MAY.items() for v in verbs if not client.can(v, r)]
    assert lacks == []
    more = [f"{v} {r}" for r, verbs in MAY_NOT.items() for v in verbs if client.can(v, r)]
    assert more == []
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf-token"}}
    cluster.api.create({**secret, "stringData": {"token": "never to be seen"}})
    with pytest.raises(Denied):
        client.get("v1", "Secret", "hf-token", cluster.namespace)
    with pytest.raises(Denied):
        client.list("v1", "ConfigMap", "kube-system")


def test_an_account_that_lacks_a_right_is_told_before_the_first_look(
    typed: Typed, tmp_path: Path
) -> None:
    deployed(typed)
    cluster = typed.cluster
    full = Client.connect(str(cluster.account("full", role())), deadline=30)
    assert at_start(full, cluster.namespace, "chat", auto=True, pages=True) == ()
    less = [{**r, "resources": [x for x in r["resources"] if x != "services"]} for r in role()]
    with started(
        *("fallback", "watch", "chat", "--auto", "--listen", "none"),
        KUBECONFIG=str(cluster.account("less", less)),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        SPECCTL_STATE=str(tmp_path / "state"),
    ) as process:
        out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (3, "")
    assert "may make no move: it may not get services, patch services in" in err
    assert "-f manifests/rbac/fallback-watch.yaml" in err
    assert cluster.api.find("Lease", "chat-fallback") is None


def test_a_restricted_namespace_takes_the_watch_and_applying_it_again_changes_nothing(
    cluster: Cluster,
) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.api.patch("Namespace", cluster.namespace, {"metadata": {"labels": label}})
    files = (MANIFESTS / "rbac" / "fallback-watch.yaml", MANIFESTS / "fallback" / "watch.yaml")
    made = [each for path in files for each in yaml.safe_load_all(path.read_text())]
    for body in made:
        cluster.api.apply(body)  # strictly: an unknown field is refused
    once = [cluster.api.get(b["kind"], b["metadata"]["name"])["metadata"] for b in made]
    for body in made:
        cluster.api.apply(body)
    twice = [cluster.api.get(b["kind"], b["metadata"]["name"])["metadata"] for b in made]
    assert [m.get("generation") for m in once] == [m.get("generation") for m in twice]

    def bound() -> list[dict[str, Any]]:
        found = [p for p in cluster.api.objects("Pod") if p["spec"].get("nodeName")]
        return found if len(found) == 2 else []

    pods = until(bound, "two pods on nodes")
    assert {p["spec"]["serviceAccountName"] for p in pods} == {"specctl-fallback-watch"}
