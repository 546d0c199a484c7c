"""The verify-cost curves as one SVG.

A panel a model, a line a K, and where drafting stops paying (hollow points).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from kernels_check import payoff

PANEL, HEIGHT, LEFT, TOP, PLOT_W, PLOT_H = 420, 480, 56, 64, 300, 270
SHOWN = (1, 2, 3, 5, 7)
CHANCE = 0.6
"""Of a drafted token to be accepted: the one that the points are drawn for."""
COLOURS = ("#1b6ca8", "#2a9d8f", "#b8860b", "#d1495b", "#6a4c93")


def curves(document: Mapping[str, Any]) -> str:
    """Every cost check of a run that passed."""
    panels = [c for c in document["checks"] if c["name"].startswith("cost.") and "data" in c]
    width = PANEL * max(1, len(panels))
    env = document["environment"]
    where = f"{env.get('gpu')}, driver {env.get('driver')}, vLLM {env['versions'].get('vllm')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{HEIGHT}" fill="#fff"/>',
        _text(12, 20, f"A verify step in plain decode steps, measured on {where}", 14),
        _text(width - 14, 20, f"hollow: loses where {CHANCE:.0%} are accepted", 12, end=True),
    ]
    for i, panel in enumerate(panels):
        parts += _panel(PANEL * i, panel["data"])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(x0: int, data: Mapping[str, Any]) -> list[str]:
    batches = [int(b) for b in data["ms"]]
    ratios = {
        k: [data["ms"][str(b)][str(k)] / data["ms"][str(b)]["0"] for b in batches] for k in SHOWN
    }
    every = [ratio for row in ratios.values() for ratio in row]
    top = max(math.ceil(max(every) * 2) / 2, 1.5)
    bottom = min(1.0, math.floor(min(every) * 10) / 10)

    def at(batch: int, ratio: float) -> tuple[float, float]:
        x = x0 + LEFT + PLOT_W * math.log2(batch / batches[0]) / math.log2(batches[-1] / batches[0])
        return x, TOP + PLOT_H * (1 - (ratio - bottom) / (top - bottom))

    parts = [_text(x0 + 14, TOP - 16, data["model"], 11)]
    parts += _axes(x0, batches, (bottom, top), at)
    loses = payoff.crossover(data, CHANCE)["loses_by_k"]
    ends = []
    for colour, k in zip(COLOURS, SHOWN, strict=True):
        points = [at(b, r) for b, r in zip(batches, ratios[k], strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for batch, (x, y) in zip(batches, points, strict=True):
            fill = "#fff" if batch in loses[str(k)] else colour
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colour}"'
                ' stroke-width="1.5"/>'
            )
        ends.append((*points[-1], k, colour))
    free = math.inf
    for x, y, k, colour in sorted(ends, key=lambda end: -end[1]):
        free = min(y, free - 13)  # labels that would lie on each other move up
        parts.append(_text(x + 6, free + 4, f"K {k}", 12, colour))
    return parts + _words(x0, data)


def _axes(x0: int, batches: list[int], ends: tuple[float, float], at: Any) -> list[str]:
    bottom, top = ends
    parts = []
    for batch in batches:
        x, y = at(batch, bottom)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#eee"/>')
        parts.append(_text(x - 8, y + 16, str(batch), 11))
    step = 0.5 if top <= 4 else math.ceil(top / 8)
    ratio = 1.0
    while ratio <= top + 1e-9:
        x, y = at(batches[0], ratio)
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + PLOT_W}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(x0 + 14, y + 4, f"{ratio:.1f}x", 11))
        ratio += step
    parts.append(_text(x0 + LEFT + PLOT_W / 2 - 40, TOP + PLOT_H + 34, "requests in the step", 11))
    return parts


def _words(x0: int, data: Mapping[str, Any]) -> list[str]:
    y = TOP + PLOT_H + 54
    said = [f"context {data['context']}; tokens/s against plain decoding, drafting included:"]
    for chance in (0.5, CHANCE):
        for k in ("3", "7"):
            where = payoff.words(data, chance, k)
            said.append(f"K {k}, {chance:.0%} accepted: {where}")
    best = payoff.crossover(data, 0.7)["best"]
    said.append(
        "best at 70%: "
        + ", ".join(
            f"{b}: K {best[b]['k']} {best[b]['speed_up']:.1f}x" for b in ("1", "8", "32", "128")
        )
    )
    return [_text(x0 + 14, y + 15 * i, line, 11) for i, line in enumerate(said)]


def _text(
    x: float, y: float, said: str, size: int, colour: str = "#222", *, end: bool = False
) -> str:
    anchor = ' text-anchor="end"' if end else ""
    where = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{anchor}'
    return f"<text {where}>{escape(said)}</text>"
