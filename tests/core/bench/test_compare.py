from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.bench.compare import Cell, Comparison, compare
from speccli.core.bench.results import Client, Result, Row, Structured
from speccli.core.errors import UsageError
from speccli.core.values import Number
from speccli.core.views.bench import doubts
from tests.support.benches import PLAIN, RATES, Noise, Planted, bench, without_samples

QUIET = Noise(run=0.006, prompt=0.05)


def changed(result: Result, wanted: Callable[[Row], bool], **change: Any) -> Result:
    rows = tuple(replace(row, **change) if wanted(row) else row for row in result.rows)
    return replace(result, rows=rows)


def only(result: Result, **options: Any) -> Cell:
    (cell,) = compare(result, **options).cells
    return cell


def eagle(speedup: float, batch: int = 8) -> Planted:
    return Planted("eagle3", {batch: speedup})


def test_a_planted_speedup_is_measured_and_passes() -> None:
    cell = only(bench([PLAIN, eagle(1.5)], batches=(8,), noise=QUIET))
    assert cell.verdict.word == "PASS"
    assert cell.speedup.value == pytest.approx(1.5, rel=0.03)
    assert cell.speedup.low is not None
    assert cell.speedup.high is not None
    assert cell.speedup.low < 1.5 < cell.speedup.high
    assert cell.measure == "output tokens/s"
    assert cell.tokens_per_s[0] == pytest.approx(RATES[8], rel=0.1)


def test_a_planted_five_per_cent_is_found() -> None:
    cell = only(bench([PLAIN, eagle(1.05)], batches=(8,), prompts=200, noise=QUIET), target=1.0)
    assert cell.verdict.word == "PASS"


def test_a_noisy_bench_is_inconclusive() -> None:
    noisy = Noise(run=0.2, drift=0.2)
    cell = only(bench([PLAIN, eagle(1.05)], batches=(8,), noise=noisy), target=1.0)
    assert cell.verdict.word == "INCONCLUSIVE"


def test_what_drifts_hits_both_arms_and_is_taken_out() -> None:
    drifting = Noise(run=0.006, drift=0.25, prompt=0.05)
    cell = only(bench([PLAIN, eagle(1.2)], batches=(8,), noise=drifting, repeats=4))
    assert cell.verdict.word == "PASS"


def test_tpot_ttft_and_their_p99_are_told_apart() -> None:
    result = bench([PLAIN, eagle(2.0)], batches=(8,), noise=QUIET)
    slow_start = changed(
        result,
        lambda row: row.arm == "eagle3",
        ttft_s=next(r.ttft_s for r in result.rows),
    )
    cell = only(slow_start)
    assert cell.tpot.value == pytest.approx(2.0, rel=0.1)
    assert cell.ttft.value == pytest.approx(1.0, rel=0.15)
    delta = cell.tpot_p99.delta
    assert delta.value is not None
    assert delta.low is not None
    assert delta.high is not None
    assert delta.low < delta.value < delta.high < 0
    assert cell.tpot_p99.without is not None
    assert cell.tpot_p99.with_ == pytest.approx(cell.tpot_p99.without + delta.value)


def test_a_p99_of_few_requests_is_unknown_and_says_so() -> None:
    cell = only(bench([PLAIN, eagle(1.5)], batches=(8,), prompts=20, noise=QUIET))
    assert cell.tpot_p99.delta.value is None
    assert cell.tpot_p99.delta.reason == "20 prompts: a p99 needs 100 that differ"


def test_an_open_loop_is_judged_by_tpot() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,), noise=QUIET)
    rows = tuple(
        replace(row, batch=None, rate=4.0, output_tokens_per_s=Number.known(512.0))
        for row in result.rows
    )
    cell = only(replace(result, rows=rows))
    assert cell.measure == "TPOT"
    assert cell.throughput.value == pytest.approx(1.0)
    assert cell.speedup.value == pytest.approx(1.5, rel=0.05)
    assert cell.verdict.word == "PASS"


