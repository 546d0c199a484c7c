"""`fallback watch` as it is typed, and the manifests that run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from speccli.core.manifests.build import objects as built
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Pool
from tests.core.deploy.test_cluster import RECIPE
from tests.support.api_server import ApiServer, Question, Reply, write_kubeconfig
from tests.support.kept_objects import KNOWN, Kept
from tests.support.manifests import CUSTOM
from tests.support.recordings import specctl

MANIFESTS = Path(__file__).parents[2] / "manifests"
FILES = {
    "watch": MANIFESTS / "fallback" / "watch.yaml",
    "role": MANIFESTS / "rbac" / "fallback-watch.yaml",
}


def objects(file: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(FILES[file].read_text())}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--every", "0.5s"), "--every 0.5s: at least 1 s"),
        (("--every", "often"), "--every 'often' is not a duration"),
        (("--listen", "nowhere"), "--listen 'nowhere' is no address"),
        (("--baseline", "no-such"), "no baseline 'no-such'"),
        (("--notify", "nothing"), "--notify"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9")))
    monkeypatch.setenv("SPECCTL_STATE", str(tmp_path))
    answer = specctl("fallback", "watch", "chat", *words)
    assert answer.exit_code == 64
    assert answer.stdout == ""
    assert said in answer.stderr


def test_without_a_cluster_it_ends_with_3_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9")))
    answer = specctl("fallback", "watch", "chat", "--listen", "none")
    assert answer.exit_code == 3
    assert answer.stdout == ""
    assert "cannot reach" in answer.stderr


def test_a_deployment_that_is_not_there_is_said_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    with ApiServer(kept, groups=KNOWN) as server:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "k", server.url)))
        monkeypatch.setenv("SPECCTL_STATE", str(tmp_path))
        answer = specctl(
            *("fallback", "watch", "chat", "--listen", "127.0.0.1:0", "--every", "1s"),
            *("--for", "1.5s"),
        )
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr.count("no deployment chat") == 1
    lease = kept.objects["leases", "chat-fallback"]["spec"]
    assert "holderIdentity" not in lease  # released at the end


def test_what_its_account_lacks_is_said_in_a_line_and_it_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()

    def answer_to(question: Question) -> Reply | None:
        if not question.path.endswith("/selfsubjectaccessreviews"):
            return kept(question)
        wanted = question.json["spec"]["resourceAttributes"]
        return Reply(201, {"status": {"allowed": wanted["resource"] != "leases"}})

    with ApiServer(answer_to, groups=KNOWN) as server:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "k", server.url)))
        answer = specctl("fallback", "watch", "chat", "-n", "llm", "--listen", "none")
    assert (answer.exit_code, answer.stdout) == (3, "")
    said = [line for line in answer.stderr.splitlines() if "leases" in line]
    assert len(said) == 1
    assert "may not create leases.coordination.k8s.io, get leases" in said[0]
    assert "kubectl apply -n llm -f manifests/rbac/fallback-watch.yaml" in answer.stderr
    assert not kept.objects  # nothing was begun


def test_the_pod_meets_the_restricted_standard_and_has_the_accounts_token() -> None:
    spec = objects("watch")["Deployment"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    own = container["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    account = objects("role")["ServiceAccount"]
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    assert spec["automountServiceAccountToken"] is True
    assert account["automountServiceAccountToken"] is False  # no other pod gets it by mistake
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_object_is_valid_to_the_last_key(file: str, version: str) -> None:
    for each in objects(file).values():
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_role_names_no_secret_and_no_wildcard() -> None:
    for rule in objects("role")["Role"]["rules"]:
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not words & {"*", "secrets", "pods/exec", "pods/portforward", "escalate", "bind"}
    assert not {kind for kind in objects("role") if kind.startswith("Cluster")}


def may(verb: str, made: dict[str, Any]) -> bool:
    group, kind = made["apiVersion"].rpartition("/")[0], made["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return any(
        group in rule["apiGroups"] and plural in rule["resources"] and verb in rule["verbs"]
        for rule in objects("role")["Role"]["rules"]
    )


@pytest.mark.parametrize(
    ("sets", "options"),
    [
        ((), {}),
        ((), {"dra": True, "kubernetes": (1, 34)}),
        ((), {"inference_pool": True, "gateway": "gw"}),
        ((), {"autoscaler": "hpa"}),
        (("scheduling.priority=1000",), {}),
    ],
)
def test_the_role_lets_it_make_each_call_of_a_move(
    sets: tuple[str, ...], options: dict[str, Any]
) -> None:
    recipe = load(RECIPE, ["storage.persist=false", *sets])
    asked = RenderOptions(name="chat", namespace="llm", pools=("standby",), **options)
    canary = replace(recipe, pools={**recipe.pools, "canary": Pool(min=1, max=1)})
    own = {(each["kind"], each["metadata"]["name"]) for each in built(recipe, asked)}
    denied: set[str] = set()
    for made in built(canary, asked):
        there = (made["kind"], made["metadata"]["name"]) in own
        verbs = ("get", "patch") if there else ("get", "create", "patch", "delete")
        denied |= {made["kind"] for verb in verbs if not may(verb, made)}
    assert denied == ({"PriorityClass"} if sets else set())
    head = FILES["role"].read_text().partition("apiVersion")[0]
    assert "get, create, patch and delete on priorityclasses" in head


def test_the_command_line_and_the_settings_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = objects("watch")
    (container,) = every["Deployment"]["spec"]["template"]["spec"]["containers"]
    labels = every["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert every["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert every["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels
    file = tmp_path / "specctl.toml"
    file.write_text(every["ConfigMap"]["data"]["specctl.toml"])
    monkeypatch.setenv("SPECCTL_CONFIG", str(file))
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9")))
    answer = specctl(*container["command"][1:], *container["args"])
    assert answer.exit_code == 3  # all but the cluster is in order
    assert "cannot reach" in answer.stderr
