from __future__ import annotations

from dataclasses import replace
from typing import Any

from speccli.core.bench.results import Client, Result, RowClient
from speccli.core.report import words
from speccli.core.report.advice import advice
from speccli.core.values import Number
from tests.support.benches import PLAIN, Noise, Planted, bench, sweep
from tests.support.reports import report, whole

QUIET = Noise(run=0.004, prompt=0.03)
LATE = RowClient(3.0, 1.0, 0.03, saturated=True, reason="its timers fired 30 ms late")


def two(**speedups: float) -> Result:
    by_batch = {int(name[1:]): value for name, value in speedups.items()}
    arms = [PLAIN, Planted("eagle3", by_batch)]
    return bench(arms, batches=tuple(by_batch), prompts=40, noise=QUIET)


def test_the_answer_names_the_arm_the_batches_and_where_it_is_slower() -> None:
    told = words.answer(report(two(b1=1.9, b8=1.7, b128=0.8)))
    assert told.startswith("Yes, up to batch 8: eagle3 yields 1.9")
    assert "as many output tokens per second as no speculation at batch 1 and 1.7" in told
    assert "Turn it off at batch 128, the largest measured, where it is slower (0.80 [" in told
    assert told.endswith("], interpolated between 8 and 128.")


def test_the_largest_speed_up_is_of_any_dataset_that_passes() -> None:
    """Where one dataset cannot tell, the load as a whole does not pass; the other still does."""
    sets = ("sharegpt", "mtbench")
    quick, slow = (
        bench(
            [PLAIN, Planted("eagle3", {1: first, 8: 1.5})],
            batches=(1, 8), datasets=sets, prompts=40, noise=QUIET,
        )
        for first in (2.0, 1.0)
    )  # fmt: skip
    rows = [row for row in quick.rows if row.dataset == "sharegpt"]
    rows += [row for row in slow.rows if row.dataset == "mtbench"]
    made = report(replace(quick, rows=tuple(rows)))
    told = words.answer(made)
    assert told.startswith("Yes, at batch 8: eagle3 yields 1.")
    assert " Faster at batch 1 on 1 of 2 datasets (" in told
    assert told.endswith(" times; under 1.1 on mtbench).")
    (largest,) = (each for each in words.figures(made) if each.name == "largest speed-up")
    assert 1.9 < float(largest.value.split()[0]) < 2.1
    assert "batch 1, sharegpt" in largest.note


def test_one_dataset_alone_is_not_left_out_where_no_load_passes_on_all() -> None:
    sets = ("sharegpt", "mtbench")
    quick, slow = (
        bench(
            [PLAIN, Planted("eagle3", {1: first})],
            batches=(1,), datasets=sets, prompts=40, noise=QUIET,
        )
        for first in (2.0, 0.9)
    )  # fmt: skip
    rows = [row for row in quick.rows if row.dataset == "sharegpt"]
    rows += [row for row in slow.rows if row.dataset == "mtbench"]
    told = words.answer(report(replace(quick, rows=tuple(rows))))
    assert told.startswith(
        "In part: eagle3 is over 1.1 times as fast as no speculation at batch 1 "
    )
    assert "on 1 of 2 datasets (" in told
    assert told.endswith(" times; under 1.1 on mtbench).")


def test_no_is_said_as_plainly() -> None:
    assert words.answer(report(two(b1=0.9, b8=0.8))) == (
        "No: no arm is 1.1 times as fast as no speculation."
    )


def test_not_shown_is_not_no() -> None:
    assert words.answer(report(two(b8=1.1))).startswith("Not shown: at no load is an arm certain")


def test_one_arm_alone_cannot_be_compared_and_the_report_goes_on() -> None:
    made = report(bench([PLAIN], batches=(8,), prompts=40, noise=QUIET))
    assert words.answer(made).startswith("Arms cannot be compared: there is no arm beside")
    assert made.waiting
    assert words.figures(made) == []


