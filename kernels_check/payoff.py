"""What measured step costs imply: the speed-up at each batch and K, and where it stops paying.

`python -m kernels_check.payoff RAW.jsonl` makes the cost checks' data from the samples of `--raw`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CHANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Chance that a drafted token is accepted, given that the one before it was."""
WORTH = 1.02
"""Below this the measurement cannot tell a gain from none."""


def length(chance: float, k: int) -> float:
    """Tokens a step: 1 + chance + ... + chance^K (the acceptance length)."""
    return sum(chance**i for i in range(k + 1))


def speed_up(measured: Mapping[str, Any], chance: float, batch: str, k: str) -> float:
    """Tokens a second with K drafted tokens over those without, the drafting included."""
    row = measured["ms"][batch]
    drafting = int(k) * measured["draft_ms_per_token"][batch]
    return length(chance, int(k)) * float(row["0"]) / float(row[k] + drafting)


def crossover(measured: Mapping[str, Any], chance: float) -> dict[str, Any]:
    """The best K at each batch, where even that gains nothing, and where each K loses."""
    best, losing = {}, []
    by_k: dict[str, list[int]] = {}
    for batch, row in measured["ms"].items():
        gains = {k: speed_up(measured, chance, batch, k) for k in row if k != "0"}
        top = max(gains, key=lambda k: gains[k])
        best[batch] = {"k": int(top), "speed_up": round(gains[top], 3)}
        if gains[top] <= WORTH:
            losing.append(int(batch))
        for k, gain in gains.items():
            by_k.setdefault(k, [])
            if gain <= 1.0:
                by_k[k].append(int(batch))
    return {"best": best, "no_gain_at": losing, "loses_by_k": by_k}


def words(measured: Mapping[str, Any], chance: float, k: str) -> str:
    """Where K loses, in a few words."""
    losing = crossover(measured, chance)["loses_by_k"][k]
    if not losing:
        return "pays at every batch"
    return "loses at " + ", ".join(str(batch) for batch in losing)


def derive(points: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One model's data from its samples: medians, and what they imply.

    A point: `what` (step or draft), `batch`, `k`, `samples_ms`, and the model's facts.
    """
    ms: dict[str, dict[str, float]] = {}
    drafting: dict[str, float] = {}
    facts: dict[str, Any] = {}
    for point in points:
        median = round(statistics.median(point["samples_ms"]), 4)
        facts = {name: point[name] for name in ("model", "layers", "context")}
        if point["what"] == "step":
            ms.setdefault(str(point["batch"]), {})[str(point["k"])] = median
        else:
            drafting[str(point["batch"])] = median
    measured = {"ms": ms, "draft_ms_per_token": drafting}
    crossovers = {str(a): crossover(measured, a) for a in CHANCES}
    return {**facts, **measured, "crossover": crossovers}


def from_raw(text: str) -> dict[str, dict[str, Any]]:
    """Every model's data, by its check's name, from a raw log (a JSON object a line)."""
    by_shape: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        point = json.loads(line)
        by_shape.setdefault(point["shape"], []).append(point)
    return {f"cost.{shape}": derive(points) for shape, points in by_shape.items()}


if __name__ == "__main__":
    json.dump(from_raw(Path(sys.argv[1]).read_text()), sys.stdout, indent=1)
    sys.stdout.write("\n")
