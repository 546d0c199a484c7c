"""What a report says in sentences: the answer first, then what to do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.bench.compare import FEW, Comparison
from speccli.core.bench.crossover import BELOW, BEYOND, Crossover
from speccli.core.bench.pairing import Load
from speccli.core.report import advice as advised
from speccli.core.report.advice import Advice, advice, batches, listed, span
from speccli.core.report.build import Report
from speccli.core.views import format as fmt
from speccli.core.views.bench import delta_ms, load_words, times

STAND_IN = "STAND-IN:"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a reader in a hurry looks at."""

    name: str
    value: str
    note: str


def title(report: Report) -> str:
    """`Is speculation worth it on MODEL?`."""
    models = {arm.model for arm in report.result.arms if arm.model}
    return f"Is speculation worth it on {models.pop()}?" if len(models) == 1 else report.result.name


def badge(report: Report) -> str | None:
    """What no reader may miss; None where numbers are what they seem to be."""
    if report.result.simulated:
        return "SIMULATED: made by specctl's simulator; these numbers say nothing about any GPU"
    if report.result.stand_in:
        return f"{STAND_IN} {report.result.stand_in}"
    return None


def answer(report: Report) -> str:
    """One sentence."""
    comparison = report.comparison
    if comparison is None:
        return f"Arms cannot be compared: {report.why_no_comparison}."
    best, base = best_arm(comparison), plain_name(comparison)
    if best is None:
        words = {cell.verdict.word for cell in comparison.cells}
        arm = max(comparison.arms, key=lambda each: len(_in_part(comparison, each)), default="")
        if part := _in_part(comparison, arm):
            fast = f"over {comparison.target:g} times as fast as {base}"
            return f"In part: {arm} is {fast} {'; '.join(part)}."
        if words == {"FAIL"}:
            return f"No: no arm is {comparison.target:g} times as fast as {base}."
        return (
            f"Not shown: at no load is an arm certain to be {comparison.target:g} times as fast "
            f"as {base}."
        )
    told = advice(comparison, best)
    first = _does(comparison, advised.spans(comparison, best, told.faster[:1]))
    does = f"{best} {first}"
    if told.faster[1:]:
        does += f" at {batches(told.faster[:1])}"
        last = advised.spans(comparison, best, told.faster[-1:])
        does += f" and {last} at {load_words(told.faster[-1])}"
    parts = [f"Yes, {advised.where(told)}: {does}."]
    if part := _in_part(comparison, best, told):
        parts.append(f"Faster {'; '.join(part)}.")
    parts += _turned(comparison, told)
    if doubt := advised.doubt(comparison, told):
        parts.append(f"That it pays is {doubt}.")
    return " ".join(parts)


def split(text: str) -> tuple[str, str]:
    """An answer's first sentence, and the rest."""
    first, stop, rest = text.partition(". ")
    return (f"{first}.", rest) if stop else (text, "")


def _turned(comparison: Comparison, told: Advice) -> Iterable[str]:
    """Where it is to be turned off, and where nobody can say."""
    turns = advised.turns(told)
    if told.slower:
        rate = advised.lost(comparison, told)
        yield f"Turn it off {advised.off(told)}, where it is slower ({rate})" + (
            f"; it turns at {turns}." if turns else "."
        )
    elif turns:
        yield f"It may turn at {turns}: not certain."
    unsure = [load for load in told.open if not _passes_in_part(comparison, told.arm, load)]
    if unsure:
        yield f"Not told at {advised.not_told(comparison, told, unsure)}."


def _passes_in_part(comparison: Comparison, arm: str, load: Load) -> bool:
    return any(cell.verdict.word == "PASS" for cell in comparison.of(arm, load))


def _in_part(comparison: Comparison, arm: str, known: Advice | None = None) -> list[str]:
    """The loads at which it passes on some datasets, not on all, with what it does there.

    Not where it is `known` to be faster on all, by intervals taken alone.
    """
    told = []
    for load in comparison.loads:
        if known is not None and load in known.faster:
            continue
        cells = comparison.of(arm, load)
        rates = [cell.speedup.value or 0 for cell in cells if cell.verdict.word == "PASS"]
        if not rates or len(rates) == len(cells):
            continue
        unsure = [cell.dataset for cell in cells if cell.verdict.word == "INCONCLUSIVE"]
        under = [cell.dataset for cell in cells if cell.verdict.word == "FAIL"]
        rest = [f"not certain on {listed(unsure)}"] if unsure else []
        rest += [f"under {comparison.target:g} on {listed(under)}"] if under else []
        told.append(
            f"at {batches([load])} on {len(rates)} of {len(cells)} datasets "
            f"({span(rates)} times; {' and '.join(rest)})"
        )
    return told


def _does(comparison: Comparison, span: str) -> str:
    """`yields 1.2 to 1.9 times as many output tokens per second as no speculation`."""
    base = plain_name(comparison)
    if {cell.measure for cell in comparison.cells} == {"TPOT"}:
        return f"decodes {span} times as fast as {base} (TPOT)"
    return f"yields {span} times as many output tokens per second as {base}"