def test_actions_keep_to_what_was_measured() -> None:
    first, *others = words.actions(report(whole()))
    assert first.startswith("Serve with eagle3 while a server has 1 to 64 requests at once")
    assert any(
        "At batch 128, the largest measured, serve without a draft" in each for each in others
    )
    assert any(each.startswith("Measure again with more repeats") for each in others)


def test_a_hole_between_batches_is_not_papered_over() -> None:
    told = words.actions(report(two(b1=1.5, b8=1.0, b32=1.5)))
    assert told[0] == "Serve with eagle3 at batches 1 and 32."


def test_wrong_answers_come_before_everything() -> None:
    logprobs = {
        "text_offset": [0, 1],
        "token_logprobs": [-0.1, -0.2],
        "top_logprobs": [{"a": -0.1}, {" b": -0.2, " d": -5.0}],
    }
    texts: dict[str, dict[str, Any]] = {
        "none": {"s/1": {"text": "a b", "logprobs": logprobs}},
        "eagle3": {"s/1": {"text": "a d"}},
    }
    made = report(replace(two(b8=1.5), simulated=False, texts=texts))
    assert words.actions(made)[0].startswith("Do not ship yet: 1 greedy answers differ")


def test_what_makes_the_numbers_doubtful_comes_before_what_to_make_of_them() -> None:
    result = two(b8=1.5)
    client = Client(Number.known(0.1), True, "its timers fired 22 ms late")
    came = replace(result.provenance, client=client)
    held, unfinished, use = words.actions(report(replace(result, complete=False, provenance=came)))
    assert "its timers fired 22 ms late" in held
    assert "did not finish" in unfinished
    assert use == "Serve with eagle3 at batch 8."


def test_a_sweep_ends_in_a_schedule() -> None:
    curves = {3: {1: 1.9, 128: 0.77}, 1: {1: 1.5, 128: 0.9}}
    result = sweep(curves, batches=(1, 128), prompts=20, noise=QUIET)
    made = report(result)
    assert made.schedule is not None
    assert any(each.startswith("Let K fall with the batch") for each in words.actions(made))
    held = tuple(replace(r, client=LATE) if r.batch == 128 else r for r in result.rows)
    assert report(replace(result, rows=held)).schedule is None


def test_simulated_and_stand_in_are_badges() -> None:
    result = two(b8=1.5)
    assert str(words.badge(report(result))).startswith("SIMULATED")
    stood = replace(result, simulated=False, stand_in="SmolLM2 in the shape of an 8B")
    assert words.badge(report(stood)) == "STAND-IN: SmolLM2 in the shape of an 8B"
    assert words.badge(report(replace(result, simulated=False))) is None


def test_figures_are_of_the_best_arm() -> None:
    figures = {each.name: each for each in words.figures(report(whole()))}
    assert "eagle3, batch 1" in figures["largest speed-up"].note
    assert figures["slower than the baseline from"].value.startswith("~ ")
    assert figures["cost of 1M output tokens"].value.startswith("$0.0")
    assert figures["draft tokens accepted"].value == "46 %"
    assert "→" in figures["p99 of TPOT"].value


def test_under_the_target_is_not_slower_and_another_arm_may_pass() -> None:
    arms = [
        PLAIN,
        Planted("eagle3", {1: 1.9, 8: 1.7, 32: 1.05, 128: 1.05}),
        Planted("ngram", {1: 0.8, 8: 0.9, 32: 1.5, 128: 0.8}, "ngram", 4),
    ]
    told = words.actions(report(bench(arms, batches=(1, 8, 32, 128), prompts=40, noise=QUIET)))
    assert "At batch 32 serve with ngram: eagle3 does not pay there." in told
    assert any(each.startswith("At batch 128 eagle3 is under the target of 1.1") for each in told)
    assert not any("serve without" in each for each in told)


def noisy(result: Result, run: float, **speedups: float) -> Result:
    """The same with other batches, whose runs scatter."""
    by_batch = {int(name[1:]): value for name, value in speedups.items()}
    more = bench(
        [PLAIN, Planted("eagle3", by_batch)],
        batches=tuple(by_batch), prompts=40, noise=Noise(run=run, prompt=0.03),
    )  # fmt: skip
    return replace(result, rows=(*result.rows, *more.rows))


