"""Fixtures of the tests on a real Kubernetes control plane (`tests/support/kube/cluster.py`)."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.kube.operators import Operators, operating
from tests.support.kube.binaries import need_root
from tests.support.kube.cluster import Cluster, World
from tests.support.kube.plane import Plane

HERE = Path(__file__).parent
_running = contextlib.ExitStack()
_last: list[pytest.Item] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    _last[:] = [item for item in session.items if HERE in item.path.parents][-1:]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """End the control plane with its last test: the tests of other servers want the machine."""
    yield
    if [item] == _last:
        _running.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A control plane with four nodes and their kubelet; starts once, in some six seconds."""
    need_root()
    with _running:
        plane = _running.enter_context(Plane(tmp_path_factory.mktemp("plane")))
        yield _running.enter_context(World(plane))


@pytest.fixture
def cluster(world: World) -> Iterator[Cluster]:
    """A namespace of its own on it, with `kubeconfig`, `context` and `namespace`."""
    with Cluster(world) as cluster:
        yield cluster


@pytest.fixture
def operators(cluster: Cluster, tmp_path: Path) -> Iterator[Operators]:
    """Who types and who gets in the way, on that cluster."""
    with operating(cluster, tmp_path) as operators:
        yield operators
