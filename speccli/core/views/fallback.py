"""What would be done about a deployment, as plain values and as words: `specctl.fallback/v1`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from speccli.core.bench.results import Statistic
from speccli.core.fallback.means import Means
from speccli.core.fallback.measured import Expected
from speccli.core.fallback.moves import Move, Place, Planned
from speccli.core.fallback.present import Heard
from speccli.core.fallback.reactions import REACTIONS
from speccli.core.fallback.rungs import draft_words
from speccli.core.recipes.model import Draft
from speccli.core.views.status import finding, number

SCHEMA = "specctl.fallback/v1"


def planned(plan: Planned) -> dict[str, Any]:
    """`specctl fallback plan -o json`."""
    found, present = plan.found, plan.present
    return {
        "schema": SCHEMA,
        "name": found.record.name,
        "revision": found.record.current.number,
        "method": found.serving.method,
        "k": found.serving.k or None,
        "schedule": _schedule(found.serving),
        "down": [_place(plan, place) for place in plan.places],
        "restores_revision": found.back.number if found.back else None,
        "advised": plan.advised,
        "words": plan.words,
        "findings": [_heard(each) for each in present.findings],
        "findings_unknown": present.unknown,
        "simulated": present.simulated,
        "batch": number(present.batch),
        "running": number(present.running),
        "bench": plan.bench,
        "expected": _expected(plan.expected),
        "move": _move(plan, plan.move) if plan.move else None,
    }


def _schedule(draft: Draft) -> list[list[int]] | None:
    return [list(row) for row in draft.schedule] if draft.schedule else None


def _place(plan: Planned, place: Place) -> dict[str, Any]:
    step = place.step
    return {
        "method": step.method,
        "k": step.recipe.draft.k or None,
        "possible": not step.refusals,
        "refusals": list(step.refusals),
        "kv_tokens_gained": step.gained_tokens,
        "command": list(step.plan.line.command),
        "rung": step.name,
        "schedule": _schedule(step.recipe.draft),
        "model": step.recipe.draft.model,
        "passed_over": plan.passed(place),
        "warm": place.warm,
        "expected": _expected(place.expected),
        "speed_beside_now": asdict(place.beside.ratio),
    }


def _expected(expected: Expected) -> dict[str, Any]:
    return {
        "how": expected.how,
        "arm": expected.arm,
        "batch": expected.batch,
        "output_tokens_per_s": asdict(expected.tokens_per_s),
        "tpot_p99_s": asdict(expected.tpot_p99_s),
        "ttft_p99_s": asdict(expected.ttft_p99_s),
        "usd_per_1m_output": asdict(expected.usd_per_1m),
        "notes": list(expected.notes),
    }


def _heard(heard: Heard) -> dict[str, Any]:
    reaction = REACTIONS.get(heard.finding.code)
    way = reaction.way if reaction else None
    return {**finding(heard.finding), "source": heard.source, "way": way}


def _move(plan: Planned, move: Move) -> dict[str, Any]:
    unknown = move.means if isinstance(move.means, str) else None
    return {
        "rung": move.step.name,
        "why": move.why,
        "finding": move.heard.finding.code if move.heard else None,
        "means": None if isinstance(move.means, str) else _means(move.means),
        "means_unknown": unknown,
        "risks": list(move.risks),
        "back": move.back,
        "command": plan.command,
    }


def _means(means: Means) -> dict[str, Any]:
    low, high = means.seconds
    return {
        "mechanism": means.mechanism,
        "words": means.words,
        "downtime": means.downtime,
        "gpus_needed": means.gpus,
        "gpus_free": means.free,
        "starts": means.starts,
        "start_s": {
            "low": means.start.low_s,
            "high": means.start.high_s,
            "how": means.start.how,
            "of": means.start.words,
        },
        "seconds": {"low": low, "high": high},
    }


# ---- words ----


def headings(plan: Planned) -> Iterator[tuple[str, str]]:
    """The move, a thing a line: what it is called, and what is to be known of it."""
    move = plan.move
    if move is None:
        return
    if isinstance(move.means, str):
        yield "how", f"not known: {move.means}"
    else:
        yield "how", move.means.words
        yield "GPUs", _gpus(move.means)
        yield "time", _time(move.means)
    yield "expect", _expectation(move.place.expected)
    for risk in move.risks:
        yield "risk", risk
    yield "back", move.back


def _gpus(means: Means) -> str:
    if means.mechanism == "restart":
        return "not counted on this machine"
    if means.gpus is None:
        return "not known"
    more = "none" if means.gpus == 0 else str(means.gpus)
    told = f"{more} needed beside those in use"
    return told if means.free is None else f"{told}; {means.free} free"


def _time(means: Means) -> str:
    low, high = means.seconds
    if high == 0:
        return f"at once: nothing starts ({_span(means.start.low_s, means.start.high_s)} if it did)"
    made = f"{means.start.how}: {means.start.words}"
    if means.mechanism == "rolling" and means.starts > 1:
        return f"{_span(low, high)}: {means.starts} starts, one after the other ({made})"
    first = ", before the traffic goes there" if means.mechanism == "traffic" else ""
    return f"{_span(low, high)}: one start{first} ({made})"


def _span(low: float, high: float) -> str:
    """`140–170 s`, `8–10 min`."""
    unit, size = ("min", 60.0) if low >= 300 else ("s", 1.0)
    first, last = (f"{each / size:.0f}" for each in (low, high))
    return f"{first} {unit}" if first == last else f"{first}–{last} {unit}"


def _expectation(expected: Expected) -> str:
    if expected.tokens_per_s.value is None:
        return f"unknown: {expected.tokens_per_s.reason}"
    told = [f"{rate(expected.tokens_per_s)} tok/s a server"]
    told.append(f"TPOT p99 {milliseconds(expected.tpot_p99_s)}")
    told.append(f"TTFT p99 {milliseconds(expected.ttft_p99_s)}")
    told.append(f"{dollars(expected.usd_per_1m)} a million tokens")
    stand_in = any(note.startswith("STAND-IN") for note in expected.notes)
    how = "measured on a STAND-IN, see below" if stand_in else expected.how
    return f"{', '.join(told)}; {how}, batch {expected.batch}"


def rate(told: Statistic, *, interval: bool = True) -> str:
    """`4,853 [4,096, 5,610]`."""
    return _with_interval(told, ",.0f", 1.0, "", interval)


def milliseconds(told: Statistic, *, interval: bool = True) -> str:
    """`9.6 ms [9.3, 10.1]`."""
    most = (told.value or 0.0) * 1000
    return _with_interval(told, ",.0f" if most >= 100 else ".1f", 1000.0, " ms", interval)


def dollars(told: Statistic, *, interval: bool = True) -> str:
    """`$0.200 [0.173, 0.237]`."""
    small = told.value is not None and told.value < 1
    words = _with_interval(told, ".3f" if small else ".2f", 1.0, "", interval)
    return f"${words}" if told.value is not None else words


def _with_interval(told: Statistic, form: str, scale: float, unit: str, interval: bool) -> str:
    if told.value is None:
        return f"unknown ({told.reason})" if interval else "—"
    value = f"{told.value * scale:{form}}{unit}"
    if not interval:
        return value
    if told.low is None and told.high is None:
        return f"{value} (measured once)"
    ends = ("?" if end is None else f"{end * scale:{form}}" for end in (told.low, told.high))
    return f"{value} [{', '.join(ends)}]"


def where(plan: Planned) -> str:
    """Where it stands: the row of what serves."""
    return draft_words(plan.found.serving)


def marks(place: Place, plan: Planned) -> str:
    """What a rung is, in a word."""
    if place.step.refusals:
        return "refused"
    if plan.move is not None and place is plan.move.place:
        return "next" if plan.advised else "would be"
    if plan.passed(place):
        return "passed over"
    return "warm" if place.warm else ""


def remarks(plan: Planned) -> Iterator[str]:
    """What must be said of the rungs: why some are not stopped at, what numbers are of."""
    for place in plan.places:
        for refusal in place.step.refusals:
            yield f"{place.step.name} is refused: {refusal}"
        if (why := plan.passed(place)) is not None:
            yield f"{place.step.name} is passed over: {why}"
    if plan.found.back is not None:
        back, draft = plan.found.back.number, draft_words(plan.found.top.draft)
        command = f"specctl fallback restore {plan.found.typed}"
        yield f"back to {draft}: {command} (revision {back})"
    yield from _sources(plan)


def _sources(plan: Planned) -> Iterator[str]:
    batch = plan.present.batch
    if batch.value is not None:
        of = f" ({batch.reason})" if batch.reason else ""
        yield f"batch {batch.value:.0f}{of}"
    elif plan.bench is not None:
        yield f"the present batch is not known: {batch.reason} (--batch N)"
    if plan.bench is None:
        yield "the order of the rungs is the default, and unmeasured: no bench given (--bench FILE)"
    else:
        yield f"bench {plan.bench}, one server; intervals are 95 %"
    notes = [note for each in (plan.expected, *_all(plan)) for note in each.notes]
    yield from dict.fromkeys(notes)


def _all(plan: Planned) -> list[Expected]:
    return [place.expected for place in plan.places]


def others(plan: Planned) -> Iterator[str]:
    """Findings that are not what leads to the move."""
    told = plan.move.heard if plan.move else None
    for heard in plan.present.findings:
        if heard is not told:
            each = heard.finding
            yield f"{each.severity} {each.code} {each.subject}: {each.evidence} ({heard.source})"
