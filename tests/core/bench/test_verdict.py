from __future__ import annotations

import math

import pytest

from speccli.core.bench.bootstrap import Contrast, Scatter
from speccli.core.bench.verdict import Word, exit_code, judge, worst
from speccli.core.errors import ExitCode


def contrast(speedup: float, sd: float = 0.01, repeats: int = 4, df: float = 12) -> Contrast:
    return Contrast(math.log(speedup), repeats, Scatter(sd**2, df), None, 0)


@pytest.mark.parametrize(
    ("speedup", "sd", "word"),
    [
        pytest.param(1.3, 0.01, "PASS", id="clear"),
        pytest.param(1.3, 0.3, "INCONCLUSIVE", id="noisy"),
        pytest.param(1.0, 0.01, "FAIL", id="as-slow-as-none"),
        pytest.param(1.105, 0.01, "INCONCLUSIVE", id="over-the-target-by-less-than-chance"),
        pytest.param(1.1, 0.0, "INCONCLUSIVE", id="just-the-target-is-not-over-it"),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(
    speedup: float, sd: float, word: Word
) -> None:
    (verdict,) = judge([contrast(speedup, sd)], 1.1)
    assert verdict.word == word


def test_slower_than_the_baseline_is_said() -> None:
    (verdict,) = judge([contrast(0.77)], 1.1)
    assert "slower than the baseline" in verdict.reason


def test_what_passes_alone_may_not_pass_among_many() -> None:
    lucky = contrast(1.115)
    assert judge([lucky], 1.1)[0].word == "PASS"
    among = judge([lucky, *[contrast(1.1, 0.02)] * 30], 1.1)
    assert among[0].word == "INCONCLUSIVE"
    assert "taken alone" in among[0].reason


def test_clear_ones_leave_the_whole_level_to_the_last() -> None:
    """Holm's point over Bonferroni's."""
    border = contrast(1.115)
    found = judge([border, *[contrast(2.0)] * 30], 1.1)
    assert [each.word for each in found] == ["PASS"] * 31


def test_measured_once_is_never_a_verdict() -> None:
    (verdict,) = judge([Contrast(math.log(3), 1, None, 1e-6, 100)], 1.1)
    assert verdict.word == "INCONCLUSIVE"
    assert "measured once" in verdict.reason
    assert judge([None], 1.1)[0].word == "INCONCLUSIVE"


def test_of_several_datasets_one_that_fails_decides() -> None:
    assert worst(["PASS", "PASS"]) == "PASS"
    assert worst(["PASS", "INCONCLUSIVE"]) == "INCONCLUSIVE"
    assert worst(["PASS", "INCONCLUSIVE", "FAIL"]) == "FAIL"
    assert worst([]) == "INCONCLUSIVE"
    assert exit_code(["PASS"]) == ExitCode.OK
    assert exit_code(["PASS", "FAIL"]) == ExitCode.CRITICAL
    assert exit_code(["INCONCLUSIVE"]) == ExitCode.UNKNOWN
