"""Quiet hours, over midnight and over a change of the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from speccli.core.errors import UsageError
from speccli.core.fallback.quiet import Quiet


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_span_goes_over_midnight_in_its_own_zone() -> None:
    quiet = Quiet.of(("22:00-06:00",), "Europe/Berlin")
    assert not quiet.holds(at("2026-11-29 20:59"))
    assert quiet.holds(at("2026-11-29 21:00"))
    assert quiet.holds(at("2026-11-30 04:59"))
    assert not quiet.holds(at("2026-11-30 05:00"))
    assert quiet.ends(at("2026-11-29 21:30")) == at("2026-11-30 05:00")


def test_a_change_of_the_clock_moves_it_along() -> None:
    quiet = Quiet.of(("22:00-06:00",), "Europe/Berlin")
    assert quiet.ends(at("2026-07-01 21:30")) == at("2026-07-02 04:00")
    assert quiet.ends(at("2026-10-24 23:30")) == at("2026-10-25 05:00")  # the night of 25 hours


def test_spans_that_follow_one_another_are_one() -> None:
    quiet = Quiet.of(("12:00-13:00", "13:00-14:30"), "UTC")
    assert quiet.ends(at("2026-11-29 12:10")) == at("2026-11-29 14:30")
    assert not quiet.holds(at("2026-11-29 11:59"))


def test_a_whole_day_is_quiet_and_the_search_ends() -> None:
    quiet = Quiet.of(("00:00-24:00",), "UTC")
    assert quiet.holds(at("2026-11-29 23:59"))
    assert quiet.ends(at("2026-11-29 12:00")) == at("2026-12-01 12:00")


def test_no_span_is_never_quiet() -> None:
    assert not Quiet().holds(at("2026-11-29 03:00"))


@pytest.mark.parametrize("text", ["22-06", "25:00-06:00", "22:00", "22:00-06:60", ""])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"fallback\.quiet"):
        Quiet.of((text,), "UTC")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", ""])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(UsageError, match="time_zone"):
        Quiet.of((), zone)
