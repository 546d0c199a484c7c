"""What a metric family is, which engine versions are known, and vLLM's bucket ladders.

The names, types, help texts, labels and bucket ladders are vLLM's own. An engine version that is
not in the table exposes what the nearest earlier one in the table did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Version = tuple[int, int, int]
Kind = Literal["counter", "gauge", "histogram"]
LabelValues = tuple[str, tuple[str, ...]]

KNOWN_VERSIONS: Final[tuple[str, ...]] = (
    "0.8.5",
    "0.10.2",
    "0.12.0",
    "0.16.0",
    "0.20.2",
    "0.24.0",
    "0.32.0",
)
"""Versions whose pages were read family by family, oldest first."""

FIRST: Final[Version] = (0, 8, 5)
# fmt: off
ITL_LADDER: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)
TTFT_LADDER: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)
REQUEST_LADDER: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)
# fmt: on
ITERATION_LADDER: Final = (1.0, *(float(2**power) for power in range(3, 15)))
SMALL_LADDER: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTION_LADDER: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def token_ladder(max_model_len: int) -> tuple[float, ...]:
    """Return vLLM's 1-2-5 series up to the longest request the model can hold."""
    edges: list[float] = []
    decade = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * decade > max_model_len:
                return tuple(edges)
            edges.append(float(mantissa * decade))
        decade *= 10


def parse_version(text: str) -> Version:
    """Return a version as three numbers.

    Raises:
        ValueError: If the text is not three dotted numbers.
    """
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"not an engine version: {text!r} (expected three numbers, as 0.32.0)")
    return int(parts[0]), int(parts[1]), int(parts[2])


def known_version(text: str) -> Version:
    """Return the newest version in the table that is not newer than the one asked for.

    Raises:
        ValueError: If the version is malformed or older than every one in the table.
    """
    wanted = parse_version(text)
    older = [known for known in map(parse_version, KNOWN_VERSIONS) if known <= wanted]
    if not older:
        raise ValueError(
            f"engine version {text} is older than {KNOWN_VERSIONS[0]}, the oldest known"
        )
    return older[-1]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family as it stands at /metrics."""

    name: str
    """The name on the TYPE line, without a histogram's suffixes."""
    kind: Kind
    help: str
    source: str
    """What feeds it: a key of the ledger's scalars, vectors or histograms."""
    labels: LabelValues | None = None
    """One label beside engine and model_name, with its values."""
    ladder: tuple[float, ...] | None = None
    """Finite bucket edges; None for a histogram over tokens, whose edges depend on the model."""
    since: Version = FIRST
    until: Version | None = None
    """First version in the table without it; None while it is still there."""
    spec: bool = False
    """Present only when the engine speculates."""
    read: bool = False
    """specctl reads it, so the aggregated page of a fleet carries it."""
    engine_label: bool = True
