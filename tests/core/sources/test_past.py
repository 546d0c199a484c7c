from __future__ import annotations

import math

from speccli.core.sources.past import _point


def test_a_gauge_that_nobody_exposes_is_not_nought() -> None:
    point = _point(0.0, 60.0, {"generation_tokens": 5.0})
    assert math.isnan(point.waiting)
    assert math.isnan(point.running)
    known = _point(0.0, 60.0, {"waiting": 2.0, "running": 3.0})
    assert (known.waiting, known.running) == (2.0, 3.0)