def test_failed_and_contaminated_rows_are_out_and_named() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,), noise=QUIET)
    failed = changed(
        result,
        lambda r: (r.arm, r.repeat) == ("eagle3", 1),
        state="contaminated",
        reason="12 % foreign tokens",
        output_tokens_per_s=Number.known(9.0),
    )
    comparison = compare(failed)
    (cell,) = comparison.cells
    assert cell.repeats == 2
    assert cell.speedup.value == pytest.approx(1.5, rel=0.05)
    told = [(each.label, each.state, each.reason) for each in comparison.excluded]
    assert told == [
        ("eagle3, batch 8, sharegpt, repeat 2", "contaminated", "12 % foreign tokens"),
        (
            "none, batch 8, sharegpt, repeat 2",
            "alone",
            "the same repeat of the other arm has no numbers",
        ),
    ]


def test_a_row_that_lost_its_requests_is_not_judged_as_whole() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,), prompts=200, noise=QUIET)
    lost = changed(
        result,
        lambda r: (r.arm, r.repeat) == ("eagle3", 1),
        state="partial",
        reason="1800 of 2000 requests failed: HTTP 500",
        errors=1800,
    )
    comparison = compare(lost)
    assert comparison.cells[0].repeats == 2
    assert comparison.excluded[0].reason == "1800 of 2000 requests failed: HTTP 500"
    few = compare(changed(result, lambda r: r.repeat == 1, state="partial", errors=1))
    assert few.cells[0].repeats == 3
    assert any("2 rows lost requests, 0.5 % at the most" in note for note in few.notes)


def test_measured_once_is_inconclusive_however_large() -> None:
    cell = only(bench([PLAIN, eagle(3.0)], batches=(8,), repeats=1, noise=QUIET))
    assert cell.verdict.word == "INCONCLUSIVE"
    assert cell.speedup.value == pytest.approx(3.0, rel=0.1)
    assert cell.speedup.low is None


def test_a_load_with_one_repeat_left_takes_the_scatter_of_the_others() -> None:
    result = bench([PLAIN, eagle(1.5), Planted("ngram", {})], batches=(8, 32), noise=QUIET)
    cut = changed(
        result,
        lambda r: r.arm == "eagle3" and r.batch == 8 and r.repeat > 0,
        state="failed",
        reason="the server died",
    )
    comparison = compare(cut, arms=["eagle3"], batches=[8, 32])
    cell = comparison.of("eagle3", (8, None))[0]
    assert cell.repeats == 1
    assert any("1 of 2 comparisons were measured once" in note for note in comparison.notes)
    assert cell.speedup.low is not None
    assert cell.verdict.word == "PASS"


def test_without_single_requests_the_interval_is_of_these_prompts() -> None:
    cell = only(without_samples(bench([PLAIN, eagle(1.5)], batches=(8,), noise=QUIET)))
    assert cell.verdict.word == "PASS"
    assert cell.speedup.reason == "of these prompts only: single requests are not known"
    assert cell.tpot_p99.delta.reason == "single requests are not known"


def test_notes_say_what_the_numbers_are_not() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8, 32))
    told = replace(
        result,
        stand_in="SmolLM2 in the shape of an 8B",
        complete=False,
        provenance=replace(
            result.provenance,
            order="blocks: one server after the other",
            client=Client(Number.known(0.1), True, "the loop lagged 40 ms"),
        ),
    )
    notes = "\n".join(compare(told).notes)
    for word in ("SIMULATED", "STAND-IN", "did not finish", "not in turns", "the loop lagged"):
        assert word in notes
    assert "2 comparisons" in notes
    assert "Holm" in notes
    assert "fewer than three repeats" not in notes


def test_answers_held_to_a_schema_are_counted_by_arm() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,), prompts=20)
    held = changed(result, lambda row: True, structured=Structured(20, 18, 2))
    assert any("54 of 60 of eagle3 (6 cut off)" in note for note in compare(held).notes)
    assert not any("JSON" in note for note in compare(result).notes)


def test_two_repeats_are_said_to_be_few() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8, 32), repeats=2)
    assert any("fewer than three repeats" in note for note in compare(result).notes)


def test_traffic_that_nobody_could_tell_is_noted() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,), repeats=3)
    why = "counters show 3 of 400 tokens: several servers behind one address?"
    untold = changed(
        result, lambda row: row.arm == "none", contaminated=None, contaminated_reason=why
    )
    assert any(note.startswith("of 3 rows") and why in note for note in compare(untold).notes)
    assert not any("others' traffic" in note for note in compare(result).notes)


