from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from speccli.core.kube.client import Cluster
from tests.support.api_server import ApiServer, Question, Reply, write_kubeconfig
from tests.support.certs import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """A server over plain http; set its `script`."""
    with ApiServer() as server:
        yield server


Connect = Callable[..., Cluster]


@pytest.fixture
def connect(api: ApiServer, tmp_path: Path) -> Connect:
    def go(deadline: float = 5.0, **given: Any) -> Cluster:
        path = write_kubeconfig(tmp_path / "kubeconfig", api.url, **given)
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return Cluster.connect(str(path), deadline=deadline, environment=home)

    return go


def answering(path: str, *replies: Reply) -> Callable[[Question], Reply | None]:
    """A script that gives one reply after the other at a path, the last again and again."""
    left = list(replies)

    def script(question: Question) -> Reply | None:
        if question.path != path:
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    return script
