"""Every variant on a real API server with the real definitions, CEL rules included; dry run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from speccli.core.kube.client import Cluster as Client
from speccli.core.kube.errors import Invalid
from speccli.core.manifests import objects
from speccli.core.recipes.load import load
from tests.support.crds import FILES, definition
from tests.support.kube.api import until
from tests.support.kube.binaries import need_root
from tests.support.kube.plane import Plane
from tests.support.manifests import HUB, VARIANTS

pytestmark = pytest.mark.real_kubernetes


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A plane of its own: the session's has looser definitions of some kinds."""
    need_root()
    definitions = [definition(kind) for kind in FILES]
    with Plane(tmp_path_factory.mktemp("plane")) as plane:
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}})
        for each in definitions:
            plane.api.create(each)
        for each in definitions:
            name = each["metadata"]["name"]
            until(partial(_established, plane, name), f"{name} to be served")
        yield Client.connect(kubeconfig=str(plane.kubeconfig), namespace="llm", deadline=30)


def _established(plane: Plane, name: str) -> bool:
    found = plane.api.get("CustomResourceDefinition", name).get("status", {})
    return any(
        each["type"] == "Established" and each["status"] == "True"
        for each in found.get("conditions", [])
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_server_takes_every_object(client: Client, variant: str) -> None:
    options, changes = VARIANTS[variant]
    made = objects(load(HUB, changes), replace(options, kubernetes=(1, 37)))
    for each in made:
        would = client.apply(each, dry_run=True)
        _kept(each, would, each["kind"])


def test_large_quantities_are_spelled_as_the_server_does(client: Client) -> None:
    changes = ["scaling.queue_wait_ms_target=1000", "serving.tensor_parallel=8"]
    large = ["hardware.count=8", "storage.size_gib=2048", "serving.max_num_seqs=1250"]
    options = replace(VARIANTS["hpa"][0], kubernetes=(1, 37))
    for each in objects(load(HUB, [*changes, *large]), options):
        _kept(each, client.apply(each, dry_run=True), each["kind"])


def _kept(sent: Any, would: Any, where: str) -> None:
    """Nothing that was sent is dropped or changed: a field that is off would vanish silently."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            assert key in would, f"{where}.{key} was dropped"
            _kept(value, would[key], f"{where}.{key}")
    elif isinstance(sent, list):
        assert len(sent) == len(would), where
        for place, (one, other) in enumerate(zip(sent, would, strict=True)):
            _kept(one, other, f"{where}.{place}")
    else:
        assert str(sent) == str(would), where


def test_the_server_refuses_what_the_definitions_do(client: Client) -> None:
    options, changes = VARIANTS["gateway"]
    made = objects(load(HUB, changes), replace(options, kubernetes=(1, 37)))
    pool = next(each for each in made if each["kind"] == "InferencePool")
    del pool["spec"]["endpointPickerRef"]["port"]  # a CEL rule asks for it
    with pytest.raises(Invalid, match="port is required"):
        client.apply(pool, dry_run=True)