def test_an_interval_that_clears_the_target_and_does_not_pass_is_explained() -> None:
    found = [
        compare(bench([PLAIN, eagle(1.13, b)], batches=(1, 8, 32, 64, 128), seed=seed))
        for seed, b in enumerate((1, 8, 32, 64, 128) * 4)
    ]
    doubted = [(each, cell) for each in found for cell in each.doubted]
    assert doubted, "one of twenty benches near the target has such a cell"
    for comparison, cell in doubted:
        assert cell.verdict.word == "INCONCLUSIVE"
        assert any("taken alone" in words for words in doubts(comparison))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        pytest.param({"baseline": "nobody"}, "no arm nobody", id="baseline"),
        pytest.param({"arms": ["medusa"]}, "no arm medusa", id="arm"),
        pytest.param({"batches": [7]}, "no batch 7", id="batch"),
        pytest.param({"datasets": ["gsm8k"]}, "no dataset gsm8k", id="dataset"),
    ],
)
def test_names_that_are_not_there_are_usage_errors(options: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        compare(bench([PLAIN, eagle(1.5)], batches=(8,)), **options)
    assert caught.value.hint


def test_the_baseline_is_the_marked_one_or_the_one_without_a_method() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,))
    unmarked = replace(result, arms=tuple(replace(a, baseline=False) for a in result.arms))
    assert compare(unmarked).baseline == "none"
    nameless = replace(unmarked, arms=tuple(replace(a, method="eagle3") for a in unmarked.arms))
    with pytest.raises(UsageError, match="baseline is not told"):
        compare(nameless)
    assert compare(nameless, baseline="eagle3").arms == ["none"]


def test_nothing_in_common_says_what_failed() -> None:
    result = bench([PLAIN, eagle(1.5)], batches=(8,))
    dead = changed(result, lambda r: r.arm == "eagle3", state="failed", reason="exit code 1")
    with pytest.raises(UsageError, match="no load was measured") as caught:
        compare(dead)
    assert "exit code 1" in str(caught.value.hint)


def family(speedup: float, seeds: range, **options: Any) -> list[Comparison]:
    """Many benches of an arm that is so much faster at every batch."""
    planted = [PLAIN, Planted("eagle3", dict.fromkeys(RATES, speedup))]
    return [compare(bench(planted, seed=seed, **options), target=1.0) for seed in seeds]


def share(found: list[Comparison], word: str) -> float:
    """How many tables hold the word at least once."""
    return sum(any(c.verdict.word == word for c in each.cells) for each in found) / len(found)


def test_nothing_planted_is_seldom_found_in_few_benches() -> None:
    found = family(1.0, range(15), prompts=40, batches=(1, 8, 32))
    assert share(found, "PASS") <= 1 / 15
    assert share(found, "FAIL") <= 1 / 15


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(Noise(), id="usual"),
        pytest.param(Noise(run=0.03, prompt=0.02), id="runs-differ-by-more-than-requests"),
        pytest.param(Noise(run=0.002, prompt=0.2), id="prompts-differ-more-than-runs"),
    ],
)
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_nothing_planted_passes_in_at_most_one_bench_of_twenty(noise: Noise, repeats: int) -> None:
    found = family(1.0, range(100), prompts=40, noise=noise, repeats=repeats)
    assert share(found, "PASS") <= 0.05
    assert share(found, "FAIL") <= 0.05


@pytest.mark.slow
def test_a_planted_five_per_cent_passes_at_most_batches_of_most_benches() -> None:
    found = family(1.05, range(20), prompts=150, noise=QUIET)
    words = Counter(cell.verdict.word for each in found for cell in each.cells)
    assert words["PASS"] > 0.9 * words.total()
    assert words["FAIL"] == 0


@pytest.mark.slow
def test_the_interval_holds_what_was_planted_as_often_as_it_says() -> None:
    cells = [c for each in family(1.3, range(60), prompts=40) for c in each.cells]
    held = sum(c.speedup.low < 1.3 < c.speedup.high for c in cells)  # type: ignore[operator]
    assert 0.93 <= held / len(cells) <= 1.0
