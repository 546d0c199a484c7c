from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from speccli.core.baseline import Key
from speccli.core.baseline.from_bench import of_bench, speeds
from speccli.core.baseline.imported import plain_speed, read_any
from speccli.core.baseline.model import dumps, loads
from speccli.core.bench.form import write
from speccli.core.bench.results import Acceptance, Result
from speccli.core.errors import UsageError
from tests.support.benches import PLAIN, RATES, Noise, Planted, bench

QUIET = Noise(run=0.001, drift=0.001, prompt=0.01, request=0.01)


def result() -> Result:
    arms = [PLAIN, Planted("eagle3", {1: 1.9, 8: 1.7})]
    made = bench(
        arms, batches=(1, 8), datasets=("sharegpt", "mtbench"), prompts=40, noise=QUIET, repeats=2
    )
    return made


def test_an_arm_becomes_a_baseline_with_its_whole_key() -> None:
    made = of_bench(result(), None, "x", Key())
    assert made.rate == pytest.approx((0.65 + 0.43 + 0.31) / 3, rel=0.02)
    assert made.length == pytest.approx(2.39, rel=0.02)
    assert made.positions == pytest.approx((0.65, 0.43, 0.31), rel=0.05)
    assert made.key == Key(
        engine="vllm",
        version="0.32.0",
        runner="v2",
        target="simulated-8b",
        draft="simulated-eagle3",
        method="eagle3",
        k=3,
        sampling="temperature=0",
        dataset="sharegpt+mtbench",
    )
    assert made.simulated
    assert made.tolerance == 0.02
    assert (made.prompt_tokens, made.output_tokens) == (129, 128)


def test_what_stands_in_for_another_stays_so() -> None:
    made = of_bench(replace(result(), stand_in="135M in the shape of 8B"), None, "x", Key())
    again = loads(dumps(made), "x.json")
    assert again.stand_in == "135M in the shape of 8B"
    assert loads(dumps(of_bench(result(), None, "x", Key())), "x.json").stand_in is None


def test_one_dataset_is_taken_by_its_name() -> None:
    whole, one = (of_bench(result(), None, "x", Key(dataset=d)) for d in (None, "mtbench"))
    assert one.key.dataset == "mtbench"
    assert one.drafts == pytest.approx(whole.drafts / 2, rel=0.02)


def test_what_the_operator_tells_lies_over_the_file() -> None:
    assert of_bench(result(), None, "x", Key(draft_revision="abc")).key.draft_revision == "abc"


def test_speed_by_batch_comes_with_the_arm_it_has_to_beat() -> None:
    made = of_bench(result(), None, "x", Key())
    assert [row.batch for row in made.speed] == [1, 8]
    assert made.plain[1].output_tokens_per_s == pytest.approx(RATES[8], rel=0.02)
    assert made.speed[1].output_tokens_per_s == pytest.approx(1.7 * RATES[8], rel=0.02)
    assert made.plain == speeds(result(), "none")


def test_varying_draft_lengths_have_no_positions() -> None:
    made = result()
    rows = tuple(
        replace(
            row,
            acceptance=replace(
                row.acceptance, draft_tokens=(row.acceptance.draft_tokens or 0) // 2
            ),
        )
        for row in made.rows
    )
    assert of_bench(replace(made, rows=rows), "eagle3", "x", Key()).positions == ()


def test_several_arms_have_to_be_told_apart() -> None:
    three = bench([PLAIN, Planted("a", {}), Planted("b", {})], batches=(8,), prompts=5)
    with pytest.raises(UsageError, match="several arms have acceptance") as caught:
        of_bench(three, None, "x", Key())
    assert caught.value.hint == "--arm, one of a, b"
    assert of_bench(three, "b", "x", Key()).key.draft == "simulated-b"
    with pytest.raises(UsageError, match="no arm c"):
        of_bench(three, "c", "x", Key())


def test_an_arm_without_acceptance_is_no_baseline() -> None:
    made = result()
    bare = replace(
        made,
        rows=tuple(replace(r, acceptance=Acceptance.unknown("no /metrics")) for r in made.rows),
    )
    with pytest.raises(UsageError, match="no arm has acceptance"):
        of_bench(bare, None, "x", Key())
    with pytest.raises(UsageError, match="no row of arm none"):
        of_bench(made, "none", "x", Key())


def test_files_are_known_by_their_schema(tmp_path: Path) -> None:
    path = tmp_path / "bench-1.json"
    write(path, result())
    assert read_any(path, None, Key()).name == "bench-1"
    assert plain_speed(path) == speeds(result(), "none")
