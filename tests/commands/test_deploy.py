"""`deploy`, `rollback`, `delete`, `list` and `status NAME`, where no cluster is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from speccli.commands._cluster_options import Told
from speccli.core.deploy import cluster
from speccli.core.deploy.asked import Asked
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.load import load
from speccli.main import app
from tests.core.deploy.fake_cluster import FakeCluster

RECIPE = "llama-3.3-70b-eagle3-h100"


def specctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deploy", RECIPE, "--to", "local", "--diff"], "--diff and --dry-run are for clusters"),
        (["deploy", "llama-3.3-70b-eagle3-h1000"], "no recipe 'llama-3.3-70b-eagle3-h1000'"),
        (["deploy", RECIPE, "--timeout", "soon"], "--timeout 'soon' is not a duration"),
        (["deploy", RECIPE, "--name", "Chat!"], "makes no name for Kubernetes"),
        (["rollback", "chat", "--to", "local"], "no local deployment chat"),
        (["delete", "chat", "--to", "local", "--yes"], "no local deployment chat"),
        (["status", "chat", "--replay", "x.jsonl"], "chat and --replay together"),
    ],
)
def test_what_cannot_be_is_a_usage_error(words: list[str], said: str) -> None:
    done = specctl(*words)
    assert done.exit_code == 64, done.stderr
    assert done.stdout == ""
    assert said in done.stderr


def test_critical_findings_need_no_cluster() -> None:
    done = specctl("deploy", RECIPE, "--set", "serving.gpu_memory_utilization=0.3")
    assert done.exit_code == 2
    assert "refused, nothing was applied: PLAN_MEMORY" in done.stderr
    assert "--accept PLAN_MEMORY" in done.stderr


@pytest.mark.parametrize("words", [["deploy", RECIPE], ["rollback", "chat"], ["status", "chat"]])
def test_without_a_kubeconfig_it_says_so(words: list[str]) -> None:
    done = specctl(*words)
    assert done.exit_code == 64
    assert "kubeconfig" in done.stderr


def test_a_list_of_this_machine_needs_no_cluster() -> None:
    done = specctl("list", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["deployments"] == []
    assert "no cluster was asked" in done.stderr
    assert specctl("list", "--to", "kubernetes").exit_code == 64


def test_a_cluster_that_is_down_hides_nothing_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "none").write_text(
        """
apiVersion: v1
kind: Config
current-context: down
contexts: [{name: down, context: {cluster: down, user: me}}]
clusters: [{name: down, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: t}}]
"""
    )
    done = specctl("list", "-o", "json")
    assert done.exit_code == 3, done.stderr
    assert json.loads(done.stdout)["deployments"] == []
    assert "what the cluster has is not known" in done.stderr
    assert specctl("list", "--context", "down", "-o", "json").stdout == ""


@pytest.mark.parametrize(("wait", "said"), [(True, "chat is gone"), (False, "chat goes")])
def test_what_is_not_waited_for_is_not_called_gone(wait: bool, said: str) -> None:
    from speccli.commands.delete import _left
    from speccli.core.deploy.remove import Deletion

    assert _left(Deletion("chat", "llm", (), ()), (), wait=wait).startswith(said)


def test_what_is_left_or_could_not_be_looked_for_is_not_called_gone() -> None:
    from speccli.commands.delete import _left
    from speccli.core.deploy.remove import Deletion
    from speccli.core.kube.refs import LEASES, Ref

    lease = Ref(LEASES, "Lease", "chat-fallback", "llm")
    whole = Deletion("chat", "llm", (), ())
    assert _left(whole, (), wait=True) == "chat is gone, and nothing of it is left"
    kept = _left(whole, (lease,), wait=True)
    assert kept == "chat is gone; left: Lease chat-fallback, which these credentials may not remove"
    unseen = _left(Deletion("chat", "llm", (), (), unseen=lease), (), wait=True)
    assert unseen.startswith(
        "chat is gone; whether Lease chat-fallback of a fallback watch is left"
    )


def test_a_deletion_that_is_interrupted_says_how_it_is_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCluster()
    options = RenderOptions(name="chat", autoscaler="none", monitoring=False)
    asked = Asked(load(RECIPE, ["storage.persist=false"]), options)
    cluster.deploy(lambda _: fake, asked, Told())  # type: ignore[arg-type,return-value]
    monkeypatch.setattr("speccli.commands.delete.connector", lambda *_: lambda _: fake)
    remove = fake.delete

    def stopped(api_version: str, kind: str, name: str, namespace: str | None = None) -> bool:
        if kind == "ConfigMap":
            raise KeyboardInterrupt
        return remove(api_version, kind, name, namespace)

    monkeypatch.setattr(fake, "delete", stopped)
    cut = specctl("delete", "chat", "--yes")
    assert cut.exit_code == 130, cut.stderr
    assert "removed Deployment chat" in cut.stderr
    assert cut.stderr.endswith("specctl: interrupted: the same command completes it\n")
    monkeypatch.setattr(fake, "delete", remove)
    again = specctl("delete", "chat", "--yes")
    assert again.exit_code == 0, again.stderr
    assert "chat is gone, and nothing of it is left" in again.stderr


def test_a_local_deletion_that_is_interrupted_says_how_it_is_completed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("SPECCTL_STATE", str(tmp_path))
    monkeypatch.setattr("speccli.core.deploy.place.is_kept", lambda *_: True)
    monkeypatch.setattr("speccli.core.deploy.place.delete", stopped)
    cut = specctl("delete", "chat", "--to", "local", "--yes")
    assert cut.exit_code == 130, cut.stderr
    assert cut.stderr == "specctl: interrupted: the same command completes it\n"


def test_rollback_accepts_findings_that_are_typed() -> None:
    assert "--accept" in specctl("rollback", "--help").stdout
