"""`specctl render` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from speccli.core.manifests import lint as lints
from speccli.main import app

RECIPE = "llama-3.3-70b-eagle3-h100"


def specctl(*words: str) -> Result:
    return CliRunner().invoke(app, ["render", *words])


def test_yaml_is_a_stream_that_kubectl_takes() -> None:
    answer = specctl(RECIPE, "-n", "llm")
    made = [*yaml.safe_load_all(answer.stdout)]
    assert answer.exit_code == 0
    assert [each["kind"] for each in made][:1] == ["ServiceAccount"]
    assert {each["metadata"]["namespace"] for each in made} == {"llm"}
    assert "R-DIGEST" in answer.stderr
    assert answer.stdout == specctl(RECIPE, "-n", "llm").stdout


def test_json_is_one_list() -> None:
    told = json.loads(specctl(RECIPE, "-o", "json").stdout)
    assert (told["kind"], told["apiVersion"]) == ("List", "v1")
    assert told["items"] == [*yaml.safe_load_all(specctl(RECIPE).stdout)]


def test_a_table_says_what_for_and_what_to_know() -> None:
    answer = specctl(RECIPE, "-o", "table", "--pool", "structured", "--canary")
    lines = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    name = "llama-3-3-70b-eagle3-h100"
    for line in (
        f"Deployment {name} the engines",
        f"Deployment {name}-canary the engines (pool canary)",
        f"Deployment {name}-structured the engines (pool structured)",
        f"PersistentVolumeClaim {name}-models the models",
        f"PersistentVolumeClaim {name}-cache compiled graphs",
    ):
        assert line in lines
    assert "R-DIGEST" in answer.stdout
    assert answer.stderr == ""


def test_a_server_nobody_has_read_the_schemas_of_is_said_beside_yaml() -> None:
    answer = specctl(RECIPE, "--kubernetes", "1.99")
    assert answer.exit_code == 0
    assert "Kubernetes 1.99 is newer" in answer.stderr


def test_flags_reach_the_objects() -> None:
    answer = specctl(
        RECIPE,
        *("--name", "chat", "--image", "mine/vllm@sha256:" + "1" * 64, "--surge", "1"),
        *("--autoscaler", "none", "--replicas", "3", "--no-monitoring"),
        *("--set", "draft.K=5", "--gateway", "gw/inference", "--hostname", "llm.example.com"),
        *("--api-server", "10.0.0.1/32", "--create-namespace", "-n", "llm"),
    )
    made = {each["kind"]: each for each in yaml.safe_load_all(answer.stdout)}
    assert not set(made) & {"PodMonitor", "PrometheusRule", "ScaledObject"}
    deployment = made["Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert deployment["metadata"]["name"] == "chat"
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1
    assert container["image"].startswith("mine/vllm@sha256:")
    assert '"num_speculative_tokens":5' in " ".join(container["args"])
    assert made["HTTPRoute"]["spec"]["hostnames"] == ["llm.example.com"]
    assert "R-DIGEST" not in answer.stderr


def test_a_digest_and_nothing_else_to_say_is_silent_and_strict_is_content() -> None:
    image = "mine/vllm@sha256:" + "1" * 64
    quiet = specctl(RECIPE, "--image", image, "--strict")
    assert (quiet.exit_code, "warning" in quiet.stderr) == (0, False)
    assert specctl(RECIPE, "--strict").exit_code == 1
    critical = specctl(RECIPE, "--strict", "--set", "serving.kv_cache_dtype=fp8")
    assert critical.exit_code == 2
    assert "critical P-KV" in critical.stderr


def test_out_writes_a_folder_and_names_its_files(tmp_path: Path) -> None:
    answer = specctl(RECIPE, "--out", "chat", "--autoscaler", "hpa")
    assert answer.exit_code == 0
    told = [Path(line) for line in answer.stdout.splitlines()]
    assert all(path.is_file() for path in told)
    assert told[-1].name == "kustomization.yaml"
    assert Path("chat/prometheus-adapter-values.yaml") in told
    again = specctl(RECIPE, "--out", "chat", "--name", "other")
    assert (again.exit_code, again.stdout) == (64, "")
    assert "holds another deployment" in again.stderr
    assert specctl(RECIPE, "--out", "chat", "--name", "other", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["nothing"], "no recipe 'nothing'", id="recipe"),
        pytest.param([RECIPE, "--kubernetes", "1.20"], "older than 1.29", id="old-server"),
        pytest.param([RECIPE, "--dra", "--kubernetes", "1.33"], "resource.k8s.io/v1", id="dra"),
        pytest.param([RECIPE, "--name", "A.B"], "--name 'A.B'", id="name"),
        pytest.param([RECIPE, "--label", "release"], "--label 'release'", id="label"),
        pytest.param([RECIPE, "--pool", "chat"], "'chat' is not one of", id="pool"),
        pytest.param([RECIPE, "--set", "storage.claims=x"], "did you mean claim", id="key"),
        pytest.param([RECIPE, "--set", "pools.canery.min=1"], "did you mean canary", id="a-pool"),
        pytest.param([RECIPE, "--surge", "-1"], "--surge", id="surge"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words: list[str], told: str) -> None:
    answer = specctl(*words)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert told in answer.stderr


def test_dra_asks_for_a_server_that_has_it() -> None:
    kinds = [each["kind"] for each in yaml.safe_load_all(specctl(RECIPE, "--dra").stdout)]
    assert "ResourceClaimTemplate" in kinds


def test_a_rendering_that_lint_refuses_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(objects: object) -> None:
        raise lints.LintError("Deployment x: no such port")

    monkeypatch.setattr(lints, "lint", refuse)
    answer = specctl(RECIPE)
    assert isinstance(answer.exception, lints.LintError)
    assert answer.stdout == ""