def plain_name(comparison: Comparison) -> str:
    """`no speculation` where that is what the baseline is, else its name."""
    method = comparison.result.arm(comparison.baseline).method
    return "no speculation" if method == "none" else comparison.baseline


def best_arm(comparison: Comparison) -> str | None:
    """The arm that passes at most loads, the faster of those that pass at as many."""

    def score(arm: str) -> tuple[int, float]:
        passed = _loads(comparison, arm, "PASS")
        cells = [cell for load in passed for cell in comparison.of(arm, load)]
        return len(passed), sum(cell.speedup.value or 0 for cell in cells)

    best = max(comparison.arms, key=score, default=None)
    return best if best is not None and score(best)[0] else None


def _loads(comparison: Comparison, arm: str, word: str) -> list[Load]:
    return [
        load
        for load in comparison.loads
        if comparison.of(arm, load) and comparison.word(arm, load) == word
    ]


def figures(report: Report) -> list[Figure]:
    """At most six, of the best arm; fewer where less is known."""
    comparison = report.comparison
    best = best_arm(comparison) if comparison else None
    if comparison is None or best is None:
        return []
    passed = _loads(comparison, best, "PASS")
    fastest = max(
        (cell for cell in comparison.cells if cell.arm == best and cell.verdict.word == "PASS"),
        key=lambda cell: cell.speedup.value or 0,
    )
    value, told = times(fastest.speedup).partition(" ")[::2]
    place = f"{best}, {batches([fastest.load])}, {fastest.dataset}"
    known = advice(comparison, best)
    measured = f"measured at {listed([load_words(load) for load in known.loads])}"
    found = [
        Figure("pays", advised.where(known).partition(",")[0], f"{best}, {measured}"),
        Figure("largest speed-up", f"{value} ×", joined([told, place])),
    ]
    found += _crossover(comparison, best)
    found += _saving(report, best, passed[-1])
    found += _accepted(report, best)
    found += _tail(comparison, best, passed[-1])
    return found


def _crossover(comparison: Comparison, arm: str) -> Iterable[Figure]:
    """Where it turns first, on which dataset, and what that rests on."""
    places = {dataset: found for name, dataset, found in comparison.crossovers if name == arm}
    if not places:
        return
    where = min(places, key=lambda dataset: places[dataset].place)
    first = places.pop(where)
    inside = first.place not in {BELOW, BEYOND}
    notes = ["batch, interpolated" if inside else "batches measured"]
    if places:
        notes[0] += f" on {where}"
        others: dict[str, list[str]] = {}
        for dataset, found in places.items():
            others.setdefault(_turn(found), []).append(dataset)
        notes += [f"{turn} on {listed(names)}" for turn, names in others.items()]
    of = {cell.batch: cell for cell in comparison.of(arm) if cell.dataset == where}
    near = first.between or ((first.least,) if first.place == BELOW else ())
    unsure = [at for at in near if at in of and of[at].verdict.word == "INCONCLUSIVE"]
    if unsure:
        are = "is" if len(unsure) == 1 else "are"
        notes.insert(1, f"{batches([(at, None) for at in unsure])} there {are} INCONCLUSIVE")
    yield Figure(
        "slower than the baseline from", f"{'~ ' if inside else ''}{first.words}", "; ".join(notes)
    )


def _turn(found: Crossover) -> str:
    if found.place == BEYOND:
        return f"not up to {found.most}, the largest measured,"
    return f"from {found.least}" if found.place == BELOW else f"from {found.place:.0f}"


def _saving(report: Report, arm: str, load: Load) -> Iterable[Figure]:
    assert report.comparison is not None
    by_arm = {
        level.arm: level.usd_per_1m_output.value
        for level in report.economics.levels
        if level.load == load
    }
    ours, theirs = by_arm.get(arm), by_arm.get(report.comparison.baseline)
    if ours is None or theirs is None:
        return
    share = ours / theirs - 1
    yield Figure(
        "cost of 1M output tokens",
        f"${fmt.usd(ours)}",
        f"{100 * abs(share):.0f} % {'less' if share < 0 else 'more'} than "
        f"{plain_name(report.comparison)} (${fmt.usd(theirs)}), {batches([load])}, always busy",
    )


def _accepted(report: Report, arm: str) -> Iterable[Figure]:
    told = [each for each in report.acceptance if each.arm == arm]
    rates = [each.rate.value for each in told if each.rate.value is not None]
    lengths = [each.length.value for each in told if each.length.value is not None]
    if rates and lengths:
        yield Figure(
            "draft tokens accepted",
            _percent(rates),
            f"acceptance length {span(lengths)}, {len(told)} "
            f"{'dataset' if len(told) == 1 else 'datasets'}",
        )


def _percent(values: Sequence[float]) -> str:
    low, high = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _tail(comparison: Comparison, arm: str, load: Load) -> Iterable[Figure]:
    cells = [c for c in comparison.of(arm, load) if c.tpot_p99.delta.value is not None]
    if not cells:
        return
    worst = max(cells, key=lambda cell: cell.tpot_p99.delta.value or 0)
    without, with_ = worst.tpot_p99.without, worst.tpot_p99.with_
    assert without is not None
    assert with_ is not None
    yield Figure(
        "p99 of TPOT",
        f"{1000 * without:.1f} → {1000 * with_:.1f} ms",
        f"{delta_ms(worst.tpot_p99.delta)} ms, {batches([load])}, {worst.dataset}",
    )


