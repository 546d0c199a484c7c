"""Is what is remembered of kernel checks enough to let traffic in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from speccli.core import kernels_gate
from speccli.core.kernels_gate import Kept, Wanted, fresh_pass

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DIGEST = "sha256:" + "ab" * 32
IMAGE = f"registry.example/engine@{DIGEST}"


def kept(**changes: Any) -> Kept:
    usual = Kept(
        at=(NOW - timedelta(hours=1)).isoformat(), exit=0, whole=True, shared=False, image=IMAGE,
        image_digest=DIGEST, driver="580.1", gpu="NVIDIA H200", gpu_uuid="GPU-1", node="a",
        versions={"vllm": "0.25.1"}, seed=1, seconds=80.0, counts={"passed": 57}, findings=(),
    )  # fmt: skip
    return replace(usual, **changes)


def test_a_fresh_pass_of_the_image_is_enough() -> None:
    answer = fresh_pass([kept()], Wanted(IMAGE, driver="580.1", gpu_uuids={"GPU-1"}), NOW)
    assert answer.ok
    assert answer.passes == (kept(),)


@pytest.mark.parametrize(
    ("one", "wanted", "why"),
    [
        pytest.param(None, Wanted(IMAGE), "never checked", id="nothing-is-remembered"),
        pytest.param(kept(exit=1), Wanted(IMAGE), None, id="a-warning-is-a-pass"),
        pytest.param(
            kept(exit=2, findings=({"code": "KERNEL_WRONG"},)), Wanted(IMAGE), "KERNEL_WRONG",
            id="a-failure-is-none",
        ),
        pytest.param(kept(exit=3), Wanted(IMAGE), "nothing could be looked at", id="nor-unknown"),
        pytest.param(kept(whole=False), Wanted(IMAGE), "only some checks", id="nor-some-checks"),
        pytest.param(
            kept(), Wanted(IMAGE, driver="590.2"), "driver 580.1, now it is 590.2", id="driver"
        ),
        pytest.param(kept(), Wanted(IMAGE, gpu_uuids={"GPU-2"}), "not among", id="another-gpu"),
        pytest.param(
            kept(), Wanted("registry.example/engine@sha256:" + "cd" * 32), "never checked here",
            id="another-digest",
        ),
        pytest.param(
            kept(image="registry.example/engine:1"), Wanted(IMAGE), None,
            id="by-digest-whatever-the-tag",
        ),
        pytest.param(
            kept(image="engine:1"), Wanted("engine:1"), None, id="without-a-digest-by-spelling"
        ),
        pytest.param(kept(image="engine:1"), Wanted("engine:2"), "never", id="another-tag"),
        pytest.param(
            kept(at=(NOW - timedelta(days=9)).isoformat()), Wanted(IMAGE), "9 days ago", id="old"
        ),
        pytest.param(
            kept(at=(NOW + timedelta(days=1)).isoformat()), Wanted(IMAGE), "clock", id="future"
        ),
    ],
)  # fmt: skip
def test_what_counts_and_why_not(one: Kept | None, wanted: Wanted, why: str | None) -> None:
    answer = fresh_pass([one] if one else [], wanted, NOW)
    if why is None:
        assert answer.ok, answer.lacks
    else:
        assert not answer.ok
        assert why in answer.lacks[0]


def test_each_node_that_is_named_needs_a_pass_of_its_own() -> None:
    results = [kept(), kept(node="b", gpu_uuid="GPU-2", exit=2), kept(node="c", gpu_uuid="GPU-3")]
    answer = fresh_pass(results, Wanted(IMAGE, nodes={"a", "b", "d"}), NOW)
    assert [line.split(":")[0] for line in answer.lacks] == ["b", "d"]
    assert [one.node for one in answer.passes] == ["a"]


def test_a_newer_failure_does_not_hide_behind_an_older_pass_of_another_gpu() -> None:
    """Each node that is named is judged by itself; where none is, one pass is enough."""
    results = [kept(), kept(gpu_uuid="GPU-2", node="b", exit=2, at=NOW.isoformat())]
    assert fresh_pass(results, Wanted(IMAGE), NOW).ok
    assert not fresh_pass(results, Wanted(IMAGE, nodes={"a", "b"}), NOW).ok


def test_a_gpu_that_is_known_to_be_wrong_keeps_its_node_out() -> None:
    """Pods may be given it, whatever another GPU of the node passed, and when."""
    wrong = kept(gpu_uuid="GPU-2", exit=2, findings=({"code": "KERNEL_WRONG"},))
    here = Wanted(IMAGE, nodes={"a"}, drivers={"a": "580.1"})
    for at in (NOW - timedelta(hours=150), NOW):
        answer = fresh_pass([kept(at=at.isoformat()), wrong], here, NOW)
        assert len(answer.lacks) == 1
        assert "a: they failed on GPU-2: KERNEL_WRONG" in answer.lacks[0]
    later = replace(wrong, exit=0, at=NOW.isoformat())
    assert fresh_pass([kept(), wrong, later], here, NOW).ok, "it passed since"
    for other in ({"driver": "570.1"}, {"image": "x", "image_digest": "sha256:0"}, {"exit": 3}):
        assert fresh_pass([kept(), replace(wrong, **other)], here, NOW).ok, other


def test_results_of_two_images_are_kept_side_by_side(tmp_path: Path) -> None:
    other = kept(image="engine:2", image_digest="sha256:" + "cd" * 32, exit=2)
    for one in (kept(), other):
        kernels_gate.keep_here(tmp_path, one)
    assert fresh_pass(kernels_gate.kept_here(tmp_path), Wanted(IMAGE, nodes={"a"}), NOW).ok
    answer = fresh_pass(kernels_gate.kept_here(tmp_path), Wanted("engine:2", nodes={"a"}), NOW)
    assert not answer.ok


def test_it_is_written_down_and_read_back(tmp_path: Path) -> None:
    one = kept(findings=({"code": "KERNEL_SLOW", "severity": "warning"},), exit=1)
    assert kernels_gate.from_text(kernels_gate.to_text(one)) == one
    kernels_gate.keep_here(tmp_path, one)
    kernels_gate.keep_here(tmp_path, replace(one, exit=0))
    assert [found.exit for found in kernels_gate.kept_here(tmp_path)] == [0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "specctl.kernels-result/v9"}', "x"])
def test_what_is_something_else_is_passed_over(text: str) -> None:
    assert kernels_gate.from_text(text) is None


def test_a_run_without_a_gpus_name_is_kept_by_its_node() -> None:
    document = {
        "at": NOW.isoformat(), "exit": 1, "seed": 3, "seconds": 2.0, "whole": True,
        "shared": True, "environment": {"node": "a", "image": IMAGE, "versions": {}},
        "checks": [{"status": "broken"}, {"status": "broken"}], "findings": [],
    }  # fmt: skip
    one = kernels_gate.kept_of(document)
    assert (one.counts, one.gpu_uuid, one.shared) == ({"broken": 2}, None, True)
