"""`--deployment` as it is typed, wherever metrics are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ApiServer, Question, Reply, status, write_kubeconfig
from tests.support.pod_fleet import PAGE, Fleet
from tests.support.pods import crashed, loading, pending, ready
from tests.support.recordings import Answer, specctl

Typed = Callable[..., Answer]
QUICK = ("--window", "0.3s", "--interval", "0.1s")


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(Fleet(ready("chat-a"), ready("chat-b"))) as server:
        yield server


@pytest.fixture
def typed(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """The command line with a kubeconfig; the first words are the command's."""
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPECCTL_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return specctl


def test_status_shows_the_pods_by_their_names(typed: Typed) -> None:
    answer = typed("status", "--deployment", "chat", *QUICK, "-o", "json")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert [each["target"] for each in answer.json["engines"]] == ["chat-a", "chat-b"]
    assert {each["state"] for each in answer.json["engines"]} == {"ok"}


def test_top_once_is_the_same(typed: Typed) -> None:
    answer = typed("top", "--once", "--deployment", "chat", *QUICK)
    assert answer.exit_code == 0
    assert "chat-a/0" in answer.stdout


def test_pods_on_their_way_are_told_apart_from_those_that_are_down(
    api: ApiServer, typed: Typed
) -> None:
    refused = status(503, "ServiceUnavailable", "dial tcp 10.0.0.1:8000: connection refused")
    fleet = Fleet(ready("up"), loading("slow"), pending("wait"), crashed("bad"))
    fleet.pages["slow"] = refused
    api.script = fleet
    answer = typed("status", "--deployment", "chat", *QUICK, "-o", "json")
    states = {each["target"]: each["state"] for each in answer.json["engines"]}
    assert states == {"up": "ok", "slow": "loading", "wait": "pending", "bad": "down"}
    codes = {(each["code"], each["subject"]) for each in answer.json["findings"]}
    assert ("ENGINE_DOWN", "bad/?") in codes
    assert not {subject for _, subject in codes} & {"slow/?", "wait/?"}


def test_where_no_pod_serves_yet_it_is_unknown_and_says_why(api: ApiServer, typed: Typed) -> None:
    api.script = Fleet(pending("wait"))
    answer = typed("status", "--deployment", "chat", *QUICK)
    assert answer.exit_code == 3
    assert "wait: 0 of 5 nodes can take it: 2 with too few free nvidia.com/gpu" in answer.stderr


def test_a_record_of_pods_replays_as_it_was_seen(
    api: ApiServer, typed: Typed, tmp_path: Path
) -> None:
    api.script = Fleet(ready("up"), pending("wait"))
    file = tmp_path / "r.jsonl"
    done = typed("record", str(file), "--deployment", "chat", "--for", "0.4s", "--interval", "0.1s")
    assert done.exit_code == 0, done.stderr
    answer = typed("status", "--replay", str(file), "-o", "json")
    found = {each["target"]: (each["state"], each["fix"]) for each in answer.json["engines"]}
    assert found["wait"][0] == "pending"
    assert "free GPUs" in found["wait"][1]


def test_a_check_from_cron_judges_the_deployment(api: ApiServer, typed: Typed) -> None:
    words = ("alert", "check", "--deployment", "chat", "--window", "0.3s", "--deadline", "20s")
    answer = typed(*words)
    assert answer.stdout.startswith("SPECCTL OK - no traffic, 2 engines"), answer.stderr
    assert answer.exit_code == 0
    api.script = lambda asked: status(401, "Unauthorized", "Unauthorized")
    answer = typed(*words)
    assert answer.exit_code == 3
    assert answer.stdout.startswith("SPECCTL UNKNOWN - ")
    assert "does not accept the credentials (401)" in answer.stdout


@pytest.mark.parametrize(
    ("pool", "code", "word"), [("standby", 0, "OK"), ("main", 1, "WARNING - VERSION_SKEW")]
)
def test_a_standby_that_drafts_in_another_way_is_no_skew(
    api: ApiServer, typed: Typed, tmp_path: Path, pool: str, code: int, word: str
) -> None:
    """Of the check, and of what is made of a recording."""
    pods = {"chat-a": "main", "chat-other-a": pool}
    made = [
        ready(name, labels={"specctl.dev/deployment": "chat", "specctl.dev/pool": each})
        for name, each in pods.items()
    ]
    fleet = Fleet(*made)
    drafts = PAGE + b'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 50.0\n'
    fleet.pages["chat-a"] = Reply(body=drafts)
    api.script = fleet
    answer = typed("alert", "check", "--deployment", "chat", "--window", "0.3s")
    assert answer.exit_code == code, answer.stdout
    assert answer.stdout.startswith(f"SPECCTL {word}")
    file = tmp_path / "r.jsonl"
    done = typed("record", str(file), "--deployment", "chat", "--for", "0.4s", "--interval", "0.1s")
    assert done.exit_code == 0, done.stderr
    found = typed("status", "--replay", str(file), "-o", "json").json["findings"]
    assert ("VERSION_SKEW" in {each["code"] for each in found}) == (code == 1)


