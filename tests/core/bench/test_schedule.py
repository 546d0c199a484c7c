from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.bench.results import Result
from speccli.core.bench.schedule import schedule
from speccli.core.engines.vllm_speculative import schedule_problems
from speccli.core.errors import UsageError
from speccli.core.values import Number
from speccli.tables.bench import config_lines
from tests.support.benches import PLAIN, Noise, Planted, bench, sweep

QUIET = Noise(run=0.002, drift=0.01, prompt=0.02, request=0.01)
FALLING = {
    5: {1: 2.2, 8: 2.0, 32: 1.3, 64: 0.95, 128: 0.6},
    3: {1: 1.9, 8: 1.75, 32: 1.5, 64: 1.24, 128: 0.77},
    1: {1: 1.5, 8: 1.4, 32: 1.3, 64: 1.2, 128: 0.9},
}


def falling(**options: Any) -> Result:
    return sweep(FALLING, prompts=30, noise=QUIET, **options)


def test_k_falls_where_the_curves_cross() -> None:
    found = schedule(falling())
    assert [k for _, _, k in found.rows] == [5, 3, 0]
    (_, first, _), (start, second, _), (last, most, _) = found.rows
    assert (start, last, most) == (first + 1, second + 1, 128)
    assert 8 < first < 32, "between the batches where 5 and where 3 was faster"
    assert 64 < second < 128
    assert schedule_problems([list(row) for row in found.rows]) == []
    assert found.config() == {
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [list(row) for row in found.rows],
    }


def test_every_change_is_justified_by_what_was_measured_on_both_sides() -> None:
    found = schedule(falling())
    for change in found.changes:
        assert change.below <= change.last < change.above
        assert change.at_below.value is not None
        assert change.at_above.low is not None
        assert change.at_below.value < 1 < change.at_above.low
        around = dict(found.lookup)
        before, at, after = change.confirm
        assert (around[before], around[at], around[after]) == (
            change.larger,
            change.larger,
            change.smaller,
        )
    assert {m.batch: m.chosen for m in found.measured} == {1: 5, 8: 5, 32: 3, 64: 3, 128: 0}


@pytest.mark.parametrize(
    ("version", "method", "told"),
    [("0.25.1", "eagle3", True), ("0.32.0", "eagle3", False), ("0.25.1", "p-eagle", False)],
)
def test_a_version_that_does_not_start_with_it_is_told(
    version: str, method: str, told: bool
) -> None:
    result = falling()
    arms = tuple(
        replace(arm, engine={**arm.engine, "version": version}, method=method if arm.k else "none")
        for arm in result.arms
    )
    notes = schedule(replace(result, arms=arms)).notes
    said = [note for note in notes if "VLLM_USE_V2_MODEL_RUNNER=0" in note]
    assert bool(said) is told
    assert all("Of one K, 3 was fastest over these batches" in note for note in said)


def test_what_it_was_measured_on_is_said_first() -> None:
    assert schedule(replace(falling(), simulated=True)).notes[0].startswith("SIMULATED")
    stand_in = replace(falling(), simulated=False, stand_in="a small pair at an 8B model's cost")
    assert schedule(stand_in).notes[0] == "STAND-IN: a small pair at an 8B model's cost"


def test_a_gain_within_three_per_cent_is_no_reason_to_change() -> None:
    close = {3: {1: 1.5, 8: 1.49}, 1: {1: 1.4, 8: 1.505}}
    found = schedule(sweep(close, batches=(1, 8), prompts=30, noise=QUIET))
    assert found.rows == ((1, 8, 3),)
    assert not found.needed
    assert found.config() == {"num_speculative_tokens": 3}


def test_k_is_not_raised_again_and_that_is_said() -> None:
    odd = {5: {1: 1.5, 8: 1.0, 32: 1.5}, 3: {1: 1.4, 8: 1.4, 32: 1.4}}
    found = schedule(sweep(odd, batches=(1, 8, 32), prompts=30, noise=QUIET))
    assert [k for _, _, k in found.rows] == [5, 3]
    assert any("batch 32 K = 5 was 7 % faster than 3; K is not raised" in n for n in found.notes)


