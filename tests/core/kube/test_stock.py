"""GPUs are counted as the scheduler counts them, and a rollout is chosen by what is free."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.kube.stock import Stock, gpus_of, stock_of, strategy, takes

H100, H200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"


def node(name: str, gpus: int = 8, product: str = H100, **spec: Any) -> dict[str, Any]:
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "spec": {"taints": [taint], **spec},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_spec(gpus: int = 2, product: str | None = H100) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    if product:
        expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    return spec


def pod(gpus: int, on: str | None, phase: str = "Running") -> dict[str, Any]:
    spec = {**pod_spec(gpus), **({"nodeName": on} if on else {})}
    return {"spec": spec, "status": {"phase": phase}}


def test_free_gpus_are_allocatable_minus_requested() -> None:
    pods = [pod(2, "a"), pod(4, "a"), pod(8, "b", "Succeeded"), pod(8, None, "Pending")]
    seen = stock_of(pod_spec(), [node("a"), node("b")], pods)
    assert [(each.name, each.free) for each in seen.nodes] == [("a", 2), ("b", 8)]
    assert (seen.free, seen.fits, seen.capacity) == (10, 5, 8)


def test_gpus_of_a_pod_are_of_one_node() -> None:
    nodes = [node("a"), node("b"), node("c")]
    seen = stock_of(pod_spec(4), nodes, [pod(6, "a"), pod(6, "b"), pod(6, "c")])
    assert seen.free == 6
    assert seen.fits == 0


def test_another_product_is_named_and_not_counted() -> None:
    seen = stock_of(pod_spec(), [node("a", product=H200)], [])
    assert (seen.capacity, seen.products) == (0, (H200,))


@pytest.mark.parametrize(
    ("changed", "spec"),
    [
        pytest.param({"spec": {"unschedulable": True}}, {}, id="cordoned"),
        pytest.param(
            {"spec": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}},
            {},
            id="a-taint-that-is-not-tolerated",
        ),
        pytest.param({"status": {"conditions": []}}, {}, id="not-ready"),
        pytest.param({}, {"nodeSelector": {"zone": "b"}}, id="another-selector"),
    ],
)
def test_a_node_that_takes_no_such_pod(changed: dict[str, Any], spec: dict[str, Any]) -> None:
    usual = node("a")
    assert takes(usual, pod_spec())
    assert not takes({**usual, **changed}, {**pod_spec(), **spec})


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", [H100], True),
        ("In", [H200], False),
        ("NotIn", [H100], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["3"], False),
        ("Sometimes", [], False),
    ],
)
def test_affinity_is_read_as_the_scheduler_reads_it(
    operator: str, values: list[str], fits: bool
) -> None:
    spec = pod_spec()
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expression = {"key": "nvidia.com/gpu.product", "operator": operator, "values": values}
    terms["nodeSelectorTerms"] = [{"matchExpressions": [expression]}]
    assert takes(node("a"), spec) is fits


def test_init_containers_take_turns_and_containers_add_up() -> None:
    def one(gpus: int) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": gpus}}}

    assert gpus_of({"containers": [one(2), one(1)], "initContainers": [one(2), one(2)]}) == 3
    assert gpus_of({"containers": [one(1)], "initContainers": [one(4)]}) == 4


def stock(fits: int, unknown: str | None = None) -> Stock:
    nodes = stock_of(pod_spec(2), [node("a", 2 * fits)], []).nodes if fits else ()
    return Stock(2, nodes, (), unknown)


def test_a_free_gpu_means_a_surge_and_no_capacity_lost() -> None:
    chosen = strategy(stock(1), replicas=1)
    assert (chosen.surge, chosen.unavailable, chosen.downtime) == (1, 0, False)


def test_gpus_that_others_are_about_to_take_are_not_free() -> None:
    assert strategy(stock(2), 2, spoken_for=2).surge == 0


def test_one_replica_without_a_free_gpu_is_downtime_and_says_so() -> None:
    chosen = strategy(stock(0), replicas=1)
    assert (chosen.surge, chosen.unavailable, chosen.downtime) == (0, 1, True)
    assert "DOWNTIME" in chosen.words


def test_several_replicas_without_a_free_gpu_lose_one_at_a_time() -> None:
    chosen = strategy(stock(0), replicas=3)
    assert (chosen.surge, chosen.unavailable, chosen.downtime) == (0, 1, False)
    assert "2 of 3 serve meanwhile" in chosen.words


def test_an_unknown_stock_takes_nothing_away_on_a_guess() -> None:
    assert strategy(stock(0, "may not list nodes"), replicas=1).unavailable == 0
    several = strategy(stock(0, "may not list nodes"), replicas=2)
    assert (several.surge, several.unavailable) == (0, 1)
    assert "may not list nodes" in several.words


def test_an_unknown_stock_shows_no_number() -> None:
    told = stock(0, "may not list nodes").to_json()
    assert (told["state"], told["gpus_free"], told["pods_that_fit"]) == ("unknown", None, None)
