"""The table and the chart of `benchmarks/ladder.py`, from what it kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.scale_out import line, steps, text

Run = Mapping[str, Any]
BEGIN = "<!-- ladder: begin (benchmarks/ladder.py) -->"
END = "<!-- ladder: end -->"
REAL_BEGIN = "<!-- ladder-real: begin (benchmarks/ladder.py --real) -->"
REAL_END = "<!-- ladder-real: end -->"
NAMES = {
    "bad": "draft gone bad",
    "load": "draft fails to load",
    "grammar": "grammar crash",
    "batch": "batch above the crossover",
    "behind": "draft a version behind",
}
"""By their codes, in the order of the page."""
WITH, WITHOUT, GREY = "#1b6ca8", "#d1495b", "#888"
WIDTH, LEFT, PLOT_W, PANEL_H, GAP, TOP = 960, 64, 860, 104, 58, 76
_HEAD = (
    "| fault | ladder | answered | failed | p99, s | tok/s before → at the end "
    "| $/1M before → at the end | time to recover |",
    "|---|---|---|---|---|---|---|---|",
)


def table(runs: Sequence[Run]) -> str:
    """The runs as a table of Markdown: by fault, without the ladder first."""
    places = list(NAMES)
    ordered = sorted(runs, key=lambda run: (places.index(run["fault"]), run["ladder"]))
    return "\n".join((*_HEAD, *map(_row, ordered)))


def _row(run: Run) -> str:
    fault, before, end = run["fault"], run["before"], run["end"]
    cells = (
        NAMES[fault],
        _way(run),
        _share(run["fault_window"]["availability"]),
        f"{run['fault_window']['failed']} of {run['fault_window']['requests']}",
        _number(run["fault_window"]["p99_s"], 1),
        f"{before['tokens_per_s']:.0f} → {end['tokens_per_s']:.0f}",
        f"{_number(before['usd_per_1m'], 2)} → {_number(end['usd_per_1m'], 2)}",
        _recovered(run),
    )
    return f"| {' | '.join(cells)} |"


def _way(run: Run) -> str:
    if not run["ladder"]:
        return "without"
    rungs = [move["to"] for move in run["moves"] if move["what"] == "done"]
    return f"with: {' → '.join(rungs)}" if rungs else "with: did not move"


def _share(value: float | None) -> str:
    """Never 100 % where something failed."""
    if value is None:
        return "unknown"
    return "100 %" if value == 1 else f"{math.floor(1000 * value) / 10:.1f} %"


def _number(value: float | None, places: int) -> str:
    return "unknown" if value is None else f"{value:.{places}f}"


def _recovered(run: Run) -> str:
    if run["recovered_s"] is not None:
        return f"{run['recovered_s']:.0f} s"
    return f"not in {run['fault_window']['seconds']:.0f} s"


def written(page: str, runs: Sequence[Run]) -> str:
    """The page with the table between its two marks.

    Raises:
        ValueError: a mark is not there.
    """
    parts = [
        "**SIMULATED** engines and GPUs; control plane, deploys and watch are real.",
        table(runs),
        "![Tokens a second through each fault, with the ladder and without](evidence/ladder.svg)",
    ]
    return _between(page, BEGIN, END, parts)


def written_real(page: str, runs: Sequence[Run]) -> str:
    """The page with the runs on real servers between their two marks.

    Raises:
        ValueError: a mark is not there.
    """
    label = (
        "**Real** vLLM servers, weights and commands, on a CPU: SmolLM2-135M and its EAGLE-3 head, "
        f"two clients, two cores that both arms share with other work ({_loads(runs)})."
    )
    ways = [each(run) for run in runs for each in (_refused, _way_back)]
    backs = "\n".join(way for way in ways if way)
    picture = "![The same, on real servers](evidence/ladder-real.svg)"
    parts = [label, table(runs), picture, *_unmoved(runs), *([backs] if backs else [])]
    return _between(page, REAL_BEGIN, REAL_END, parts)


def _loads(runs: Sequence[Run]) -> str:
    """Of the machine at the beginning and the end of each fault's runs."""
    told: dict[str, list[float]] = {}
    for run in runs:
        told.setdefault(NAMES[run["fault"]], []).extend(run["load"])
    return "; ".join(
        f"{name}: load {min(each):.0f} to {max(each):.0f}" for name, each in told.items()
    )


def _unmoved(runs: Sequence[Run]) -> list[str]:
    """What the real table's last columns cannot say: of what was counted, and of how few."""
    if not runs:
        return []
    ends = ", ".join(
        f"{NAMES[run['fault']]} {_way(run).partition(':')[0]} {run['end']['requests']} "
        f"({run['end']['failed']} failed)"
        for run in runs
    )
    told = (
        "Time to recover counts from a move: an arm that moves nothing has none, whether its "
        "requests are answered again or not. Requests in the 20 s at the end, of which the tokens "
        f"a second there are: {ends}."
    )
    return [told]


