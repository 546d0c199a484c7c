"""Fixtures of the tests on a real Kubernetes control plane (`tests/support/kube/cluster.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kube.binaries import need_root
from tests.support.kube.cluster import Cluster, World
from tests.support.kube.plane import Plane


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A control plane with four nodes and their kubelet; starts once, in some six seconds."""
    need_root()
    with Plane(tmp_path_factory.mktemp("plane")) as plane, World(plane) as world:
        yield world


@pytest.fixture
def cluster(world: World) -> Iterator[Cluster]:
    """A namespace of its own on it, with `kubeconfig`, `context` and `namespace`."""
    with Cluster(world) as cluster:
        yield cluster
