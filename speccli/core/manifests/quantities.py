"""Quantities as API servers write them back: any other spelling is a difference for ever."""

from __future__ import annotations


def plain(number: float) -> str:
    """A number, to thousandths: `1500m`, `200`, `2k`."""
    return _largest(round(number * 1000), 1000, ("m", "", "k", "M"))


def gib(count: int) -> str:
    """Memory or storage: `512Gi`, `2Ti`."""
    return _largest(count, 1024, ("Gi", "Ti", "Pi"))


def _largest(count: int, step: int, units: tuple[str, ...]) -> str:
    """In the largest unit of which there are whole ones."""
    unit = 0
    while count and count % step == 0 and unit + 1 < len(units):
        count //= step
        unit += 1
    return f"{count}{units[unit]}"