def _refused(run: Run) -> str:
    back = run.get("refused")
    if not back:
        return ""
    moving = back["moving"]
    end = "the rung serves on" if back["serves_on"] else "nothing serves"
    why = back["why"].partition(" (")[0]
    return (
        f"- {NAMES[run['fault']]}, head as it was: `fallback restore` refused it after "
        f"{back['seconds']:.0f} s ({why}), in which {moving['requests']} requests ended and "
        f"{moving['failed']} failed; {end}."
    )


def _way_back(run: Run) -> str:
    back = run["back"]
    if not back:
        return ""
    moving, after = back["moving"], back["after"]
    return (
        f"- {NAMES[run['fault']]}, head mended: `fallback restore` took {back['seconds']:.0f} s, "
        f"in which {moving['requests']} requests ended and {moving['failed']} failed; then "
        f"{after['tokens_per_s']:.0f} tok/s, and {back['first_position']:.2f} of first tokens were "
        "accepted."
    )


def _between(page: str, begin: str, end: str, parts: Sequence[str]) -> str:
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n" + "\n\n".join(parts) + f"\n\n{end}{after}"


SIMULATED = "SIMULATED engines and GPUs, real control plane"
WAITS = "; the ladder waits 10 s (5 min unless told)"


def chart(runs: Sequence[Run], title: str = SIMULATED, more: str = WAITS) -> str:
    """Tokens a second through each fault, with the ladder and without."""
    kinds = [code for code in NAMES if any(run["fault"] == code for run in runs)]
    parts: list[str] = []
    for place, code in enumerate(kinds):
        mine = sorted((r for r in runs if r["fault"] == code), key=lambda r: bool(r["ladder"]))
        parts += _panel(TOP + place * (PANEL_H + GAP), NAMES[code], mine)
    height = TOP + len(kinds) * (PANEL_H + GAP)
    caption = (
        "output tokens a second of all answers, 5 s a step; x: requests that failed; the fault is "
        f"at 0:00{more}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            text(12, 22, title, 15),
            text(12, 42, caption, 12, "#555"),
            *parts,
            "</svg>\n",
        ]
    )


def real_chart(runs: Sequence[Run]) -> str:
    """The same of real servers."""
    return chart(runs, "Real vLLM servers on a CPU: SmolLM2-135M with EAGLE-3, two clients", "")


def _panel(y0: float, title: str, runs: Sequence[Run]) -> list[str]:
    begin = min(run["series"][0][0] for run in runs)
    end = max(run["series"][-1][0] for run in runs) + 5
    peak = max(row[1] for run in runs for row in run["series"])
    top = _ceiling(peak)

    def at(seconds: float, value: float) -> tuple[float, float]:
        x = LEFT + PLOT_W * (seconds - begin) / (end - begin)
        return x, y0 + PANEL_H * (1 - value / top)

    parts = [text(LEFT, y0 - 8, title, 13)]
    for tick in (0.0, top / 2, top):
        parts.append(line([at(begin, tick), at(end, tick)], "#e4e4e4", 1))
        parts.append(text(LEFT - 48, at(0, tick)[1] + 4, f"{tick:,.0f}", 12, GREY))
    for tick in range(-30, int(end) + 1, 30):
        if tick >= begin:
            label = f"{'-' if tick < 0 else ''}{abs(tick) // 60}:{abs(tick) % 60:02d}"
            parts.append(text(at(tick, 0)[0] - 12, y0 + PANEL_H + 16, label, 12, GREY))
    parts.append(line([at(0, 0), at(0, top)], "#555", 1, "4 3"))
    for place, run in enumerate(runs):
        parts += _drawn(run, at, y0, place)
    return parts


def _drawn(run: Run, at: Any, y0: float, place: int) -> list[str]:
    colour = WITH if run["ladder"] else WITHOUT
    rows = run["series"]
    points = [at(row[0], row[1]) for row in rows]
    points.append(at(rows[-1][0] + 5, rows[-1][1]))
    name = "with the ladder" if run["ladder"] else "without"
    parts = [
        line(steps(points), colour),
        text(LEFT + 300 + 110 * place, y0 - 8, name, 13, colour),
    ]
    low = y0 + PANEL_H - (4 if run["ladder"] else 14)
    for when, _, failed in rows:
        if failed:
            parts.append(text(at(when + 2.5, 0)[0] - 4, low, "x", 12, colour))
    for move in (each for each in run["moves"] if each["what"] == "done"):
        x, _ = at(move["after_s"], 0)
        parts.append(line([(x, y0), (x, y0 + PANEL_H)], WITH, 1, "2 3"))
        parts.append(text(x + 4, y0 + 12, f"to {move['to']}", 12, WITH))
    return parts


def _ceiling(value: float) -> float:
    """A round number above it, whose half is one too."""
    size = 10 ** math.floor(math.log10(max(1.0, value)))
    return float(next(k * size for k in (1, 2, 4, 6, 8, 10) if k * size >= value))