def actions(report: Report) -> list[str]:
    """What to do, the most urgent first."""
    comparison, found = report.comparison, list[str]()
    if report.lossless is not None and report.lossless.wrong:
        found.append(
            f"Do not ship yet: {report.lossless.wrong} greedy answers differ where rounding cannot "
            "explain it. See that both arms serve the same weights, then `specctl kernels check`."
        )
    client = report.result.provenance.client
    if client is not None and client.saturated:
        found.append(
            f"Measure again where the load generator has room: it was held up ({client.reason})."
        )
    if not report.result.complete:
        found.append("The bench did not finish: `specctl bench run --resume` goes on with it.")
    if comparison is None:
        return found
    best = best_arm(comparison)
    if best is not None:
        found += _use(report, comparison, best)
    unsure = [
        (arm, load) for arm in comparison.arms for load in _loads(comparison, arm, "INCONCLUSIVE")
    ]
    if unsure:
        names = ", ".join(f"{arm} at {load_words(load)}" for arm, load in unsure[:6])
        more = f" and {len(unsure) - 6} more" if len(unsure) > 6 else ""
        found.append(f"Measure again with more repeats or prompts: {names}{more}.")
    if comparison.excluded:
        found.append(
            f"{len(comparison.excluded)} rows are in no comparison; they are listed below with why."
        )
    return found


def _use(report: Report, comparison: Comparison, best: str) -> Iterable[str]:
    told = advice(comparison, best)
    if told.from_the_least and told.faster[1:] and told.faster[0][0] is not None:
        ends = f"{load_words(told.faster[0])} to {load_words(told.faster[-1])} requests at once"
        measured = ", ".join(map(load_words, told.faster))
        yield f"Serve with {best} while a server has {ends} (measured at {measured})."
    else:
        yield f"Serve with {best} at {batches(told.faster)}."
    if doubt := advised.doubt(comparison, told):
        yield f"That is {doubt}: measure again where more depends on it."
    if narrow := advised.narrow(comparison, told):
        yield f"Measured: {narrow}."
    schedule = report.schedule
    if schedule is not None and schedule.needed and schedule.k:
        rows = ", ".join(f"K = {k} for {first} to {last}" for first, last, k in schedule.rows)
        yield f"Let K fall with the batch: {rows} (~, measured around each change)."
        if schedule.refused:
            yield f"Not with what was measured: {schedule.refused}."
    else:
        yield from _elsewhere(comparison, told)
    yield from advised.beside(comparison, best)


def _elsewhere(comparison: Comparison, told: Advice) -> Iterable[str]:
    """What to do where the best arm does not pay: another one may; slower is not under."""
    left = [load for load in told.loads if load not in told.faster]
    for load in list(left):
        others = [arm for arm in comparison.arms if load in _loads(comparison, arm, "PASS")]
        if others:
            left.remove(load)
            fastest = max(
                others, key=lambda arm: min(c.speedup.value or 0 for c in comparison.of(arm, load))
            )
            yield f"At {batches([load])} serve with {fastest}: {told.arm} does not pay there."
    if slower := [load for load in told.slower if load in left]:
        turns = advised.turns(told)
        yield (
            f"{_from(told) if slower == [*told.slower] else f'At {batches(slower)}'} serve without "
            "a draft, or with a smaller K (`specctl bench schedule` on a sweep of K), or add "
            "servers before batches grow so far" + (f"; it turns at {turns}." if turns else ".")
        )
        if doubt := advised.alone(slower, told.surely):
            yield f"Slower {doubt.removeprefix(', ')}: not certain among all comparisons."
    if under := [load for load in told.under if load in left]:
        yield (
            f"At {batches(under)} {told.arm} is under the target of {comparison.target:g}, which "
            "is not to say slower than none: the intervals tell."
        )
    if unsure := [load for load in told.open if load in left]:
        yield (
            f"At {advised.not_told(comparison, told, unsure)} it is not told whether {told.arm} "
            "is faster or slower: measure there before you rely on either."
        )


def _from(told: Advice) -> str:
    text = advised.off(told)
    return text[0].upper() + text[1:] + ("," if "," in text else "")


def verdict_words(comparison: Comparison) -> str:
    """How to read PASS and FAIL."""
    told = (
        f"PASS: the speed-up is over {comparison.target:g}; FAIL: it is under; each held to 2.5 % "
        f"false ones over all {len(comparison.cells)} comparisons here by Holm's procedure, which "
        "asks more than that the 95 % interval of one, as it is printed, clears the target. "
        "INCONCLUSIVE: this bench cannot tell."
    )
    few = min((cell.repeats for cell in comparison.cells), default=0)
    return f"{told} {FEW[0].upper()}{FEW[1:]}." if few == 2 else told


def joined(parts: Sequence[str]) -> str:
    """Parts that say something, between commas."""
    return ", ".join(part for part in parts if part)


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))
