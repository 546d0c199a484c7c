"""A pass of the kernel checks counts for its image, its driver, its node and a while."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from speccli.core.deploy.kernels import lacking
from speccli.core.kernels_gate import Kept
from speccli.core.kube.stock import Node

NOW = datetime(2026, 1, 9, tzinfo=UTC)
WEEK_S = 7 * 86400.0
PASS = Kept(
    at=(NOW - timedelta(days=1)).isoformat(),
    exit=0,
    whole=True,
    shared=False,
    image="vllm:1",
    image_digest=None,
    driver="580.1",
    gpu="H100",
    gpu_uuid="GPU-1",
    node="a",
    versions={},
    seed=0,
    seconds=1.0,
    counts={"passed": 9},
    findings=(),
)
NODES = (Node("a", "H100", 8, 0, "580.1"),)


def lacks(*results: Kept, nodes: tuple[Node, ...] | None = NODES) -> list[str]:
    found = list(lacking(results, "vllm:1", nodes, WEEK_S, NOW))
    assert {each.code for each in found} <= {"DEPLOY_KERNELS"}
    return [each.evidence for each in found]


def test_a_fresh_pass_of_every_node_lets_it_in() -> None:
    assert lacks(PASS) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"image": "vllm:2"}, id="another-image"),
        pytest.param({"driver": "570.9"}, id="another-driver"),
        pytest.param({"node": "b"}, id="another-node"),
        pytest.param({"exit": 2}, id="it-failed"),
        pytest.param({"at": (NOW - timedelta(days=8)).isoformat()}, id="too-long-ago"),
    ],
)
def test_any_other_result_does_not(changed: dict[str, object]) -> None:
    assert len(lacks(replace(PASS, **changed))) == 1  # type: ignore[arg-type]


def test_each_node_without_one_is_named_with_what_to_run() -> None:
    nodes = (*NODES, Node("b", "H100", 8, 0, "580.1"))
    (found,) = lacking([PASS], "vllm:1", nodes, WEEK_S, NOW)
    assert found.evidence.startswith("b: ")
    assert found.action == "specctl kernels check --job --image vllm:1 --node b"
    assert found.severity == "critical"


def test_a_driver_that_no_label_tells_is_not_held_against_it() -> None:
    assert lacks(PASS, nodes=(Node("a", "H100", 8, 0),)) == []


def test_where_nodes_are_not_known_one_pass_is_enough_and_that_is_told() -> None:
    (told,) = lacking([PASS], "vllm:1", None, WEEK_S, NOW)
    assert told.severity == "unknown"
    assert told.evidence == "they passed on a; where pods may be put is not known"
    (missing,) = lacking([], "vllm:1", None, WEEK_S, NOW)
    assert missing.severity == "critical"


def test_nodes_that_are_not_there_yet_have_no_pass() -> None:
    (found,) = lacking([PASS], "vllm:1", (), WEEK_S, NOW)
    assert found.severity == "critical"


def test_on_this_machine_a_pass_is_of_where_it_runs() -> None:
    assert not list(lacking([PASS], None, None, WEEK_S, NOW, here=True))
