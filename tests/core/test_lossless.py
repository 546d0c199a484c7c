from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from speccli.core.lossless import NEAR_TIE, Parting
from speccli.core.lossless import parting as found_in

KNOWN = "one two end"
TOP: list[Mapping[str, float]] = [
    {"one": -0.1},
    {" two": -0.2, " too": -0.3, " ten": -4.0},
    {" end": 0},
]
COMPLETIONS = {
    "text_offset": [40, 43, 47],
    "top_logprobs": TOP,
    "token_logprobs": [max(each.values()) for each in TOP],
}
CHAT = {
    "content": [
        {
            "token": max(each, key=lambda word: each[word]),
            "logprob": max(each.values()),
            "top_logprobs": [{"token": word, "logprob": value} for word, value in each.items()],
        }
        for each in TOP
    ]
}


@pytest.fixture(params=[COMPLETIONS, CHAT], ids=["completions", "chat"])
def told(request: pytest.FixtureRequest) -> Any:
    return request.param


def parting(text: str, told: Any) -> Parting:
    found = found_in(text, KNOWN, told)
    assert found is not None
    return found


def test_equal_texts_do_not_part(told: Any) -> None:
    assert found_in(KNOWN, KNOWN, told) is None


def test_a_near_tie_may_fall_either_way(told: Any) -> None:
    found = parting("one too far", told)
    assert (found.token, found.chosen, found.other) == (1, " two", " too")
    assert found.gap == pytest.approx(0.1)
    assert found.kind == "numeric"
    assert found.words == "parting first at token 1: ' too' for ' two', gap 0.10 nats"


def test_a_clear_choice_may_not(told: Any) -> None:
    found = parting("one ten", told)
    assert found.gap == pytest.approx(3.8)
    assert found.kind == "wrong"


def test_a_choice_that_is_no_candidate_was_further_than_the_last_of_them(told: Any) -> None:
    found = parting("one xyz", told)
    assert found.at_least
    assert found.gap == pytest.approx(3.8)
    assert "gap >3.80" in found.words


ENDS = {
    "text_offset": [0, 4],
    "top_logprobs": [{"2018": -0.1}, {" ": -1.0, "\n": -1.4, "\n\n": -2.6}],
    "token_logprobs": [-0.1, -1.0],
}
"""Seen of a 135M model: two candidates that a text may begin with, one a near tie."""


def test_of_candidates_that_begin_alike_it_chose_the_likeliest() -> None:
    found = found_in("2018\n\nThe", "2018 ", ENDS)
    assert found is not None
    assert (found.other, found.kind) == ("\n", "numeric")
    assert found.gap == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("offsets", "other", "gap"),
    [([0, 4, 5, 6], "\n", 0.4), ([0, 4, 6], "\n\n", 1.6), ([7, 11, 13], "\n\n", 1.6)],
)
def test_its_own_tokens_tell_which_it_chose(offsets: list[int], other: str, gap: float) -> None:
    found = found_in("2018\n\nThe", "2018 ", ENDS, {"text_offset": offsets})
    assert found is not None
    assert (found.token, found.other) == (1, other)
    assert found.gap == pytest.approx(gap)


def test_an_own_token_that_is_no_candidate_is_none_that_it_begins_with() -> None:
    found = found_in("2018\n\n\nThe", "2018 ", ENDS, {"text_offset": [0, 4, 7]})
    assert found is not None
    assert found.at_least
    assert found.gap == pytest.approx(1.6)


def test_an_answer_that_ended_is_held_against_the_second_choice(told: Any) -> None:
    assert parting("one", told).gap == pytest.approx(0.1)


@pytest.mark.parametrize("nothing", [None, {}, {"content": None}, {"text_offset": "x"}, []])
def test_without_log_probabilities_the_gap_is_unknown(nothing: Any) -> None:
    found = parting("one ten", nothing)
    assert found.gap is None
    assert found.kind == "unknown"
    assert found.words == "parting first at character 5: 'en' for 'wo end', gap unknown"


def test_offsets_beyond_the_text_are_not_believed() -> None:
    assert parting("one ten", {"text_offset": [0, 3, 70]}).kind == "unknown"


@pytest.mark.parametrize(("gap", "kind"), [(NEAR_TIE, "numeric"), (NEAR_TIE + 0.01, "wrong")])
def test_the_limit_lies_at_a_near_tie(gap: float, kind: str) -> None:
    assert Parting(0, "a", "b", gap).kind == kind