def test_a_k_that_trails_at_one_batch_alone_is_kept_for_what_it_earns_later() -> None:
    dips = {5: {1: 1.5, 8: 1.2, 32: 1.6}, 3: {1: 1.4, 8: 1.4, 32: 1.4}}
    found = schedule(sweep(dips, batches=(1, 8, 32), prompts=30, noise=QUIET))
    assert found.rows == ((1, 32, 5),)
    assert any("batch 8 K = 3 was 17 % faster than 5; K is not raised" in n for n in found.notes)


def test_the_k_to_begin_with_is_the_one_that_serves_all_batches() -> None:
    # An H200's 8B: at batch 1 they are nearly alike, and the larger ones cost dearly later.
    like = {
        6: {1: 1.71, 8: 1.64, 32: 1.26, 128: 0.73},
        4: {1: 1.76, 8: 1.69, 32: 1.32, 128: 0.85},
        3: {1: 1.75, 8: 1.78, 32: 1.54, 128: 0.91},
        1: {1: 1.48, 8: 1.46, 32: 1.37, 128: 1.07},
    }
    found = schedule(sweep(like, batches=(1, 8, 32, 128), prompts=30, noise=QUIET))
    assert [k for _, _, k in found.rows] == [3, 1]


def test_where_no_draft_pays_there_is_nothing_to_configure() -> None:
    slow = {3: {1: 0.8, 8: 0.7}, 1: {1: 0.9, 8: 0.8}}
    found = schedule(sweep(slow, batches=(1, 8), prompts=30, noise=QUIET))
    assert found.rows == ((1, 8, 0),)
    assert found.config() is None


def test_the_last_range_reaches_max_num_seqs() -> None:
    assert schedule(falling(), max_num_seqs=256).rows[-1][1] == 256


def test_without_a_baseline_no_draft_is_no_choice() -> None:
    arms = falling()
    alone = replace(
        arms,
        arms=tuple(a for a in arms.arms if a.k),
        rows=tuple(r for r in arms.rows if r.arm != "none"),
    )
    found = schedule(alone)
    assert 0 not in {k for _, _, k in found.rows}
    assert any("no baseline" in note for note in found.notes)


@pytest.mark.parametrize(
    "command",
    [
        ("vllm", "serve", "m", "--data-parallel-size", "2"),
        ("vllm", "serve", "m", "--data-parallel-size=2"),
        ("vllm", "serve", "m", "-dp", "2"),
    ],
)
def test_data_parallel_is_refused(command: tuple[str, ...]) -> None:
    result = falling()
    parallel = replace(result, arms=tuple(replace(a, command=command) for a in result.arms))
    with pytest.raises(UsageError, match="data parallel 2: vLLM ignores"):
        schedule(parallel)
    with pytest.raises(UsageError, match="data parallel 4"):
        schedule(result, data_parallel=4)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"kind": "vllm", "version": "0.23.1"}, "0.23.1: K by batch size needs 0.24.0"),
        ({"kind": "sglang", "version": "0.5.23"}, "only vLLM"),
    ],
)
def test_engines_without_schedules_are_refused(engine: dict[str, str], words: str) -> None:
    result = falling()
    old = replace(result, arms=tuple(replace(a, engine=engine) for a in result.arms))
    with pytest.raises(UsageError, match=words):
        schedule(old)


def test_what_is_no_sweep_says_so() -> None:
    plain = bench([PLAIN], batches=(1, 8), prompts=5)
    with pytest.raises(UsageError, match="no arm tells its K"):
        schedule(plain)
    two = bench([PLAIN, Planted("a", {}), Planted("b", {}, "ngram", 4)], batches=(1,), prompts=5)
    with pytest.raises(UsageError, match="several drafts"):
        schedule(two)
    with pytest.raises(UsageError, match="two batches"):
        schedule(two, method="ngram")
    alike = bench([PLAIN, Planted("a", {}), Planted("b", {})], batches=(1, 8), prompts=5)
    same = replace(alike, arms=tuple(replace(a, draft="head") for a in alike.arms))
    with pytest.raises(UsageError, match="both have K = 3"):
        schedule(same)


