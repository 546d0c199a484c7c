from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speccli.core.kube.client import Cluster
from tests.support.api_server import ApiServer, write_kubeconfig
from tests.support.kept_objects import KNOWN, Kept


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def api(kept: Kept) -> Iterator[ApiServer]:
    """A server that keeps ConfigMaps, Leases and Events."""
    with ApiServer(kept, groups=KNOWN) as server:
        yield server


@pytest.fixture
def cluster(api: ApiServer, tmp_path: Path) -> Cluster:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return Cluster.connect(str(path), deadline=5.0, environment=home)


@pytest.fixture
def connect(cluster: Cluster) -> Callable[[], Cluster]:
    return lambda: cluster
