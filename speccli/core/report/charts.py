"""The charts of a report: batches on a logarithmic axis, intervals drawn, arms named at their ends.

A shape says the verdict and a label the arm, so none of them needs its colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speccli.core.bench.compare import Cell, Comparison
from speccli.core.bench.economics import UTILISATIONS, Economics
from speccli.core.report.build import Accepted, Report, Waiting
from speccli.core.report.svg import ROOM, Canvas, Scale, beside, decades, nice, shortened
from speccli.core.views import format as fmt
from speccli.core.views.bench import times

SHAPES = {"PASS": "dot", "INCONCLUSIVE": "ring", "FAIL": "cross"}
_HUES = 5
"""Colours for arms; further ones begin anew, and are told apart by their labels."""
_DODGE = 5.0
_TICKS = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture with its caption."""

    title: str
    caption: str
    svg: str


def hues(report: Report) -> dict[str, str]:
    """A class for each arm's colour; the baseline is grey."""
    base = report.comparison.baseline if report.comparison else None
    others = [arm.name for arm in report.result.arms if arm.name != base]
    found = {name: f"c{i % _HUES + 1}" for i, name in enumerate(others)}
    return found | ({base: "c0"} if base else {})


def speedups(comparison: Comparison, hue: dict[str, str]) -> list[Chart]:
    """Speed-up by load, a chart a dataset, all on the same scale."""
    ends = [
        each
        for cell in comparison.cells
        for each in (cell.speedup.value, cell.speedup.low, cell.speedup.high)
        if each is not None
    ]
    low, high = min([*ends, 0.9]), max([*ends, comparison.target, 1.2])
    pad = 0.06 * (high - low)
    return [
        _speedup(comparison, dataset, hue, (low - pad, high + pad))
        for dataset in comparison.datasets
    ]


def _right(names: Iterable[str]) -> float:
    """The margin for names of arms, and for those of the reference lines."""
    return max(80.0, beside(names))


def _speedup(
    comparison: Comparison, dataset: str, hue: dict[str, str], span: tuple[float, float]
) -> Chart:
    cells = [cell for cell in comparison.cells if cell.dataset == dataset]
    loads = sorted({_at(cell) for cell in cells})
    canvas = Canvas(f"Speed-up on {dataset}", _told(cells), right=_right(c.arm for c in cells))
    across = Scale(loads[0], loads[-1], canvas.across[0] + 16, canvas.across[1] - 12, log=True)
    upwards = Scale(*span, *canvas.upwards)
    canvas.y_axis(upwards, nice(*span), f"× {comparison.baseline}, {cells[0].measure}")
    batched = cells[0].batch is not None
    canvas.x_axis(across, [(x, f"{x:g}") for x in loads], "batch" if batched else "requests/s")
    canvas.rule(upwards, 1.0, "as fast", "even")
    if abs(upwards(comparison.target) - upwards(1.0)) > 2:
        canvas.rule(upwards, comparison.target, f"target {comparison.target:g}", "goal")
    arms = [arm for arm in comparison.arms if any(cell.arm == arm for cell in cells)]
    for place, arm in enumerate(arms):
        own = sorted((cell for cell in cells if cell.arm == arm), key=_at)
        shift = (place - (len(arms) - 1) / 2) * _DODGE
        _curve(canvas, own, across, upwards, hue[arm], shift)
    return Chart(canvas.title, "", canvas.svg())


def _at(cell: Cell) -> float:
    return float(cell.batch if cell.batch is not None else cell.rate or 0)


def _told(cells: Sequence[Cell]) -> str:
    return "; ".join(
        f"{cell.arm} at {_at(cell):g}: {times(cell.speedup)}, {cell.verdict.word}" for cell in cells
    )


def _curve(
    canvas: Canvas, cells: Sequence[Cell], across: Scale, upwards: Scale, kind: str, shift: float
) -> None:
    points = []
    for cell in cells:
        value = cell.speedup
        if value.value is None:
            continue
        x, y = across(_at(cell)) + shift, upwards(value.value)
        points.append((x, y))
        if value.low is not None and value.high is not None:
            canvas.whisker(x, upwards(value.low), upwards(value.high), kind)
    canvas.path(points, f"curve {kind}")
    for cell, (x, y) in zip([c for c in cells if c.speedup.value is not None], points, strict=True):
        words = f"{cell.arm}, {_at(cell):g}: {times(cell.speedup)} {cell.verdict.word}"
        canvas.mark(x, y, SHAPES[cell.verdict.word], kind, words)
    if points:
        canvas.label(*points[-1], shortened(cells[0].arm, ROOM), kind)