def test_a_tie_at_the_smallest_batch_does_not_hide_the_k_that_leads() -> None:
    tied = {3: {1: 0.995, 8: 1.7, 32: 1.4}}
    found = schedule(sweep(tied, batches=(1, 8, 32), prompts=30, noise=QUIET))
    assert found.rows == ((1, 32, 3),)
    behind = {3: {1: 0.8, 8: 1.7, 32: 0.7}}
    found = schedule(sweep(behind, batches=(1, 8, 32), prompts=30, noise=QUIET))
    assert [k for _, _, k in found.rows] == [3, 0]
    assert any("at batch 1 K = 0 was 2" in note for note in found.notes)


def test_k_changes_only_where_that_is_likely_better() -> None:
    once = schedule(falling(repeats=1))
    assert not once.needed
    assert any("measured once: K is not changed" in note for note in once.notes)
    told = schedule(_noisy(run=0.1, seed=1))
    assert not told.needed
    (note,) = (note for note in told.notes if "is not changed there" in note)
    ((low, high),) = re.findall(r"its interval (-?\d+) % to (-?\d+) %:", note)
    assert int(low) < 0 < int(high)


def test_a_change_that_is_likely_and_not_sure_is_made_and_said() -> None:
    told = schedule(_noisy(run=0.1, seed=4))
    assert [k for _, _, k in told.rows] == [3, 1]
    assert (told.changes[0].at_above.low or 0) < 1
    assert any("likely, not sure (more --repeats would tell)" in note for note in told.notes)


def _noisy(run: float, seed: int) -> Result:
    planted = {3: {1: 1.5, 8: 1.2}, 1: {1: 1.4, 8: 1.32}}
    noise = replace(QUIET, run=run)
    return sweep(planted, batches=(1, 8), prompts=30, noise=noise, seed=seed)


def test_ks_are_compared_on_what_all_of_them_have() -> None:
    result = sweep(
        {3: {1: 1.5, 8: 1.4}, 1: {1: 1.4, 8: 1.3}},
        batches=(1, 8),
        datasets=("sharegpt", "humaneval"),
        prompts=30,
        noise=QUIET,
    )
    # Without a draft one dataset is far off, and one K was never measured there.
    odd = replace(
        result,
        rows=tuple(
            replace(r, output_tokens_per_s=Number.known(9e5, n=1))
            if (r.arm, r.dataset) == ("none", "sharegpt")
            else r
            for r in result.rows
            if (r.arm, r.dataset) != ("eagle3-k1", "sharegpt")
        ),
    )
    assert schedule(odd).rows == ((1, 8, 3),)


CROSSING = {3: {1: 1.5, 8: 1.2}, 1: {1: 1.3, 8: 1.4}}


def _apart(*, baseline: bool) -> Result:
    """As of two files: K = 1 in the first two repeats alone, K = 3 in the others."""
    result = sweep(CROSSING, batches=(1, 8), prompts=20, repeats=4, noise=QUIET)
    kept = [r for r in result.rows if (r.repeat < 2) == (r.arm == "eagle3-k1") or r.arm == "none"]
    rows = tuple(r for r in kept if baseline or r.arm != "none")
    return replace(result, arms=tuple(a for a in result.arms if baseline or a.k), rows=rows)


def test_ks_that_share_no_repeat_are_compared_by_the_baseline_of_each() -> None:
    found = schedule(_apart(baseline=True))
    assert [k for _, _, k in found.rows] == [3, 1]
    (change,) = found.changes
    assert change.at_below.value == pytest.approx(1.3 / 1.5, rel=0.02)
    assert change.at_above.value == pytest.approx(1.4 / 1.2, rel=0.02)
    (whole,) = schedule(sweep(CROSSING, batches=(1, 8), prompts=20, noise=QUIET)).changes
    assert (change.at_above.low or 9) < (whole.at_above.low or 0), "the chance of two differences"


