"""Which decode batches have a graph: cases from the threads, by version.

tests/e2e/test_vllm_parser.py compares every batch with vLLM 0.32's own code.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.engines.vllm_graphs import Rules, rules
from speccli.core.sizing import cudagraphs


def of(version: tuple[int, ...], **changes: object) -> Rules:
    asked = {
        "method": "eagle3",
        "parallel": False,
        "architecture": "LlamaForCausalLM",
        "moe": False,
        "quantized": False,
        "scheduled": False,
    } | changes
    found = rules(version, **asked)  # type: ignore[arg-type]
    assert found is not None
    return found


def captured(
    version: tuple[int, ...],
    k: int,
    seqs: int,
    explicit: list[int] | None = None,
    **changes: object,
) -> cudagraphs.Captured:
    return cudagraphs.captured(
        of(version, **changes),
        k=k,
        max_num_seqs=seqs,
        max_num_batched_tokens=8192,
        explicit=explicit,
    )


def test_the_widest_batches_run_eager_where_the_default_ends_at_512_tokens() -> None:
    """PR #50488: 32 requests with K = 16 need 544 tokens."""
    graphs = captured((0, 32, 0), 16, 32)
    assert graphs.row(32) == cudagraphs.Row(32, 544, None, "eager")
    eager, _ = cudagraphs.uncovered(graphs, 32)
    assert eager == [31, 32]
    flag = cudagraphs.covering(16, 32)
    assert 544 in flag
    assert cudagraphs.uncovered(captured((0, 32, 0), 16, 32, flag), 32) == ([], [])


def test_an_explicit_42_is_kept_by_the_v2_runner_for_six_requests_of_seven_tokens() -> None:
    """#54933: truncated to 40, six requests with K = 6 ran eager; as a list 42 stays."""
    assert captured((0, 32, 0), 6, 6, [7, 14, 28, 42]).row(6).mode == "full"
    assert captured((0, 28, 0), 6, 6, [8, 16, 24, 32, 40]).row(6).mode in {"eager", "piecewise"}


def test_between_0_25_and_0_28_a_width_that_does_not_divide_the_ladder_falls_off_it() -> None:
    """PR #53407: the nearest size decides, whether or not it is a multiple of K + 1."""
    old, new = captured((0, 28, 0), 4, 64), captured((0, 29, 0), 4, 64)
    _, piecewise = cudagraphs.uncovered(old, 64)
    assert len(piecewise) > 16
    assert cudagraphs.uncovered(new, 64) == ([], [])


def test_the_v1_runner_rounds_the_sizes_to_multiples_and_pads() -> None:
    graphs = captured((0, 32, 0), 4, 64, parallel=True)
    assert all(size % 5 == 0 for size in graphs.sizes)
    assert {graphs.row(batch).mode for batch in range(1, 65)} <= {"full", "padded"}


def test_k_by_batch_size_on_the_v1_runner_is_piecewise_only() -> None:
    made = of((0, 32, 0), parallel=True, scheduled=True)
    graphs = cudagraphs.captured(made, k=4, max_num_seqs=64, max_num_batched_tokens=8192)
    assert graphs.row(8).mode == "piecewise"


def test_without_graphs_everything_is_eager() -> None:
    graphs = cudagraphs.captured(
        of((0, 32, 0)), k=3, max_num_seqs=8, max_num_batched_tokens=8192, eager=True
    )
    assert [graphs.row(batch).mode for batch in (1, 8)] == ["eager", "eager"]


def test_gaps_and_the_tail_of_a_schedule_carry_the_k_before() -> None:
    assert cudagraphs.dense([(1, 2, 5), (5, 6, 1)], 4, 8) == [4, 4, 4, 4, 1, 1, 1, 1]


@pytest.mark.parametrize("version", [(0, 16, 0), (0, 24, 0), (0, 28, 0), (0, 29, 0), (0, 33, 0)])
@given(k=st.integers(0, 16), seqs=st.integers(1, 300))
def test_a_graph_always_holds_its_batch(version: tuple[int, ...], k: int, seqs: int) -> None:
    graphs = captured(version, k, seqs)
    for row in cudagraphs.table(graphs, seqs):
        assert row.tokens == row.batch * (k + 1)
        assert row.captured is None or row.captured >= row.tokens
        assert (row.mode == "eager") == (row.captured is None)
        assert row.mode != "full" or row.captured == row.tokens


@given(k=st.integers(0, 12), seqs=st.integers(1, 200))
def test_the_flag_covers_every_batch(k: int, seqs: int) -> None:
    flag = cudagraphs.covering(k, seqs)
    for changes in ({}, {"parallel": True}):
        graphs = captured((0, 32, 0), k, seqs, flag, **changes)
        assert cudagraphs.uncovered(graphs, seqs) == ([], [])