def test_a_load_counts_by_its_interval_alone_and_what_is_not_certain_is_said() -> None:
    """A reader must not take 1.25 among scattered runs for nothing, nor for certain."""
    made = report(noisy(two(b1=1.9), 0.08, b8=1.25, b64=1.02, b128=0.8))
    comparison = made.comparison
    assert comparison is not None
    told = advice(comparison, "eagle3")
    assert (told.certain, told.faster) == (((1, None),), ((1, None), (8, None)))
    assert (told.open, told.slower) == (((64, None),), ((128, None),))
    answer = words.answer(made)
    assert answer.startswith("Yes, up to batch 8: ")
    assert answer.endswith(
        "That it pays is certain among all 4 comparisons at batch 1, else by intervals taken alone."
    )
    assert words.split(answer)[0] == answer[: answer.index(" Turn it off")]
    assert "Turn it off at batch 128, the largest measured, where" in answer
    assert "; it turns at about 60 [" in answer
    assert "Not told at batch 64 (0.99 [" in answer
    assert any(
        "it is not told whether eagle3 is faster or slower" in x for x in words.actions(made)
    )


def test_slower_is_judged_against_none_and_not_against_the_target() -> None:
    """0.85 is certain to be under 1.1, and may be chance against 1."""
    made = report(noisy(two(b1=1.9, b8=1.7), 0.07, b64=0.92, b128=0.5))
    assert made.comparison is not None
    (at_64, at_128) = (made.comparison.of("eagle3", (each, None))[0] for each in (64, 128))
    assert (at_64.verdict.word, at_64.verdict.slower) == ("FAIL", False)
    assert at_64.verdict.reason.endswith(
        "is under 1.1, slower than the baseline by its interval alone"
    )
    assert (at_128.verdict.word, at_128.verdict.slower) == ("FAIL", True)
    assert "Turn it off from batch 64 on, where it is slower (0." in words.answer(made)
    assert ", at 64 by its interval alone); it turns at about" in words.answer(made)
    assert "Slower at 64 by its interval alone: not certain among all comparisons." in (
        words.actions(made)
    )
    assert not any("alone" in each for each in words.actions(report(two(b1=1.9, b8=0.7))))


def test_where_the_load_generator_was_held_up_nothing_is_advised() -> None:
    """A client that cannot keep up makes the faster arm look slow, at the very loads that count."""
    result = two(b1=1.9, b8=1.7, b64=0.8, b128=0.7)
    held = tuple(replace(r, client=LATE) if r.batch in {64, 128} else r for r in result.rows)
    made = report(replace(result, rows=held))
    assert made.comparison is not None
    told = advice(made.comparison, "eagle3")
    assert (told.slower, told.crossover) == ((), None)
    assert told.open == ((64, None), (128, None))
    answer = words.answer(made)
    assert "Turn it off" not in answer
    assert "turns at" not in answer
    assert answer.count("the load generator held up") == 2
    assert not any("serve without" in each for each in words.actions(made))
    assert "Turn it off" in words.answer(report(result))


def test_a_load_at_which_datasets_disagree_is_neither_faster_nor_slower() -> None:
    sets = ("sharegpt", "mtbench")
    quick, slow = (
        bench(
            [PLAIN, Planted("eagle3", {1: 1.8, 8: at_8})],
            batches=(1, 8), datasets=sets, prompts=40, noise=QUIET,
        )
        for at_8 in (1.5, 0.8)
    )  # fmt: skip
    rows = [row for row in quick.rows if row.dataset == "sharegpt" or row.batch == 1]
    rows += [row for row in slow.rows if row.dataset == "mtbench" and row.batch == 8]
    made = report(replace(quick, rows=tuple(rows)))
    assert made.comparison is not None
    told = advice(made.comparison, "eagle3")
    assert (told.faster, told.slower, told.open) == (((1, None),), (), ((8, None),))
    assert words.answer(made).startswith("Yes, at batch 1: ")
    assert "under 1.1 on mtbench" in words.answer(made)


