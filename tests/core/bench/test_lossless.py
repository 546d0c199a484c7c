from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.bench.lossless import Share, lossless
from speccli.core.bench.results import Result
from tests.support.benches import PLAIN, Planted, bench

TOP = [{"a": -0.1}, {" b": -0.2, " c": -0.3, " d": -5.0}]
LOGPROBS = {
    "text_offset": [0, 1],
    "token_logprobs": [-0.1, -0.2],
    "top_logprobs": TOP,
}


def greedy(texts: Mapping[str, Mapping[str, Any]] | None = None, **options: Any) -> Result:
    made = bench([PLAIN, Planted("eagle3", {})], prompts=4, repeats=2, **options)
    return replace(made, simulated=False, texts=texts)


def with_shas(result: Result, arm: str, repeat: int, shas: tuple[str, ...]) -> Result:
    rows = tuple(
        replace(row, samples=replace(row.samples, text_sha=shas))
        if (row.arm, row.repeat) == (arm, repeat)
        else row
        for row in result.rows
    )
    return replace(result, rows=rows)


def test_answers_are_counted_beside_the_baseline_and_beside_themselves() -> None:
    result = greedy(batches=(8,))
    mixed = with_shas(result, "eagle3", 1, ("x", *result.rows[0].samples.text_sha[1:]))
    found = lossless(mixed)
    assert (found.baseline_itself.same, found.baseline_itself.pairs) == (4, 4)
    (arm,) = found.arms
    assert (arm.beside.same, arm.beside.pairs) == (7, 8)
    assert arm.beside.differing == pytest.approx(1 / 8)
    assert (arm.itself.same, arm.itself.pairs) == (3, 4)
    assert arm.texts is None


def test_where_a_text_is_missing_nothing_parts_and_nothing_is_the_same() -> None:
    texts: dict[str, dict[str, Any]] = {
        "none": {"s/1": {"text": None}, "s/2": {"text": "a"}, "s/3": {"text": "a"}},
        "eagle3": {"s/1": {"text": None}, "s/2": {"text": None}, "s/3": {"text": "a"}},
    }
    (arm,) = lossless(greedy(texts, batches=(8,))).arms
    assert arm.texts == Share(1, 1)
    assert arm.partings == ()


def test_partings_are_located_and_classed_the_worst_first() -> None:
    known = {"text": "a b", "logprobs": LOGPROBS}
    texts: dict[str, dict[str, Any]] = {
        "none": {"s/1": known, "s/2": known, "s/3": known, "s/4": {"text": "a b"}},
        "eagle3": {
            "s/1": {"text": "a b"},
            "s/2": {"text": "a c"},
            "s/3": {"text": "a d"},
            "s/4": {"text": "a e"},
        },
    }
    (arm,) = lossless(greedy(texts, batches=(8,))).arms
    assert arm.texts is not None
    assert (arm.texts.same, arm.texts.pairs) == (1, 4)
    assert [(each.prompt, each.parting.kind) for each in arm.partings] == [
        ("s/3", "wrong"),
        ("s/4", "unknown"),
        ("s/2", "numeric"),
    ]
    assert arm.partings[0].parting.token == 1
    assert arm.kinds == {"wrong": 1, "unknown": 1, "numeric": 1}


def test_what_the_baseline_itself_writes_when_asked_again_is_rounding() -> None:
    again = {"text": "a c", "logprobs": LOGPROBS}
    texts: dict[str, dict[str, Any]] = {
        "none": {"s/1": {"text": "a b", "asked": again}},
        "eagle3": {"s/1": {"text": "a c"}},
    }
    (arm,) = lossless(greedy(texts, batches=(8,))).arms
    (only,) = arm.partings
    assert only.parting.kind == "numeric"
    assert only.parting.gap == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"simulated": True}, "simulated servers", id="simulated"),
        pytest.param({"temperature": 0.7}, "temperature 0.7", id="warm"),
        pytest.param({"temperature": None}, "does not tell at which", id="unknown"),
        pytest.param({"bare": True}, "no answers were kept", id="none-kept"),
    ],
)
def test_where_answers_cannot_be_compared_it_says_why(change: dict[str, Any], words: str) -> None:
    result = greedy(batches=(8,))
    if "temperature" in change:
        result = replace(
            result,
            provenance=replace(result.provenance, temperature=change["temperature"]),
        )
    if change.get("bare"):
        rows = tuple(replace(row, samples=replace(row.samples, text_sha=())) for row in result.rows)
        result = replace(result, rows=rows)
    if "simulated" in change:
        result = replace(result, simulated=True)
    found = lossless(result)
    assert found.arms == ()
    assert words in str(found.why_none)


def test_rows_that_are_not_usable_are_not_compared() -> None:
    result = greedy(batches=(8,))
    rows = tuple(
        replace(row, state="contaminated") if row.arm == "eagle3" and row.repeat else row
        for row in result.rows
    )
    (arm,) = lossless(replace(result, rows=rows)).arms
    assert arm.beside.pairs == 4
    assert arm.itself.pairs == 0
    assert arm.itself.differing is None


def at_both_loads(result: Result, arm: str, shas: Mapping[int, tuple[str, ...]]) -> Result:
    rows = tuple(
        replace(row, samples=replace(row.samples, text_sha=shas[row.batch or 0]))
        if row.arm == arm
        else row
        for row in result.rows
    )
    return replace(result, rows=rows)


def of_two_loads(texts: Mapping[str, Mapping[str, Any]]) -> Result:
    """One prompt, whose answers differ at batch 1 alone."""
    made = bench([PLAIN, Planted("eagle3", {})], prompts=1, repeats=1, batches=(8, 1))
    result = replace(made, simulated=False, texts=texts)
    result = at_both_loads(result, "none", {8: ("as",), 1: ("other",)})
    return at_both_loads(result, "eagle3", {8: ("as",), 1: ("third",)})


def elsewhere(text: str) -> list[dict[str, Any]]:
    return [{"batch": 1, "rate": None, "repeat": 0, "text": text}]


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        pytest.param("one three", "unknown", id="nobody-told-log-probabilities"),
        pytest.param("one", "numeric", id="what-the-baseline-writes-at-another-load"),
    ],
)
def test_answers_that_part_at_another_load_are_located_there(ours: str, kind: str) -> None:
    name = "sharegpt/sharegpt-0"
    found = lossless(
        of_two_loads(
            {
                "none": {name: {"text": "one", "others": elsewhere("one two")}},
                "eagle3": {
                    name: {"text": "one", "others": elsewhere(ours) if ours != "one" else []}
                },
            }
        )
    )
    (arm,) = found.arms
    assert (arm.beside.same, arm.beside.pairs, arm.unlocated) == (1, 2, 0)
    ((where, parting),) = [(each.prompt, each.parting) for each in arm.partings]
    assert (where, parting.kind) == (name, kind)
    assert parting.token == (5 if kind == "unknown" else 3)
    assert found.told == (kind == "numeric")


@pytest.mark.parametrize("kept", [True, False])
def test_answers_that_differ_where_no_text_was_kept_are_counted(kept: bool) -> None:
    name = {"sharegpt/sharegpt-0": {"text": "one"}}
    found = lossless(of_two_loads({"none": name, "eagle3": name} if kept else {}))
    (arm,) = found.arms
    assert arm.unlocated == 1
    assert arm.partings == ()
    assert not found.told
