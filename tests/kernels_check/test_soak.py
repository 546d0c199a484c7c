"""What minutes of the same step conclude from their times and the chip's readings."""

from __future__ import annotations

from typing import Any

import pytest

from kernels_check.checks import soak
from kernels_check.cuda.nvml import Reading
from kernels_check.model import Wrong

STEADY = [0.5] * 990 + [0.9] * 10
USED = 20 << 30


def reading(**other: Any) -> Reading:
    said: dict[str, Any] = {
        "sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 50, "power_w": 300.0, "throttle": 0,
        "ecc_uncorrected": 0, "memory_used": USED,
    }  # fmt: skip
    return Reading(**(said | other))


def conclude(
    *, times: list[float] = STEADY, end: Reading | None = None, grown: int = 0,
    xids: list[int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    return dict(soak._conclude(times, [reading(), end or reading()], grown, xids or []).data)


def test_the_same_step_for_minutes_is_told_in_numbers() -> None:
    told = conclude(end=reading(throttle=0x4, memory_used=USED + (2 << 20)))
    assert told["ms"] == {"p50": 0.5, "p99": 0.9, "p999": 0.9, "max": 0.9}
    assert (told["steps"], told["memory_grown"]) == (1000, 2 << 20)
    assert told["throttle"] == ["power cap"]


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        pytest.param({"times": [0.5] * 900 + [1.6] * 100}, "3 times the median", id="jitter"),
        pytest.param({"grown": 65 << 20}, "memory grows", id="torch's-memory"),
        pytest.param({"end": reading(memory_used=USED + (65 << 20))}, "memory grows", id="memory"),
        pytest.param({"end": reading(throttle=0x40)}, "hardware thermal", id="throttling"),
        pytest.param({"xids": [31]}, "Xid 31", id="xid"),
    ],
)
def test_what_is_wrong_with_it_is_named(told: dict[str, Any], wrong: str) -> None:
    with pytest.raises(Wrong, match=wrong):
        conclude(**told)


def test_a_chip_that_does_not_tell_its_memory_is_judged_by_torchs() -> None:
    assert conclude(end=reading(memory_used=None), grown=7)["memory_grown"] == 7
