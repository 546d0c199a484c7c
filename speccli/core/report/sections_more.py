"""The parts of a report behind the speed-ups: acceptance, cost, answers, notes, provenance."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from speccli.core.bench.economics import Level
from speccli.core.bench.lengths import lengths
from speccli.core.bench.refused import refused
from speccli.core.bench.results import Arm, Load
from speccli.core.report import charts
from speccli.core.report.build import Accepted, Report
from speccli.core.report.sections import Block, Pictures, Section, Table, joined, reasons, told
from speccli.core.views import bench as view
from speccli.core.views import format as fmt
from speccli.core.views.cost import provider_model

_SHOWN = 12
_BUSY = (1.0, 0.5, 0.2, 0.1)
_PRICES = (0.5, 1.0, 2.0)
"""Factors on the price of a GPU hour."""


def acceptance(report: Report) -> Section | None:
    """By arm, dataset and position."""
    if not report.acceptance:
        return None
    longest = max(len(each.by_position) for each in report.acceptance)
    ks = {arm.name: arm.k for arm in report.result.arms}
    table = Table(
        (
            *("dataset", "arm", "K", "rate", "length", "tokens/step"),
            *(f"pos {i + 1}" for i in range(longest)),
            *("rate by load", "counted by"),
        ),
        tuple(_accepted(each, ks.get(each.arm), longest) for each in _by_dataset(report)),
        keys=2,
        notes=(
            *refused(report.result),
            "rate = accepted / draft tokens; length = 1 + accepted / drafts; a position is "
            "accepted / drafts, unconditional. They tell of steps that had a draft; tokens/step, "
            "from the counters, is of all of them, so it is what n-gram is compared by",
            *reasons(
                pair
                for each in report.acceptance
                for pair in (
                    ("tokens/step", each.tokens_per_step),
                    *((f"pos {i + 1}", p) for i, p in enumerate(each.by_position)),
                )
            ),
        ),
    )
    pictures = Pictures(
        tuple(charts.acceptances(report.acceptance, charts.hues(report))),
        "Share of drafts whose token at this position was accepted.",
    )
    return Section("acceptance", "Acceptance", report.kind, (pictures, table))


def _by_dataset(report: Report) -> list[Accepted]:
    order = {each.name: i for i, each in enumerate(report.result.datasets)}
    return sorted(report.acceptance, key=lambda each: order[each.dataset])


def _accepted(each: Accepted, k: int | None, longest: int) -> tuple[str, ...]:
    positions = [told(p, "{:.3f}".format) for p in each.by_position]
    low_high = each.loads
    return (
        each.dataset,
        each.arm,
        f"{k}" if k else "—",
        told(each.rate, "{:.3f}".format),
        told(each.length, "{:.2f}".format),
        told(each.tokens_per_step, "{:.2f}".format),
        *positions,
        *[""] * (longest - len(positions)),
        f"{low_high[0]:.3f}–{low_high[1]:.3f}" if low_high else "—",
        each.source,
    )


def cost(report: Report) -> Section:
    """By load, beside list prices, and how it moves with price and load."""
    found = report.economics
    if found.why_none is not None:
        words = f"No cost can be told: {found.why_none}."
        return Section("cost", "Cost", "", (words,))
    pictures = Pictures(
        tuple(charts.costs(found, charts.hues(report))),
        "First: one server that is always busy. Second: each arm at its cheapest load, busy less "
        "and less of the time; ○ where it costs as much as a hosted model. All axes logarithmic.",
    )
    priced = found.priced
    assumed = (
        f"□ GPU price as given: ${found.gpu_hour_usd:g} an hour each, nothing else counted. "
        f"□ List prices: {priced.package} {priced.version}, looked up {priced.looked_up:%Y-%m-%d} "
        "(UTC), per token, no batch or cached-input discount, in the bench's own mix of input and "
        "output. Another model is not the same product."
    )
    return Section(
        "cost",
        "Cost",
        report.kind,
        (_cheapest(report), pictures, assumed, _levels(report), *_market(report)),
    )


def _cheapest(report: Report) -> str:
    return (
        f"The cheapest 1M output tokens of each arm, where nothing but the rate counts: "
        f"{'; '.join(cheapest_words(report))}. What is cheapest is not what is fastest for a "
        "request."
    )


def cheapest_words(report: Report) -> list[str]:
    """Each arm's cheapest load, the cheapest first: where rate is all, the baseline may win."""
    found = report.economics
    levels = [level for arm in found.arms if (level := found.cheapest(arm)) is not None]
    levels.sort(key=_full)
    return [f"{e.arm} ${_usd(_full(e))} at batch {view.load_words(e.load)}" for e in levels]