def test_a_crash_is_critical_for_cron_although_nothing_could_be_read(
    api: ApiServer, typed: Typed
) -> None:
    fleet = Fleet(crashed("bad", code=2))
    fleet.logs["bad"] = "vllm: error: unrecognized arguments: --nope"
    api.script = fleet
    answer = typed("alert", "check", "--deployment", "chat", "--window", "0.3s")
    assert answer.exit_code == 2
    assert "ENGINE_DOWN bad/?: crashed 3 times: this vLLM knows no --nope" in answer.stdout


def test_a_namespace_that_is_typed_beats_the_contexts(api: ApiServer, typed: Typed) -> None:
    answer = typed("status", "--deployment", "chat", "-n", "other", *QUICK)
    assert answer.exit_code == 3
    assert any("/namespaces/other/" in path for path in api.paths())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("--context", "hera"), 64, "no context hera in", id="context"),
        pytest.param(("--kubeconfig", "/nonexistent"), 64, "is not there", id="kubeconfig"),
        pytest.param(("-n", "No_Name"), 64, "is no name of Kubernetes'", id="namespace"),
        pytest.param(("-e", "http://x"), 64, "one source at a time", id="two-sources"),
    ],
)
def test_what_is_mistyped_is_told_before_anything_is_asked(
    api: ApiServer, typed: Typed, words: tuple[str, ...], code: int, said: str
) -> None:
    answer = typed("status", "--deployment", "chat", *words)
    assert (answer.exit_code, answer.stdout) == (code, "")
    assert said in answer.stderr
    assert api.asked == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(None, "credential plugin aws is not there", id="missing"),
        pytest.param("echo SSO expired >&2; exit 255", "failed with 255: SSO expired", id="fails"),
        pytest.param("echo please login", "printed no ExecCredential: please login", id="no-json"),
        pytest.param(
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1beta1", '
            '"kind": "ExecCredential", "status": {"token": "x"}}\'',
            "speaks client.authentication.k8s.io/v1beta1",
            id="another-version",
        ),
    ],
)
def test_a_plugin_that_fails_is_exit_3_in_its_own_words(
    api: ApiServer, typed: Typed, tmp_path: Path, script: str | None, said: str
) -> None:
    command = tmp_path / "aws"
    if script is not None:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(command), "env": None}
    write_kubeconfig(tmp_path / "kubeconfig", api.url, user={"exec": spec})
    answer = typed("status", "--deployment", "chat", *QUICK)
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert said in answer.stderr
    assert api.asked == []


def test_an_api_server_that_is_down_is_said_as_that(
    api: ApiServer, typed: Typed, tmp_path: Path
) -> None:
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    answer = typed("status", "--deployment", "chat", *QUICK)
    assert answer.exit_code == 3
    assert "cannot reach the API server http://127.0.0.1:9: connect refused" in answer.stderr


def test_who_may_not_is_told_which_verb_where(api: ApiServer, typed: Typed) -> None:
    said = 'User "sre" cannot list resource "pods" in API group "" in the namespace "prod"'
    fleet = Fleet(ready("a"))

    def script(asked: Question) -> Reply | None:
        return status(403, "Forbidden", said) if asked.path.endswith("/pods") else fleet(asked)

    api.script = script
    answer = typed("status", "--deployment", "chat", *QUICK)
    assert answer.exit_code == 3
    assert "not allowed: sre may not list pods in namespace prod" in answer.stderr
    assert "docs/kubernetes.md" in answer.stderr


def test_a_project_may_not_choose_what_programs_are_run(
    api: ApiServer, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "repository"
    project.mkdir()
    (project / "specctl.toml").write_text('deployment = "chat"\nkubeconfig = "./k"\n')
    monkeypatch.chdir(project)
    answer = typed("status", *QUICK)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert "sets kubeconfig, which names programs that are run" in answer.stderr
    (project / "specctl.toml").write_text('deployment = "chat"\n')
    assert typed("status", *QUICK).exit_code == 0


def test_json_of_a_crash_has_what_to_do(api: ApiServer, typed: Typed) -> None:
    api.script = Fleet(crashed("bad", code=137, reason="OOMKilled"))
    answer = typed("status", "--deployment", "chat", *QUICK, "-o", "json")
    engine: dict[str, Any] = json.loads(answer.stdout)["engines"][0]
    assert engine["reason"] == "crashed 3 times: it used more host memory than it may (64Gi)"
    assert engine["fix"].startswith("raise its memory limit")
