"""Whether an account may watch, and make this deployment's moves: asked before the first look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from speccli.core.deploy import cluster as deploying
from speccli.core.deploy.asked import Asked
from speccli.core.errors import ExitCode
from speccli.core.fallback import carry
from speccli.core.fallback.rights import LOOKING, MOVING, WATCHING, at_start
from speccli.core.kube.errors import Denied, Unreachable
from speccli.core.manifests.options import RenderOptions
from speccli.core.recipes.load import load
from tests.core.deploy.test_cluster import RECIPE
from tests.core.fallback.test_carry import WITH_STANDBY, World, quick
from tests.core.fallback.test_restoring import Busy

__all__ = ["quick"]

ROLE = Path(__file__).parents[3] / "manifests" / "rbac" / "fallback-watch.yaml"
SUB = {"proxy": "pods/proxy", "log": "pods/log"}


def plural(kind: str) -> str:
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


class Guarded(Busy):
    """A cluster that lets an account do what `allowed` says; None: all, and `asked` keeps it."""

    def __init__(self, allowed: Iterable[str] | None = None) -> None:
        super().__init__(gpus=16)
        self.missing = frozenset()
        self.allowed = None if allowed is None else set(allowed)
        self.asked: set[str] = set()
        self.guards = False

    def can(
        self, verb: str, resource: str, namespace: str | None = None, name: str = ""
    ) -> bool | None:
        self.asked.add(f"{verb} {resource}")
        name = f"{verb} {resource}"
        return self.allowed is None or (name in self.allowed and namespace == "llm")

    def resource(self, _: str, kind: str) -> Any:
        return SimpleNamespace(name=plural(kind.lower()))

    def _see(self, verb: str, api_version: str, kind: str, sub: str = "") -> None:
        group, slash, _ = api_version.partition("/")
        name = f"{plural(kind.lower())}{f'.{group}' if slash else ''}{sub and f'/{sub}'}"
        if self.guards and f"{verb} {name}" not in self.asked:
            raise Denied(f"may not {verb} {name}")

    def get(self, api_version: str, kind: str, *given: Any, **more: Any) -> Any:
        self._see("get", api_version, kind)
        return super().get(api_version, kind, *given, **more)

    def list(self, api_version: str, kind: str, *given: Any, **more: Any) -> Any:
        self._see("list", api_version, kind)
        return super().list(api_version, kind, *given, **more)

    def apply(self, obj: Mapping[str, Any], *given: Any, **more: Any) -> Any:
        version, kind = obj["apiVersion"], obj["kind"]
        self._see("patch", version, kind)
        if (kind, obj["metadata"]["name"]) not in self.objects:
            self._see("create", version, kind)
        return super().apply(obj, *given, **more)

    def delete(self, api_version: str, kind: str, *given: Any, **more: Any) -> Any:
        self._see("delete", api_version, kind)
        return super().delete(api_version, kind, *given, **more)

    def proxy(self, *given: Any, **more: Any) -> Any:
        method = given[4] if len(given) > 4 else more.get("method", "GET")
        self._see({"GET": "get", "POST": "create"}[method], "v1", "Pod", "proxy")
        return super().proxy(*given, **more)


def role(without: Iterable[str] = ()) -> set[str]:
    """What the manifest's Role allows, as `verb resource`."""
    every = next(d for d in yaml.safe_load_all(ROLE.read_text()) if d["kind"] == "Role")
    told = {
        f"{verb} {resource}{f'.{group}' if group else ''}"
        for rule in every["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert set(without) <= told
    return told - set(without)


class Narrowed(Guarded):
    """An account whose Role has `resourceNames` in rules of some resources, as RBAC judges it."""

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        super().__init__(role())
        self.names = {resource: set(each) for resource, each in names.items()}

    def can(
        self, verb: str, resource: str, namespace: str | None = None, name: str = ""
    ) -> bool | None:
        told = super().can(verb, resource, namespace, name)
        if resource not in self.names or verb in {"create", "list", "watch"}:
            return told  # a rule of its own, without names
        return bool(told) and name in self.names[resource]


def deployed(cluster: Guarded, *sets: str, **options: Any) -> Guarded:
    recipe = load(RECIPE, ["storage.persist=false", *sets])
    asked = Asked(recipe, RenderOptions(**{**WITH_STANDBY, **options}))
    done = deploying.deploy(lambda _: cluster, asked, _Silent())  # type: ignore[arg-type,return-value]
    assert done.exit_code is ExitCode.OK
    return cluster


class _Silent:
    def say(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def progress(self, *_: Any) -> None: ...


def seen(cluster: Guarded, *, auto: bool = True, pages: bool = True) -> tuple[str, ...]:
    return at_start(cluster, "llm", "chat", auto=auto, pages=pages)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"autoscaler": "hpa"}, id="hpa"),
        pytest.param({"autoscaler": "keda", "monitoring": True}, id="keda"),
        pytest.param({"dra": True, "kubernetes": (1, 34)}, id="dra"),
        pytest.param({"inference_pool": True, "gateway": "gw"}, id="gateway"),
        pytest.param({"pools": ()}, id="no-standby"),
    ],
)
def test_the_role_of_the_manifests_is_enough(options: dict[str, Any]) -> None:
    assert seen(deployed(Guarded(role()), **options)) == ()


