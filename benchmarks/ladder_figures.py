"""What clients got in a run of `benchmarks/ladder.py`: figures of parts of it, and its course."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]
GPU_HOUR_USD = 2.5
END_S = 20.0
"""The last part of a run, in which whatever came of it has settled."""


def run_of(
    sent: Sequence[Object],
    moves: Sequence[Object],
    gpus: Sequence[tuple[float, int]],
    begins: float,
    at: float,
    ends: float,
    end_s: float = END_S,
    hour_usd: float = GPU_HOUR_USD,
) -> Object:
    """Figures of a run; times are seconds after the fault, `at` is when it was.

    `hour_usd`: what one of `gpus` costs.

    A request counts where it ended: what a fault cuts short failed because of it.
    """
    told = [{**each, "at": each["at"] - at} for each in sent]
    spans = {"before": (begins, 0.0), "fault_window": (0.0, ends), "end": (ends - end_s, ends)}
    return {
        **{name: figures(told, gpus, span, hour_usd) for name, span in spans.items()},
        "recovered_s": recovered(told, moves, ends),
        "moves": list(moves),
        "series": series(told, begins, ends),
    }


def figures(
    sent: Sequence[Object],
    gpus: Sequence[tuple[float, int]],
    span: tuple[float, float],
    hour_usd: float = GPU_HOUR_USD,
) -> Object:
    """Of requests that ended in a span of time."""
    begin, end = span
    own = [each for each in sent if begin <= each["at"] + each["s"] < end]
    good = sorted(each["s"] for each in own if not each["failure"])
    tokens = sum(each["tokens"] for each in own)
    held = [count for when, count in gpus if begin <= when < end]
    mean = sum(held) / len(held) if held else None
    dollars = None if mean is None else mean * hour_usd * (end - begin) / 3600
    return {
        "seconds": round(end - begin, 1),
        "requests": len(own),
        "failed": len(own) - len(good),
        "failures": sorted({e["failure"] for e in own if e["failure"]}),
        "availability": len(good) / len(own) if own else None,
        "p50_s": good[math.ceil(len(good) * 0.50) - 1] if good else None,
        "p99_s": good[math.ceil(len(good) * 0.99) - 1] if good else None,
        "tokens_per_s": round(tokens / (end - begin), 1),
        "gpus": None if mean is None else round(mean, 2),
        "usd_per_1m": round(dollars / tokens * 1e6, 3) if dollars and tokens else None,
    }


def recovered(
    sent: Sequence[Object], moves: Sequence[Object], ends: float, quiet_s: float = 10.0
) -> float | None:
    """When the last request failed; where none did, when the last move was through.

    None: nothing moved, or requests still fail at the end.
    """
    done = [float(each["after_s"]) for each in moves if each["what"] == "done"]
    failed = [e["at"] + e["s"] for e in sent if e["failure"] and e["at"] + e["s"] >= 0]
    last = float(max(failed, default=0.0))
    if not done or last > ends - quiet_s:
        return None
    return round(last or done[-1], 1)


def series(
    sent: Sequence[Object], begins: float, ends: float, width: float = 5.0
) -> list[list[float]]:
    """Tokens a second of answers, and requests that failed, by when they ended."""
    found = []
    for i in range(math.ceil(round(begins / width, 1)), math.floor(ends / width)):
        ended = [e for e in sent if i * width <= e["at"] + e["s"] < (i + 1) * width]
        tokens = sum(e["tokens"] for e in ended) / width
        found.append([i * width, round(tokens, 1), sum(bool(e["failure"]) for e in ended)])
    return found