def acceptances(told: Sequence[Accepted], hue: dict[str, str]) -> list[Chart]:
    """Acceptance by position, a chart a dataset."""
    longest = max((len(each.by_position) for each in told), default=0)
    if not longest:
        return []
    charts = []
    for dataset in dict.fromkeys(each.dataset for each in told):
        ours = [each for each in told if each.dataset == dataset and each.by_position]
        if ours:
            charts.append(_acceptance(dataset, ours, hue, longest))
    return charts


def _acceptance(dataset: str, told: Sequence[Accepted], hue: dict[str, str], longest: int) -> Chart:
    words = "; ".join(
        f"{each.arm}: {', '.join(_position(p.value) for p in each.by_position)}" for each in told
    )
    canvas = Canvas(f"Acceptance on {dataset}", words, right=_right(each.arm for each in told))
    across = Scale(1, max(longest, 2), canvas.across[0] + 16, canvas.across[1] - 12)
    upwards = Scale(0, 1, *canvas.upwards)
    canvas.y_axis(upwards, nice(0, 1, 5), "accepted at this position / drafts")
    canvas.x_axis(across, [(i + 1, f"{i + 1}") for i in range(longest)], "draft position")
    for each in told:
        points = [
            (across(i + 1), upwards(p.value))
            for i, p in enumerate(each.by_position)
            if p.value is not None
        ]
        canvas.path(points, f"curve {hue[each.arm]}")
        known = [p.value for p in each.by_position if p.value is not None]
        for i, ((x, y), value) in enumerate(zip(points, known, strict=True)):
            canvas.mark(x, y, "dot", hue[each.arm], f"{each.arm}, position {i + 1}: {value:.3f}")
        if points:
            canvas.label(*points[-1], shortened(each.arm, ROOM), hue[each.arm])
    return Chart(canvas.title, "", canvas.svg())