@pytest.mark.parametrize(
    "right",
    sorted(f"{v} {r}" for told in (WATCHING, LOOKING) for r, verbs in told.items() for v in verbs),
)
def test_without_what_watching_takes_it_does_not_begin(right: str) -> None:
    cluster = deployed(Guarded(role(without=[right])))
    with pytest.raises(Denied, match=f"fallback watch may not {right} in llm$") as refused:
        seen(cluster, auto=False)
    assert refused.value.exit_code is ExitCode.UNKNOWN
    assert "kubectl apply -n llm -f manifests/rbac/fallback-watch.yaml" in str(refused.value.hint)


@pytest.mark.parametrize("right", ["patch services", "create pods/proxy", "list replicasets.apps"])
def test_without_what_every_move_takes_it_does_not_begin_to_move(right: str) -> None:
    cluster = deployed(Guarded(role(without=[right])))
    with pytest.raises(Denied, match=f"may make no move: it may not {right} in llm"):
        seen(cluster)
    assert seen(cluster, auto=False) == ()  # who says yes has rights of his own


NARROWED = {
    "leases.coordination.k8s.io": ("chat-fallback",),
    "configmaps": ("chat-fallback", "chat-specctl"),
    "deployments.apps": ("chat", "chat-standby", "chat-canary"),
    "services": ("chat", "chat-main", "chat-standby"),
}


def test_a_role_narrowed_to_the_deployments_names_is_enough() -> None:
    assert seen(deployed(Narrowed(NARROWED))) == ()


def test_a_role_narrowed_to_another_deployment_is_told() -> None:
    other = deployed(Narrowed({"configmaps": ("other-fallback", "other-specctl")}))
    with pytest.raises(Denied, match=r"may not get configmaps, patch configmaps in llm$"):
        seen(other, auto=False)
    lacks = {**NARROWED, "deployments.apps": ("chat", "chat-standby")}
    (line,) = seen(deployed(Narrowed(lacks)))
    assert line.startswith("a canary (the way back) cannot be made: it takes the right to ")
    assert "patch deployments.apps chat-canary in llm" in line


def test_a_right_for_some_moves_names_them_and_keeps_it_from_nothing_else() -> None:
    cluster = deployed(Guarded(role(without=["create deployments.apps"])))
    (line,) = seen(cluster)
    assert line.startswith("a canary (the way back) cannot be made: it takes the right to ")
    assert "create deployments.apps in llm" in line
    assert "-f manifests/rbac/fallback-watch.yaml" in line


def test_a_class_of_the_clusters_is_asked_for_in_the_cluster() -> None:
    cluster = deployed(Guarded(role()), "scheduling.priority=1000")
    with pytest.raises(Denied, match=r"patch priorityclasses\.scheduling\.k8s\.io of the cluster"):
        seen(cluster)


def test_where_a_prometheus_is_read_no_page_is_asked_for() -> None:
    cluster = deployed(Guarded(role(without=["get pods/proxy"])))
    assert seen(cluster, auto=False, pages=False) == ()


def test_what_the_server_does_not_tell_is_held_against_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = deployed(Guarded(()))
    monkeypatch.setattr(cluster, "can", lambda *_: None)
    assert seen(cluster) == ()


def test_an_api_server_that_does_not_answer_is_said_and_keeps_it_from_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any) -> bool:
        raise Unreachable("cannot reach the API server")

    cluster = deployed(Guarded(()))
    monkeypatch.setattr(cluster, "can", away)
    (line,) = seen(cluster)
    assert "not known: cannot reach the API server" in line


def test_with_no_more_than_what_is_asked_for_it_goes_down_and_comes_back() -> None:
    cluster = Guarded()
    world = World("fallback.canary_drafts=1500", fake=cluster)
    assert seen(cluster) == ()
    cluster.guards = True
    assert world.go().end == "moved"
    told = carry.restore(
        lambda _: cluster,  # type: ignore[arg-type,return-value]
        None,
        "chat",
        world.heard,
        clock=lambda: float(next(world.clock)),
        sleep=lambda _: None,
    )
    assert told.verdict == "passed"
    assert ("Deployment", "chat-canary") not in cluster.objects
    for right in ("patch services", "create deployments.apps", "create pods/proxy"):
        assert right in cluster.asked
    assert MOVING.keys() <= {each.split()[1] for each in cluster.asked}
