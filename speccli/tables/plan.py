"""A plan and a pair's verdicts, as `specctl plan` and `draft check` print them for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from speccli.core.plan import Plan
from speccli.core.plan.guide import guide
from speccli.core.plan.measured import Measured
from speccli.core.preflight import Verdict
from speccli.core.sizing.gpus import GIB
from speccli.core.views import format as fmt
from speccli.core.views.bench import times
from speccli.core.views.text import GLYPHS, clean
from speccli.tables.whole import Whole

_STYLES = {"warning": "yellow", "critical": "red bold", "unknown": "magenta", "info": "green"}
_VERDICTS = {"PASS": "green", "FAIL": "red bold", "INCONCLUSIVE": "yellow"}
_MODES = {"full": "green", "padded": "", "piecewise": "yellow", "eager": "red bold"}


def plan_table(plan: Plan) -> RenderableType:
    """The whole plan; the engine line follows it, as text that no terminal wraps."""
    parts: list[RenderableType] = [_head(plan), *verdict_lines(plan.verdicts), Text()]
    if plan.memory:
        parts += [_memory(plan), *_room(plan), Text()]
    if plan.graphs:
        parts += [*_graphs(plan), Text()]
    if plan.measured:
        parts += [*_measured(plan.measured), Text()]
    if plan.estimate:
        parts += [*_estimate(plan), Text()]
    parts += [Text("when to draft with what", "bold"), _guide(plan), Text()]
    parts += [Text("engine line", "bold")]
    return Group(*parts)


def pair_table(title: str, verdicts: Sequence[Verdict]) -> RenderableType:
    """A pair's verdicts."""
    head = Text(clean(title), "bold")
    if not verdicts:
        return Group(head, Text(f"{GLYPHS['ok']} nothing speaks against it", "green"))
    return Group(head, *verdict_lines(verdicts))


def _head(plan: Plan) -> Text:
    recipe = plan.facts.recipe
    k = f" K={recipe.draft.k}" if recipe.draft.k else ""
    words = (
        recipe.name,
        f"{recipe.hardware.count} x {plan.facts.gpu.title}",
        f"{recipe.draft.method}{k}" if recipe.speculates else "no speculation",
        f"{recipe.engine.kind} {recipe.engine.version}",
    )
    return Text(clean(" · ".join(words)), "bold")


def verdict_lines(verdicts: Sequence[Verdict]) -> list[RenderableType]:
    """Verdicts, each with what to do."""
    shown: list[RenderableType] = []
    for verdict in verdicts:
        style = _STYLES[verdict.severity]
        text = Text(f"{GLYPHS[verdict.severity]} {verdict.severity} {verdict.rule}", style)
        text.append(clean(f"  {verdict.evidence}: {verdict.cause}"), "default")
        if verdict.thread:
            text.append(clean(f" ({verdict.thread})"), "dim")
        shown += [text, Padding(Text(clean(f"→ {verdict.action}"), "dim"), (0, 0, 0, 2))]
    return shown


def _memory(plan: Plan) -> Table:
    memory = plan.memory
    assert memory is not None
    table = _table("memory of one GPU", "GiB", "formula", right={1})
    for item in memory.items:
        about = "~" if item.estimate else ""
        table.add_row(item.name, f"{about}{item.bytes / GIB:.2f}", Text(item.formula, "dim"))
    per = f"what is left; {memory.kv_per_token:,} B a token"
    if memory.kv_per_request:
        per += f" and {memory.kv_per_request / (1 << 20):.1f} MiB a request (sliding windows)"
    table.add_row("KV cache", f"{memory.kv_cache / GIB:.2f}", per, style="bold")
    share = plan.facts.recipe.serving.gpu_memory_utilization
    table.add_row(
        "budget",
        f"{memory.budget / GIB:.2f}",
        Text(f"{share:g} of {memory.total / GIB:.2f}; ~ is an estimate", "dim"),
    )
    return table


def _room(plan: Plan) -> list[Text]:
    memory = plan.memory
    assert memory is not None
    at = ", ".join(f"{count:,} of {length:,} tokens" for length, count in memory.concurrent_at)
    lines = [Text(f"room for {memory.kv_tokens:,} tokens; requests at once: {at}")]
    cost = plan.draft_costs_tokens
    if cost is not None and plan.without is not None and plan.without.kv_tokens:
        share = cost / plan.without.kv_tokens
        lines.append(Text(f"the draft costs {cost:,} tokens of it ({share:.0%})"))
    return lines


