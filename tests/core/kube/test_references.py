"""What pods refer to must be there, unless it is optional or comes along."""

from __future__ import annotations

from typing import Any

from speccli.core.kube.references import needed


def deployment(pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"template": {"spec": {"containers": [{}], **pod}}},
    }


def words(*objects: dict[str, Any]) -> list[str]:
    return [str(ref) for ref in needed(objects)]


def env(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"env": [{"name": "X", "valueFrom": {kind: {"name": name, "key": "k", **more}}}]}


def test_a_secret_is_needed_and_an_optional_one_is_not() -> None:
    pod = {
        "containers": [env("secretKeyRef", "key"), env("secretKeyRef", "hf-token", optional=True)]
    }
    assert words(deployment(pod)) == ["Secret key"]


def test_volumes_classes_and_pull_secrets_are_needed() -> None:
    pod = {
        "volumes": [
            {"name": "m", "persistentVolumeClaim": {"claimName": "weights"}},
            {"name": "s", "secret": {"secretName": "tls"}},
            {"name": "c", "configMap": {"name": "conf", "optional": True}},
        ],
        "imagePullSecrets": [{"name": "pull"}],
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "serviceAccountName": "chat",
    }
    assert words(deployment(pod)) == [
        "PersistentVolumeClaim weights",
        "Secret tls",
        "Secret pull",
        "PriorityClass high",
        "RuntimeClass nvidia",
        "ServiceAccount chat",
    ]


def test_what_comes_along_is_not_needed() -> None:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "chat", "namespace": "llm"},
    }
    assert words(deployment({"serviceAccountName": "chat"}), account) == []
