"""`skill-inference-server.md`: what an assistant must know to run this server, and no more.

Only what was measured, or what the bench's own file says, is in it; what is missing is said, so
that nobody fills it in.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable

from speccli.core.bench.compare import Comparison
from speccli.core.bench.lengths import lengths
from speccli.core.bench.results import Arm
from speccli.core.report import rerun, words
from speccli.core.report.build import KINDS, Report
from speccli.core.report.markdown import block, footer, plain, table
from speccli.core.report.sections import Table, matrix
from speccli.core.report.sections_more import acceptance, one_line
from speccli.core.views import bench as view


def card(report: Report) -> str:
    """The whole card."""
    comparison = report.comparison
    best = words.best_arm(comparison) if comparison is not None else None
    arm = report.result.arm(best) if best else None
    base, badge = report.result.baseline, words.badge(report)
    parts = [
        _head(report, arm),
        f"# Running {plain(_model(report))}",
        f"> **{plain(badge)}**" if badge else "",
        plain(words.answer(report)),
        "## Recipe",
        _recipe(report, arm or base),
        "## Commands",
        _commands(report, arm, base),
        "## Decision guide",
        "\n".join(f"- {plain(line)}" for line in _guide(report, best)),
        "## Limits",
        "\n".join(f"- {plain(line)}" for line in _limits(report)),
        f"## Measured numbers {report.mark}",
        *_numbers(report),
        f"*{plain(footer(report))}*",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _model(report: Report) -> str:
    models = sorted({arm.model for arm in report.result.arms if arm.model})
    return " and ".join(models) or report.result.name


def _head(report: Report, arm: Arm | None) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", _model(report).lower()).strip("-")[:48]
    method = f"with {arm.method}" if arm is not None and arm.method else "without a draft"
    what = (
        f"Run, check and judge an inference server of {_model(report)} {method}. Use when asked to "
        "start it, to choose whether and how to speculate, to size batches, or to tell whether it "
        f"is healthy. Numbers are {KINDS[report.kind][1]}."
    )
    return f"---\nname: inference-server-{slug}\ndescription: {json.dumps(what)}\n---"


def _recipe(report: Report, arm: Arm | None) -> str:
    if arm is None:
        return "No arm of the bench is known well enough to be started again."
    engine = " ".join(
        str(arm.engine[k]) for k in ("kind", "version", "runner") if arm.engine.get(k)
    )
    gpu = (report.result.provenance.gpu or {}).get("name")
    drafted = [("draft", arm.draft), ("K (draft tokens a step)", arm.k)]
    rows = [
        ("model", arm.model),
        ("method", arm.method),
        *(drafted if arm.method != "none" else ()),
        ("engine", engine),
        ("GPU", f"{arm.gpu_count} × {gpu}" if gpu else f"{arm.gpu_count}, kind not told"),
        ("longest context, tokens", arm.max_model_len),
    ]
    return table(
        Table(
            ("what", "value"),
            tuple((name, str(value) if value else "not told by the bench") for name, value in rows),
            words=True,
        )
    )


def _commands(report: Report, arm: Arm | None, base: Arm | None) -> str:
    lines = []
    for each, what in ((arm, "with speculation"), (base, "without, the fallback")):
        if each is None:
            continue
        if each.command:
            lines += [f"# start, {what} ({each.name})", shlex.join(map(one_line, each.command))]
        else:
            lines.append(f"# how {each.name} ({what}) was started is not in the bench")
    schedule = report.schedule
    if schedule is not None and schedule.needed and schedule.k:
        config = words.compact(schedule.config())
        lines += ["# K by batch: add these keys to --speculative-config", f"# {config}"]
    url = shlex.quote(rerun.address(arm))
    lines += [
        "# is speculation on, and right?",
        f"specctl status --endpoint {url}",
        f"specctl alert check --endpoint {url}    # exit 0 ok, 1 warning, 2 critical, 3 unknown",
        f"specctl top --endpoint {url}            # the live screen",
        "# judge again after any change of engine, model, draft, K or GPU",
        *rerun.lines(report.result),
    ]
    text = "\n".join(map(one_line, lines)).replace("```", "` ` `")
    return f"```sh\n{text}\n```"


def _guide(report: Report, best: str | None) -> Iterable[str]:
    comparison = report.comparison
    if comparison is None:
        yield f"Whether to speculate is not known: {report.why_no_comparison}."
        return
    yield from words.actions(report)
    if best is None:
        yield f"Serve {comparison.baseline} until an arm passes."
    for arm, dataset, found in comparison.crossovers:
        if arm == best:
            how = " (interpolated)" if found.between else ""
            yield f"Batch from which {arm} is slower on {dataset}: {found.words}{how}."
    accepted = [
        f"{each.rate.value:.3f} ({each.dataset})"
        for each in report.acceptance
        if each.arm == best and each.rate.value is not None
    ]
    if accepted:
        yield (
            f"Acceptance was {', '.join(accepted)}. Traffic differs: record a baseline of it "
            "(`specctl baseline record`) before an alarm on acceptance."
        )


def _limits(report: Report) -> Iterable[str]:
    result, load = report.result, report.result.load
    loads = load.batches or load.rates
    yield (
        f"Measured at {'batches' if load.batches else 'rates'} "
        f"{', '.join(f'{each:g}' for each in loads)} only; nothing is known beyond."
    )
    prompts = [
        f"{each.name} (mean prompt {each.prompt_tokens_mean.value:.0f} tokens)"
        if each.prompt_tokens_mean.value is not None
        else each.name
        for each in result.datasets
    ]
    yield f"Prompts: {', '.join(prompts)}. Longer prompts, other languages, tools: not measured."
    temperature = result.provenance.temperature
    told = "not told" if temperature is None else f"{temperature:g}"
    yield f"Temperature {told}; no other was measured."
    answers = lengths(result)
    if answers is not None:
        yield f"{answers[0].upper()}{answers[1:]}."
    if report.lossless is None or report.lossless.why_none is not None:
        why = report.lossless.why_none if report.lossless is not None else "no baseline"
        yield f"Whether answers stay the same was not compared: {why}."
    untried = ["LoRA", "multimodal input", "log-probabilities"]
    if load.structured is None:
        untried.insert(0, "structured output")
    yield f"Not measured: {', '.join(untried)}."
    if report.comparison is not None and report.comparison.excluded:
        yield f"{len(report.comparison.excluded)} rows failed or were contaminated; see report.md."


def _numbers(report: Report) -> Iterable[str]:
    if report.comparison is not None:
        yield table(matrix(report.comparison))
        yield _speed(report.comparison)
    accepted = acceptance(report)
    if accepted is not None:
        yield block(accepted.blocks[-1])


def _speed(comparison: Comparison) -> str:
    return table(
        Table(
            ("dataset", "batch", "arm", "speed-up", "p99 TPOT, ms", "p99 TTFT, ms"),
            tuple(
                (
                    cell.dataset,
                    view.load_words(cell.load),
                    cell.arm,
                    view.times(cell.speedup),
                    view.delta_ms(cell.tpot_p99.delta),
                    view.delta_ms(cell.ttft_p99.delta),
                )
                for cell in comparison.cells
            ),
            keys=3,
        )
    )