def _levels(report: Report) -> Table:
    return Table(
        ("arm", "batch", "tok/s", *(f"{100 * busy:.0f} % busy" for busy in _BUSY), "in + out"),
        tuple(_level(each) for each in report.economics.levels),
        keys=2,
        notes=(
            "USD per 1M output tokens, by how much of the time the server is at this load; in + "
            "out: per 1M tokens of either kind, always busy",
        ),
    )


def _level(each: Level) -> tuple[str, ...]:
    return (
        each.arm,
        view.load_words(each.load),
        told_rate(each),
        *(_usd(each.usd_at(busy).value) for busy in _BUSY),
        _usd(each.pool.cost_per_1m_total_usd.value),
    )


def told_rate(each: Level) -> str:
    """Output tokens per second."""
    value = each.tokens_per_s.value
    return "—" if value is None else f"{value:,.0f}"


def _usd(value: float | None) -> str:
    return "—" if value is None else fmt.usd(value)


def _market(report: Report) -> Iterable[Block]:
    found = report.economics
    arms = [arm for arm in found.arms if arm in found.hosted]
    if not arms:
        return
    first = found.hosted[arms[0]]
    yield Table(
        (
            *("hosted model □", "$/1M in", "out", "$/1M out in this mix"),
            *(f"{arm} even at" for arm in arms),
        ),
        tuple(
            (
                provider_model(price.price),
                fmt.usd(price.tier.input_usd),
                fmt.usd(price.tier.output_usd),
                _usd(price.usd_per_1m_output.value),
                *(_even(found.hosted[arm][i].break_even_utilisation.value) for arm in arms),
            )
            for i, price in enumerate(first)
        ),
        notes=(
            "even at: the share of full load, at the arm's cheapest batch, beyond which it is "
            "cheaper",
        ),
    )
    best = min(arms, key=lambda arm: _full(found.cheapest(arm)))
    level = found.cheapest(best)
    if level is not None and found.gpu_hour_usd is not None:
        yield f"{best} at {view.load_words(level.load)}, $/1M output tokens by GPU price and load:"
        yield Table(
            ("GPU hour □", *(f"{100 * busy:.0f} % busy" for busy in _BUSY)),
            tuple(
                (
                    f"${found.gpu_hour_usd * factor:g}",
                    *(_usd(_full(level) * factor / busy) for busy in _BUSY),
                )
                for factor in _PRICES
            ),
        )


def _full(level: Level | None) -> float:
    value = None if level is None else level.usd_per_1m_output.value
    return float("inf") if value is None else value


def _even(share: float | None) -> str:
    if share is None:
        return "—"
    return f"{100 * share:.1f} %" if share <= 1 else f"never ({share:.1f} × full load)"


def lossless(report: Report) -> Section | None:
    """Whether arms write what the baseline writes."""
    found = report.lossless
    if found is None:
        return None
    if found.why_none is not None:
        return Section("answers", "The same answers?", "", (f"Not compared: {found.why_none}.",))
    itself = view.share_words(found.baseline_itself)
    rows: list[tuple[str, ...]] = [(found.baseline, "", itself, "", "", "")]
    for arm in found.arms:
        counts = [str(arm.kinds.get(kind, 0)) for kind in ("wrong", "unknown", "numeric")]
        known = counts if arm.texts is not None else ["—"] * 3
        rows.append((arm.name, view.share_words(arm.beside), view.share_words(arm.itself), *known))
    listed = tuple(
        f"{arm.name}, {each.prompt}: {each.parting.kind}, {each.parting.words}"
        for arm in found.arms
        for each in arm.partings[:_SHOWN]
    )
    more = sum(max(0, len(arm.partings) - _SHOWN) for arm in found.arms)
    blocks: list[Block] = [
        "Greedy answers, to the letter. A model differs from itself too, in batches of another "
        "shape: its own share stands beside.",
        Table(
            ("arm", f"as {found.baseline}'s", "as its own", "wrong", "unknown", "numeric"),
            tuple(rows),
            notes=(
                "numeric: the baseline's own choice was a near tie (0.5 nats); wrong: it was not; "
                "unknown: no log-probabilities (`specctl bench lossless --ask URL`)",
            ),
        ),
    ]
    listed += tuple(f"{a.name}: {view.unlocated(a)}" for a in found.arms if a.unlocated)
    if listed:
        blocks.append((*listed, *([f"and {more} more, in report.json"] if more else [])))
    return Section("answers", "The same answers?", report.kind, tuple(blocks))