def test_ks_that_share_neither_a_repeat_nor_a_baseline_are_no_sweep() -> None:
    with pytest.raises(UsageError, match="needs two batches at which every K"):
        schedule(_apart(baseline=False))


def test_an_arm_that_has_k_by_batch_already_is_no_k_of_a_sweep() -> None:
    result = sweep(CROSSING, batches=(1, 8), prompts=20, noise=QUIET)
    arms = tuple(replace(a, k=5) if a.k == 3 else a for a in result.arms)
    other = replace(result, arms=arms)
    drafted = next(r for r in other.rows if r.arm == "eagle3-k3").acceptance
    assert (drafted.draft_tokens or 0) == 3 * (drafted.drafts or 0), "three a draft, said to be 5"
    with pytest.raises(UsageError, match="eagle3-k3 drafts 3.0 tokens at batch 1, not K = 5"):
        schedule(replace(other, arms=tuple(a for a in arms if a.name != "eagle3-k1")))
    found = schedule(other)
    assert set(found.arms) == {0, 1}
    assert any("it has K by batch, and is left out" in note for note in found.notes)


def test_a_batch_that_a_k_lacks_decides_nothing_and_is_named() -> None:
    whole = sweep(CROSSING, batches=(1, 8, 32), prompts=20, noise=QUIET)
    lacking = tuple(r for r in whole.rows if (r.arm, r.batch) != ("eagle3-k1", 32))
    found = schedule(replace(whole, rows=lacking))
    assert [m.batch for m in found.measured] == [1, 8]
    assert "batch 32 decides nothing: not measured of eagle3-k1" in found.notes
    bare = tuple(r for r in whole.rows if (r.arm, r.batch) != ("none", 8))
    told = schedule(replace(whole, rows=bare)).notes
    assert "batch 8 decides nothing: not measured of none" in told


def test_one_repeat_of_every_k_does_not_undo_those_of_two_files() -> None:
    apart = _apart(baseline=True)
    more = sweep(CROSSING, batches=(1, 8), prompts=20, repeats=5, noise=QUIET, seed=9)
    one = tuple(row for row in more.rows if row.repeat == 4)
    found = schedule(replace(apart, rows=apart.rows + one))
    assert [k for _, _, k in found.rows] == [3, 1]
    assert not any("measured once" in note for note in found.notes)


def test_a_fall_is_told_with_the_ratio_that_decided_it() -> None:
    """Also where one K lacks a repeat that the other has."""
    result = sweep(CROSSING, batches=(1, 8), prompts=20, repeats=3, noise=QUIET)
    rows = tuple(
        replace(r, output_tokens_per_s=Number.known((r.output_tokens_per_s.value or 0) * 2, n=1))
        if (r.arm, r.batch, r.repeat) == ("eagle3-k3", 8, 2)
        else r
        for r in result.rows
        if (r.arm, r.batch, r.repeat) != ("eagle3-k1", 8, 2)
    )
    found = schedule(replace(result, rows=rows))
    assert not found.needed or all((c.at_above.value or 0) > 1 for c in found.changes)


def test_files_of_several_machines_say_so() -> None:
    apart = _apart(baseline=True)
    order = "blocks: several files, measured one after the other; GPU H200 and L4"
    merged = replace(apart, provenance=replace(apart.provenance, order=order))
    assert any(note.startswith(order) for note in schedule(merged).notes)
    assert not any(note.startswith("blocks") for note in schedule(apart).notes)


def test_what_starts_with_the_version_that_was_measured_is_what_to_add_first() -> None:
    arms = falling().arms
    old = tuple(replace(a, engine={**a.engine, "version": "0.25.1"}) for a in arms)
    refused = schedule(replace(falling(), arms=old))
    line = json.dumps(refused.config(), separators=(",", ":"))
    one = '{"num_speculative_tokens":3}'
    assert config_lines(refused)[1:] == [one, "else:", line]
    assert (refused.alone, refused.refused is None) == (3, False)
    assert config_lines(schedule(falling())) == ["add to --speculative-config:", line]