def _graphs(plan: Plan) -> list[RenderableType]:
    graphs, rules = plan.graphs, plan.facts.graph_rules
    assert graphs is not None
    assert rules is not None
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("CUDA graphs", no_wrap=True)
    for row in graphs.rows:
        table.add_column(str(row.batch), justify="right", no_wrap=True)
    table.add_row("tokens", *(str(row.tokens) for row in graphs.rows))
    table.add_row("captured", *(str(row.captured or "—") for row in graphs.rows))
    table.add_row("runs", *(Text(row.mode, _MODES[row.mode]) for row in graphs.rows))
    words = f"runner {rules.runner}; {graphs.needed:,} tokens at max_num_seqs"
    if graphs.flag:
        words += f"; --cudagraph-capture-sizes holds {len(graphs.flag)} sizes"
    elif not plan.facts.recipe.serving.enforce_eager:
        words += "; the engine's default covers every batch"
    return [table, Text(words, "dim")]


def _estimate(plan: Plan) -> list[RenderableType]:
    from speccli.core.sizing.roofline import error_of

    estimate, k = plan.estimate, plan.facts.recipe.draft.k
    assert estimate is not None
    assert plan.facts.target_shape is not None
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("estimate, by batch", no_wrap=True)
    for level in estimate.levels:
        table.add_column(str(level.batch), justify="right", no_wrap=True)
    table.add_row("tok/s without", *(f"{x.tokens_per_s_without:,.0f}" for x in estimate.levels))
    if estimate.length:
        table.add_row(f"tok/s, K={k}", *(f"{x.tokens_per_s:,.0f}" for x in estimate.levels))
        table.add_row("speed-up", *(_times(x.speedup) for x in estimate.levels))
        table.add_row("best K", *(str(x.best_k) for x in estimate.levels))
    if estimate.break_even:
        even = (f"{each:.2f}" if each <= k + 1 else "never" for each in estimate.break_even)
        table.add_row("tokens/step to be even", *even)
    lines: list[RenderableType] = [table]
    if estimate.length:
        words = f"at {estimate.length:.2f} tokens per step"
        if not plan.facts.target_shape.moe:
            words += "; even at batch "
            words += f"{estimate.crossover}" if estimate.crossover else "none up to max_num_seqs"
        if estimate.schedule and len(estimate.schedule) > 1:
            words += f"; K by batch {[list(row) for row in estimate.schedule]}, not in the line"
        lines.append(Text(words))
    elif k:
        lines.append(Text("nobody has measured this pair's acceptance: only what it must reach"))
    error = error_of(plan.facts.target_shape, plan.facts.gpu)
    return [*lines, Text(f"error: {error}", "dim")]


def _measured(found: Measured) -> list[RenderableType]:
    """What was measured, and how far the estimate is off."""
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("measured, by batch", no_wrap=True)
    for row in found.rows:
        table.add_column(str(row.batch), justify="right")
    rows = found.rows
    table.add_row("tok/s without", *(_rate(row.tokens_per_s_without) for row in rows))
    table.add_row(clean(f"tok/s, {found.arm}"), *(_rate(row.tokens_per_s) for row in rows))
    table.add_row("speed-up", *(times(row.speedup) for row in rows), style="bold")
    table.add_row("verdict", *(Text(row.verdict, _VERDICTS[row.verdict]) for row in rows))
    for name, errors in (
        ("estimate without is off by", [row.error_without for row in rows]),
        ("estimate with is off by", [row.error for row in rows]),
        ("its speed-up is off by", [row.error_speedup for row in rows]),
    ):
        table.add_row(name, *(_percent(error) for error in errors), style="dim")
    lines: list[RenderableType] = [table]
    if found.crossover is not None:
        lines.append(Text(clean(f"crossover against {found.baseline}: {found.crossover.words}")))
    if found.schedule is not None:
        lines.append(Text(f"K by batch, measured: {[list(row) for row in found.schedule]}"))
    lines += [Text(clean(note), "yellow") for note in found.notes]
    return lines


def _rate(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}"


def _percent(error: float | None) -> str:
    return "—" if error is None else f"{fmt.signed(100 * error)} %"


def _times(value: float) -> Text:
    return Text(f"{value:.2f}", "green" if value >= 1 else "red")


def _guide(plan: Plan) -> Table:
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, ratio in (("when (▸ as in this recipe)", 5), ("use", 3), ("because", 7)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for each in guide(plan):
        style = "bold" if each.applies else "dim"
        mark = "▸ " if each.applies else "  "
        table.add_row(Text(mark + each.when, style), Text(each.use, style), Text(each.why, style))
    return table


def _table(*columns: str, right: set[int]) -> Table:
    table = Whole(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place in right else "left")
    return table
