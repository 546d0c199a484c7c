"""The manifests that run `alert check` and `alert watch` in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.manifests import CUSTOM
from tests.support.recordings import specctl

ROOT = Path(__file__).parents[2]
WORKLOADS = {
    "CronJob": ROOT / "manifests" / "cron" / "alert-check.yaml",
    "Deployment": ROOT / "manifests" / "monitoring" / "alert-watch.yaml",
}


def objects(path: Path) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


def pod(kind: str) -> dict[str, Any]:
    spec = objects(WORKLOADS[kind])[kind]["spec"]
    template = spec["jobTemplate"]["spec"]["template"] if kind == "CronJob" else spec["template"]
    found: dict[str, Any] = template
    return found


@pytest.mark.parametrize("kind", WORKLOADS)
def test_pods_meet_the_restricted_standard(kind: str) -> None:
    spec = pod(kind)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(name)
    (container,) = spec["containers"]
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"] is True
    allowed = {"configMap", "persistentVolumeClaim", "emptyDir"}
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_object_is_valid_to_the_last_key(kind: str, version: str) -> None:
    checked = 0
    for each in objects(WORKLOADS[kind]).values():
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("kind", WORKLOADS)
def test_they_may_ask_the_api_server_nothing(kind: str) -> None:
    every = objects(WORKLOADS[kind])
    assert pod(kind)["spec"]["automountServiceAccountToken"] is False
    assert every["ServiceAccount"]["automountServiceAccountToken"] is False
    assert every["ServiceAccount"]["metadata"]["name"] == pod(kind)["spec"]["serviceAccountName"]
    assert not {kind for kind in every if kind.endswith(("Role", "Binding"))}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_names_and_labels_meet(kind: str) -> None:
    every = objects(WORKLOADS[kind])
    labels = pod(kind)["metadata"]["labels"]
    assert every["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    volumes = {v["name"]: v for v in pod(kind)["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == every["ConfigMap"]["metadata"]["name"]
    claim = volumes["state"]["persistentVolumeClaim"]["claimName"]
    assert claim == every["PersistentVolumeClaim"]["metadata"]["name"]
    if kind == "Deployment":
        assert every[kind]["spec"]["selector"]["matchLabels"] == labels
        assert every["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("kind", WORKLOADS)
def test_the_command_line_and_the_settings_are_understood(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (container,) = pod(kind)["spec"]["containers"]
    file = tmp_path / "specctl.toml"
    file.write_text(objects(WORKLOADS[kind])["ConfigMap"]["data"]["specctl.toml"])
    monkeypatch.setenv("SPECCTL_CONFIG", str(file))
    monkeypatch.setenv("SPECCTL_STATE", str(tmp_path))
    assert container["command"][0] == "specctl"
    # Refused for its deadline alone, and so after everything else was read.
    answer = specctl(*container["command"][1:], *container["args"], "--deadline", "0.5s")
    assert answer.exit_code == 64
    assert "--deadline 0.5s" in answer.stderr