def test_one_measurement_has_no_interval_and_tells_nothing() -> None:
    once = bench([PLAIN, Planted("eagle3", {8: 1.5})], batches=(8,), prompts=40, repeats=1)
    made = report(once)
    assert made.comparison is not None
    told = advice(made.comparison, "eagle3")
    assert (told.faster, told.slower, told.open) == ((), (), ((8, None),))
    assert words.answer(made).startswith("Not shown")


def test_every_other_arm_has_a_line_of_its_own() -> None:
    arms = [
        PLAIN,
        Planted("eagle3", {1: 1.9, 8: 1.7}),
        Planted("p-eagle", {1: 1.4, 8: 0.8}, "p-eagle", 3),
        Planted("ngram", {1: 0.8, 8: 0.9}, "ngram", 4),
    ]
    told = words.actions(report(bench(arms, batches=(1, 8), prompts=40, noise=QUIET)))
    lines = [each for each in told if each.startswith(("p-eagle:", "ngram:"))]
    assert lines[0].startswith("p-eagle: faster at batch 1 (1.")
    assert "slower at batch 8, the largest measured (0." in lines[0]
    assert lines[1].startswith("ngram: slower at every batch measured (0.")


def test_loads_of_fewer_datasets_are_told() -> None:
    wide = bench(
        [PLAIN, Planted("eagle3", {1: 1.9})],
        batches=(1,), datasets=("sharegpt", "mtbench"), prompts=40, noise=QUIET,
    )  # fmt: skip
    made = report(replace(wide, rows=(*wide.rows, *two(b8=1.7).rows)))
    assert "Measured: batch 8 on sharegpt alone, the others on 2 datasets." in words.actions(made)


def _turns(result: Result) -> words.Figure:
    (found,) = (
        each
        for each in words.figures(report(result))
        if each.name == "slower than the baseline from"
    )
    return found


def test_where_it_turns_is_of_the_set_that_was_measured_so_far() -> None:
    """Three sets that were measured to batch 32 say nothing of 97."""
    sets = ("sharegpt", "mtbench", "humaneval")
    result = bench(
        [PLAIN, Planted("eagle3", {1: 1.9, 32: 1.5, 128: 0.8})],
        batches=(1, 32, 128), datasets=sets, prompts=40, noise=QUIET,
    )  # fmt: skip
    rows = tuple(r for r in result.rows if r.dataset == "sharegpt" or r.batch != 128)
    assert _turns(replace(result, rows=rows)).note == (
        "batch, interpolated on sharegpt; not up to 32, the largest measured, on mtbench and "
        "humaneval"
    )
    assert "; from " in _turns(result).note


def test_where_it_turns_says_when_it_rests_on_what_cannot_be_told() -> None:
    noisy = Noise(run=0.05, prompt=0.03)
    arms = [PLAIN, Planted("eagle3", {1: 2.2, 32: 1.12, 128: 0.95})]
    unsure = bench(arms, batches=(1, 32, 128), prompts=40, noise=noisy)
    assert _turns(unsure).note == "batch, interpolated; batches 32 and 128 there are INCONCLUSIVE"
    assert _turns(two(b1=1.9, b8=1.7, b128=0.8)).note == "batch, interpolated"


def test_a_version_that_does_not_start_with_k_by_batch_is_said_where_it_is_advised() -> None:
    falling = {3: {1: 1.9, 8: 1.6, 32: 0.8}, 1: {1: 1.4, 8: 1.4, 32: 1.2}}
    result = sweep(falling, batches=(1, 8, 32), prompts=20, noise=QUIET)
    old = tuple(replace(a, engine={**a.engine, "version": "0.25.1"}) for a in result.arms)
    told = list(words.actions(report(replace(result, arms=old))))
    place = next(i for i, each in enumerate(told) if each.startswith("Let K fall"))
    assert told[place + 1].startswith("Not with what was measured: vLLM 0.25.1, V2 runner")
    assert "Of one K, 1 was fastest over these batches" in told[place + 1]
