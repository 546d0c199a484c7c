"""What a row's requests and the server's counters say together: acceptance, and whose traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from speccli.core.bench.client import Answer
from speccli.core.bench.results import Acceptance, Counted
from speccli.core.bench.server import Growth
from speccli.core.stats import measures
from speccli.core.values import Number

_SLACK = 0.001
"""Share of the tokens by which counters and usage may differ: an engine's own rounding."""
_SLACK_TOKENS = 2
_APART = 0.01
"""Share by which accepted tokens may differ between answers and counters."""
_FULL = 0.9
"""Share of K that drafts must reach for positions to share one denominator."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Whether the counters tell of this row alone."""

    foreign: str | None
    """What others did meanwhile."""
    missing: str | None
    """Why the counters are not those of the server that answered."""


@dataclass(frozen=True, slots=True)
class Ours:
    """What was asked of the server in a row, warm-up and fillers included."""

    requests: int
    tokens: int
    unknown_tokens: int
    """The most that answers without usage may have held."""
    unanswered: int


def ours(answers: Iterable[Answer], max_tokens: int) -> Ours:
    """The sums over all answers of a row."""
    every = list(answers)
    failed = sum(not answer.ok for answer in every)
    tokens = sum(answer.output_tokens for answer in every if answer.ok)
    return Ours(len(every), tokens, failed * max_tokens, failed)


def traffic(growth: Growth, ours_: Ours, *, simulated: bool = False) -> Traffic:
    """Compare what the server counted with what it was asked.

    `simulated`: a simulator makes traffic of its own unless it is told not to.
    """
    if growth.subject is None:
        return Traffic(None, growth.reason)
    generated, finished = growth.sum("generation_tokens"), growth.sum("finished")
    if generated is None:
        return Traffic(None, "the server does not count generated tokens")
    slack = _SLACK_TOKENS + _SLACK * ours_.tokens
    if generated < ours_.tokens - slack:
        share = f"{generated:.0f} of {ours_.tokens} tokens"
        return Traffic(None, f"counters show {share}: several servers behind one address?")
    extra = generated - ours_.tokens - ours_.unknown_tokens
    others = 0 if finished is None else finished - ours_.requests
    if extra > slack or others > 0:
        said = [f"{max(0.0, extra):.0f} tokens"]
        if finished is not None:
            said.append(f"{max(0.0, others):.0f} finished requests")
        whole = f"of {generated:.0f} tokens counted"
        words = f"other traffic: {' and '.join(said)} that are not ours, {whole}"
        if simulated:
            words += " (the simulator's own? start it with --rate 0)"
        return Traffic(words, None)
    return Traffic(None, None)


def acceptance(
    measured: Sequence[Answer], every: Sequence[Answer], growth: Growth, whose: Traffic
) -> Acceptance:
    """Per request where the engine tells, else by the counters if they are ours alone.

    Args:
        measured: The measured requests.
        every: Warm-up and fillers too: what the counters should show.
        growth: Of the counters, over the row.
        whose: Whether they tell of this row alone.
    """
    counted = _counted(growth)
    steps = _tokens_per_step(growth, whose)
    told = [answer.speculation for answer in measured if answer.ok]
    if any(each is not None for each in told):
        found = _per_request([each or {} for each in told], steps, counted)
        return found if whose.foreign or whose.missing else _checked(found, every)
    if growth.subject is None or whose.missing or whose.foreign:
        return _nothing(whose.foreign or whose.missing or growth.reason or "unknown", counted)
    subject = growth.subject
    rate = measures.acceptance_rate(subject)
    return Acceptance(
        "none" if rate.value is None else "counters",
        rate,
        measures.acceptance_length(subject),
        measures.acceptance_by_position(subject),
        steps,
        counted.drafts if counted else None,
        counted.draft_tokens if counted else None,
        counted.accepted_tokens if counted else None,
        counted,
    )


def _nothing(reason: str, counted: Counted | None) -> Acceptance:
    nothing = Number.unknown(reason)
    return Acceptance("none", nothing, nothing, (), nothing, counters=counted)


def _tokens_per_step(growth: Growth, whose: Traffic) -> Number:
    if growth.subject is None or whose.missing or whose.foreign:
        return Number.unknown(whose.foreign or whose.missing or growth.reason or "unknown")
    return measures.tokens_per_step(growth.subject)


def _counted(growth: Growth) -> Counted | None:
    named = ("drafts", "draft_tokens", "accepted_tokens")
    found = [growth.sum(slot) for slot in named]
    known = [round(value) for value in found if value is not None]
    generated, finished = growth.sum("generation_tokens"), growth.sum("finished")
    if len(known) < len(named):
        return None
    return Counted(
        known[0],
        known[1],
        known[2],
        None if generated is None else round(generated),
        None if finished is None else round(finished),
    )


def _per_request(told: Sequence[object], steps_: Number, counted: Counted | None) -> Acceptance:
    """Sums over the measured requests: the warm-up has no part in it, nor has anybody else."""
    drafts, drafted, accepted, histogram, k = 0, 0, 0, list[int](), 0
    for each in told:
        block = each if isinstance(each, dict) else {}
        drafts += _count(block, "num_spec_steps")
        drafted += _count(block, "num_draft_tokens")
        accepted += _count(block, "num_accepted_draft_tokens")
        k = max(k, _count(block, "num_spec_tokens"))
        for i, n in enumerate(block.get("acceptance_histogram") or ()):
            histogram.extend([0] * (i + 1 - len(histogram)))
            histogram[i] += int(n)
    if not drafts or not drafted:
        return _with_steps(_nothing("nothing was drafted", counted), steps_)
    if not 0 <= accepted <= drafted:
        why = f"the answers contradict each other ({accepted} of {drafted} accepted)"
        return _with_steps(_nothing(why, counted), steps_)
    return Acceptance(
        "per-request",
        Number.known(accepted / drafted, n=drafted),
        Number.known(1 + accepted / drafts, n=drafts),
        _positions(histogram, drafts, drafted, k),
        steps_,
        drafts,
        drafted,
        accepted,
        counted,
    )


def _checked(found: Acceptance, every: Sequence[Answer]) -> Acceptance:
    """With a word where all answers together say another number than the counters."""
    if found.counters is None or found.rate.value is None or not all(a.ok for a in every):
        return found
    told = sum(_count(dict(a.speculation or {}), "num_accepted_draft_tokens") for a in every)
    counted = found.counters.accepted_tokens
    if abs(told - counted) <= _SLACK_TOKENS + _APART * counted:
        return found
    words = f"the answers tell of {told} accepted tokens, the counters of {counted}"
    return replace(found, rate=replace(found.rate, reason=words))


def _with_steps(nothing: Acceptance, steps_: Number) -> Acceptance:
    return Acceptance("none", nothing.rate, nothing.length, (), steps_, counters=nothing.counters)


def _count(block: dict[str, object], name: str) -> int:
    value = block.get(name)
    return value if isinstance(value, int) else 0


def _positions(histogram: Sequence[int], drafts: int, drafted: int, k: int) -> tuple[Number, ...]:
    """Accepted at position i / drafts, unconditional."""
    if k and drafted < _FULL * drafts * k:
        mean = drafted / drafts
        why = f"draft lengths vary ({mean:.1f} of {k} on average)"
        first = sum(histogram[1:]) / drafts
        return (
            Number.known(first, n=drafts),
            *(Number.unknown(why, n=drafts) for _ in range(1, k)),
        )
    return tuple(
        Number.known(sum(histogram[i + 1 :]) / drafts, n=drafts) for i in range(len(histogram) - 1)
    )