def notes(report: Report) -> Section | None:
    """What is not in the numbers."""
    comparison = report.comparison
    if comparison is None:
        return None
    blocks: list[Block] = []
    if comparison.excluded:
        blocks.append(
            Table(
                ("row left out", "state", "why"),
                tuple((each.label, each.state, each.reason) for each in comparison.excluded),
                words=True,
            )
        )
    if comparison.notes:
        blocks.append(tuple(comparison.notes))
    return Section("left-out", "Left out, and to be known", "", tuple(blocks)) if blocks else None


def provenance(report: Report) -> Section:
    """Who measured what, where, with what."""
    result, came = report.result, report.result.provenance
    blocks: list[Block] = [
        Table(("what", "value"), tuple(_came(report)), words=True),
        Table(
            ("arm", "model", "method", "K", "draft", "engine", "GPUs"),
            tuple(_arm(arm) for arm in result.arms),
            words=True,
        ),
        Table(
            ("dataset", "source", "prompts", "sha256"),
            tuple(
                (d.name, d.source, f"{d.prompts:,}", (d.sha256 or "not known")[:16])
                for d in result.datasets
            ),
            notes=tuple(f"{d.name}: {d.note}" for d in result.datasets if d.note),
            words=True,
        ),
    ]
    commands = [
        f"# {one_line(arm.name)}\n{one_line(shlex.join(arm.command))}"
        for arm in result.arms
        if arm.command
    ]
    commands += [f"# load\n{one_line(command)}" for command in came.commands]
    if commands:
        from speccli.core.report.sections import Code

        blocks.append(Code("\n".join(commands)))
    return Section("provenance", "Provenance", "", tuple(blocks))


def _came(report: Report) -> list[tuple[str, str]]:
    """Who measured, where, under what load."""
    result, came = report.result, report.result.provenance
    load = result.load
    gpu, answers = came.gpu or {}, lengths(result)
    return [
        ("bench", f"{result.name}, {result.created} to {result.finished or 'not finished'}"),
        ("files", ", ".join(report.files)),
        ("measured by", f"{came.runner}, specctl {came.specctl}"),
        (
            "host",
            joined([str(came.host.get("cpu") or ""), _told("cores", came.host.get("cores"))]),
        ),
        (
            "GPU",
            joined([str(gpu.get("name") or ""), _told("driver", gpu.get("driver"))])
            if gpu
            else f"not known: {came.gpu_reason or 'the file does not tell'}",
        ),
        ("order", came.order or "not told"),
        (
            "sampling",
            joined(
                [
                    _told("temperature", came.temperature),
                    _told("top-p", came.top_p),
                    _told("seed", came.seed),
                    "a seed in each request" if load.request_seeds else None,
                    _told("held to the schema", load.structured),
                ]
            ),
        ),
        (
            "load",
            joined(
                [
                    f"{load.kind} loop",
                    f"{load.repeats} repeats",
                    _told("endpoint", load.endpoint),
                    f"window {load.window}",
                    _each("requests a row", load.requests, load.requests_by_load, load),
                    _told("seconds a row", load.seconds),
                    _each("warm-up requests a row", load.warmup, load.warmup_by_load, load),
                    _told("output tokens, fixed", load.output_tokens),
                    _told("max tokens", load.max_tokens),
                ]
            ),
        ),
        *([("answers", answers)] if answers is not None else []),
        ("report", f"made {report.made:%Y-%m-%d %H:%M} UTC"),
    ]


def one_line(text: str) -> str:
    """A name or a word out of a file must not become a command of its own."""
    return "".join(char if char.isprintable() else " " for char in text)


def _told(name: str, value: object) -> str | None:
    return None if value is None else f"{name} {value}"


def _each(name: str, usual: int | None, by_load: Sequence[int], load: Load) -> str | None:
    """`requests a row 20 (batch 8), 4 (batch 1)`."""
    if not by_load:
        return _told(name, usual)
    kind = "batch" if load.batches else "rate"
    at = zip(by_load, load.batches or load.rates, strict=False)
    return f"{name} {', '.join(f'{n} ({kind} {here:g})' for n, here in at)}"


def _arm(arm: Arm) -> tuple[str, ...]:
    engine = " ".join(
        str(arm.engine[k]) for k in ("kind", "version", "runner") if arm.engine.get(k)
    )
    return (
        f"{arm.name}{' (baseline)' if arm.baseline else ''}",
        arm.model or "—",
        arm.method or "—",
        f"{arm.k}" if arm.k else "—",
        arm.draft or "—",
        engine or "—",
        f"{arm.gpu_count}",
    )