def _position(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def latencies(waiting: Sequence[Waiting], hue: dict[str, str]) -> list[Chart]:
    """TPOT and TTFT, median to p99, by load."""
    charts = [_latency(waiting, hue, name) for name in ("tpot_s", "ttft_s")]
    return [chart for chart in charts if chart is not None]


_NAMES = {"tpot_s": "TPOT", "ttft_s": "TTFT"}


def _latency(waiting: Sequence[Waiting], hue: dict[str, str], name: str) -> Chart | None:
    told = [(each, getattr(each, name)) for each in waiting if each.arm in hue]
    points = [(each, s.p50.value, s.p99.value) for each, s in told if s.p50.value]
    if not points:
        return None
    values = [1000 * v for _, p50, p99 in points for v in (p50, p99) if v]
    low, high = min(values) / 1.15, max(values) * 1.15
    loads = sorted({_load_at(each) for each, _, _ in points})
    words = "; ".join(
        f"{each.arm} at {_load_at(each):g}: {1000 * p50:.3g} to "
        f"{'unknown' if p99 is None else f'{1000 * p99:.3g}'} ms"
        for each, p50, p99 in points
    )
    right = _right(each.arm for each, _, _ in points)
    canvas = Canvas(f"{_NAMES[name]}: median ● to p99 –", words, right=right)
    across = Scale(loads[0], loads[-1], canvas.across[0] + 20, canvas.across[1] - 16, log=True)
    upwards = Scale(low, high, *canvas.upwards, log=True)
    canvas.y_axis(upwards, decades(low, high), "ms")
    batched = points[0][0].load[0] is not None
    canvas.x_axis(across, [(x, f"{x:g}") for x in loads], "batch" if batched else "requests/s")
    arms = list(dict.fromkeys(each.arm for each, _, _ in points))
    for place, arm in enumerate(arms):
        shift = (place - (len(arms) - 1) / 2) * (_DODGE + 1)
        own = sorted(
            ((_load_at(e), a, b) for e, a, b in points if e.arm == arm), key=lambda p: p[0]
        )
        middles = [(across(x) + shift, upwards(1000 * a)) for x, a, _ in own]
        canvas.path(middles, f"curve thin {hue[arm]}")
        for (x, y), (at, a, b) in zip(middles, own, strict=True):
            if b is not None:
                top = upwards(1000 * b)
                canvas.line(x, y, x, top, f"whisker {hue[arm]}")
                canvas.line(x - 4, top, x + 4, top, f"whisker {hue[arm]}")
            tail = "p99 unknown" if b is None else f"p99 {1000 * b:.3g} ms"
            canvas.mark(x, y, "dot", hue[arm], f"{arm}, {at:g}: median {1000 * a:.3g} ms, {tail}")
        canvas.label(*middles[-1], shortened(arm, ROOM), hue[arm])
    return Chart(canvas.title, "", canvas.svg())


def _load_at(each: Waiting) -> float:
    return float(each.load[0] if each.load[0] is not None else each.load[1] or 0)


def costs(found: Economics, hue: dict[str, str]) -> list[Chart]:
    """Cost by load, and cost by how busy the server is, beside list prices."""
    if found.why_none is not None:
        return []
    return [_cost_by_load(found, hue), _cost_by_utilisation(found, hue)]


def _cost_by_load(found: Economics, hue: dict[str, str]) -> Chart:
    levels = [each for each in found.levels if each.usd_per_1m_output.value is not None]
    values = [each.usd_per_1m_output.value or 0 for each in levels]
    low, high = min(values) / 1.3, max(values) * 1.3
    loads = sorted({_x(each.load) for each in levels})
    words = "; ".join(
        f"{each.arm} at {_x(each.load):g}: ${fmt.usd(each.usd_per_1m_output.value or 0)}"
        for each in levels
    )
    right = _right(found.arms)
    canvas = Canvas("Cost of 1M output tokens, always busy", words, left=44, right=right)
    across = Scale(loads[0], loads[-1], canvas.across[0] + 16, canvas.across[1] - 12, log=True)
    upwards = Scale(low, high, *canvas.upwards, log=True)
    canvas.y_axis(upwards, decades(low, high), "USD per 1M output tokens")
    batched = levels[0].load[0] is not None
    canvas.x_axis(across, [(x, f"{x:g}") for x in loads], "batch" if batched else "requests/s")
    for arm in found.arms:
        own = [each for each in levels if each.arm == arm]
        points = [(across(_x(e.load)), upwards(e.usd_per_1m_output.value or 0)) for e in own]
        canvas.path(points, f"curve {hue[arm]}")
        for each, (x, y) in zip(own, points, strict=True):
            told = f"{arm}, {_x(each.load):g}: ${fmt.usd(each.usd_per_1m_output.value or 0)}"
            canvas.mark(x, y, "dot", hue[arm], told)
        if points:
            canvas.label(*points[-1], shortened(arm, ROOM), hue[arm])
    return Chart(canvas.title, "", canvas.svg())


def _x(load: tuple[int | None, float | None]) -> float:
    return float(load[0] if load[0] is not None else load[1] or 0)


def _cost_by_utilisation(found: Economics, hue: dict[str, str]) -> Chart:
    """Each arm at its cheapest load; where it meets a hosted model's line, both cost the same."""
    arms = [(arm, level) for arm in found.arms if (level := found.cheapest(arm)) is not None]
    hosted = {
        each.price.model: each.usd_per_1m_output.value
        for compared in list(found.hosted.values())[:1]
        for each in compared
        if each.usd_per_1m_output.value is not None
    }
    full = [level.usd_per_1m_output.value or 0 for _, level in arms]
    least = UTILISATIONS[0]
    low = min([*full, *hosted.values()]) / 1.3
    high = max([max(full) / least, *hosted.values()]) * 1.3
    words = "; ".join(
        [
            f"{arm}: ${fmt.usd(level.usd_per_1m_output.value or 0)} always busy"
            for arm, level in arms
        ]
        + [f"{name}: ${fmt.usd(usd)}" for name, usd in hosted.items()]
    )
    canvas = Canvas("Cost by how busy the server is", words, left=44, right=128)
    across = Scale(least, 1, canvas.across[0] + 6, canvas.across[1] - 6, log=True)
    upwards = Scale(low, high, *canvas.upwards, log=True)
    canvas.y_axis(upwards, decades(low, high), "USD per 1M output tokens")
    canvas.x_axis(across, [(u, f"{100 * u:.0f} %") for u in _TICKS], "share of full load")
    for name, usd in hosted.items():
        y = upwards(usd)
        canvas.line(canvas.across[0], y, canvas.across[1], y, "hosted")
        canvas.label(canvas.across[1] - 2, y, shortened(f"□ {name}", 120), "given")
    for arm, level in arms:
        usd = level.usd_per_1m_output.value or 0
        ends = [(across(u), upwards(usd / u)) for u in (least, 1)]
        canvas.path(ends, f"curve {hue[arm]}")
        for price in hosted.values():
            even = usd / price
            if least <= even <= 1:
                x, y = across(even), upwards(price)
                canvas.mark(
                    x, y, "ring", hue[arm], f"{arm}: even at {100 * even:.0f} % of full load"
                )
        canvas.label(*ends[-1], shortened(arm, 120), hue[arm])
    return Chart(canvas.title, "", canvas.svg())
