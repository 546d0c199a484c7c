"""What an engine would accept, on rows of right and wrong."""

import numpy as np
import pytest

from draft_training import walk


def right(*rows: str) -> walk.Right:
    """Rows of x (right) and . (wrong): step k for each token."""
    return np.array([[c == "x" for c in row] for row in rows])


def test_a_step_ends_at_the_first_draft_that_is_wrong_and_the_target_adds_one() -> None:
    # Begun at 0: tokens 0 and 1 are right, 2 is not: three tokens. Begun at 3: wrong at once.
    # Begun at 4: token 4 is right, and there is no token 5.
    made = right("xx..x", "xxx.x", "xx.xx")
    assert walk.steps(made, 3) == (3, [2, 1, 0])


def test_a_draft_counts_from_where_its_step_began() -> None:
    # Step 1 of a draft begun at 0 says token 1, so row 1 is read at column 1.
    assert walk.steps(right("x.", ".x"), 2) == (1, [1, 1])
    assert walk.steps(right("x.", "x."), 2) == (1, [1, 0])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_head_that_is_always_right_takes_every_draft(k: int) -> None:
    begun, taken = walk.steps(np.ones((3, 12), bool), k)
    assert (begun, taken) == (12 // (k + 1), [12 // (k + 1)] * k)


def test_a_head_that_is_never_right_costs_a_step_a_token() -> None:
    assert walk.steps(np.zeros((3, 7), bool), 3) == (7, [0, 0, 0])


def test_the_rate_is_accepted_over_drafted_and_answers_add_up() -> None:
    told = walk.summary([right("xx..x", "xxx.x", "xx.xx"), np.zeros((3, 7), bool)], 3)
    assert told["steps"] == 10
    assert told["rate"] == pytest.approx(3 / 30)
    assert told["by_position"] == [0.2, 0.1, 0.0]
    assert told["tokens_per_step"][3] == 1.3
    assert set(told["tokens_per_step"]) == {1, 2, 3}


def test_k_is_at_most_what_was_unrolled_and_nothing_is_unknown() -> None:
    assert walk.summary([np.ones((2, 6), bool)], 5)["k"] == 2
    assert "unknown" in walk.summary([], 3)


def test_what_is_accepted_less_than_before_is_named() -> None:
    before = {"a": {"rate": 0.5}, "b": {"rate": 0.3}, "c": {"unknown": "no answer"}}
    after = {"a": {"rate": 0.4}, "b": {"rate": 0.31}, "c": {"rate": 0.1}, "d": {"rate": 0.1}}
    assert walk.worse(before, after) == {"a": "0.500 to 0.400"}
    assert walk.worse({}, after) == {}


def test_a_difference_that_says_nothing_is_not_told() -> None:
    assert walk.worse({"a": {"rate": 0.3502}}, {"a": {"rate": 0.3496}}) == {}
    assert walk.worse({"a": {"rate": 0.36}}, {"a": {"rate": 0.345}}) == {"a": "0.360 to 0.345"}
