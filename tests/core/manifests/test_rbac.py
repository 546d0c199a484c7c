"""manifests/rbac: as much as specctl needs and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.manifests import objects
from tests.support.manifests import HUB, SERVERS, VARIANTS, rendered_with, validate

FOLDER = Path(__file__).parents[3] / "manifests" / "rbac"
WRITES = {"create", "patch", "update", "delete", "deletecollection"}
CLUSTER = {"Namespace", "PriorityClass"}


def documents(*names: str) -> list[dict[str, Any]]:
    return [each for name in names for each in yaml.safe_load_all((FOLDER / name).read_text())]


def allowed(name: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of each permission."""
    return {
        (group, resource, verb)
        for each in documents(name)
        for rule in each.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_every_rendered_kind_can_be_applied_looked_for_and_deleted() -> None:
    may = allowed("deploy.yaml")
    for variant in VARIANTS:
        for each in objects(*rendered_with(HUB, variant, (1, 37))):
            if each["kind"] in CLUSTER:
                continue
            group = each["apiVersion"].rpartition("/")[0]
            kind = each["kind"].lower()
            plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
            for verb in ("get", "list", "create", "patch", "delete"):
                assert (group, plural, verb) in may, (plural, verb)


def test_reading_changes_nothing() -> None:
    read = allowed("read.yaml")
    assert {verb for _, _, verb in read} <= {"get", "list", "watch"}
    assert ("", "pods/proxy", "get") in read  # what changes an engine is a POST: create
    assert not {verb for _, _, verb in allowed("deploy-cluster.yaml")} & WRITES


@pytest.mark.parametrize("name", ["read.yaml", "deploy.yaml", "deploy-cluster.yaml"])
def test_no_wildcard_no_secret_no_shell(name: str) -> None:
    for group, resource, verb in allowed(name):
        assert "*" not in {group, resource, verb}
        assert resource not in {"secrets", "pods/exec", "pods/attach", "pods/ephemeralcontainers"}
        assert verb not in {"escalate", "bind", "impersonate"}


@pytest.mark.parametrize("server", [SERVERS[0], SERVERS[-1]], ids=["1.29", "1.37"])
def test_the_files_are_valid_and_listed(server: tuple[int, int]) -> None:
    names = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*names, "kustomization.yaml"}
    for each in documents(*names):
        validate(each, server)
