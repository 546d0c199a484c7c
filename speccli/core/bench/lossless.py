"""Do arms write what the baseline writes: greedy answers compared, partings located and classed.

A model differs from itself too: answers of one arm in two repeats, or in batches of another size.
That share stands beside the arm's own, so that nobody takes rounding for a fault, or hides a fault
behind rounding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from speccli.core.bench.compare import baseline_of
from speccli.core.bench.results import Result, Row
from speccli.core.bench.texts import Place, every_text, text_at
from speccli.core.lossless import Kind, Parting, parting

KINDS: tuple[Kind, ...] = ("wrong", "unknown", "numeric")
_FIRST: Place = (None, None, -1)
"""No place at all: the first text that was kept."""


@dataclass(frozen=True, slots=True)
class Share:
    """Of so many pairs of answers to the same prompt, so many are the same to the letter."""

    same: int
    pairs: int

    @property
    def differing(self) -> float | None:
        """0..1; None where there is no pair."""
        return 1 - self.same / self.pairs if self.pairs else None


@dataclass(frozen=True, slots=True)
class Located:
    """One parting."""

    prompt: str
    """`dataset/id`."""
    parting: Parting


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm beside the baseline."""

    name: str
    beside: Share
    """The baseline's answers, at the same load and repeat."""
    itself: Share
    """Its own answers in other repeats and at other loads."""
    texts: Share | None
    """Texts that were kept; None: none were."""
    partings: tuple[Located, ...]
    unlocated: int
    """Answers that differ from the baseline's, and of which the texts were not kept."""

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """Partings of each kind."""
        return Counter(each.parting.kind for each in self.partings)


@dataclass(frozen=True, slots=True)
class Lossless:
    """All arms."""

    baseline: str
    baseline_itself: Share
    arms: tuple[Arm, ...]
    why_none: str | None = None
    """Why answers cannot be compared; None where they can."""

    @property
    def wrong(self) -> int:
        """Partings that rounding cannot explain."""
        return sum(arm.kinds.get("wrong", 0) for arm in self.arms)

    @property
    def told(self) -> bool:
        """Whether every answer that differs is explained."""
        if self.why_none is not None:
            return False
        return not any(arm.unlocated or arm.kinds.get("unknown") for arm in self.arms)


def lossless(result: Result, baseline: str | None = None) -> Lossless:
    """Every arm's greedy answers beside the baseline's.

    Raises:
        UsageError: which arm is the baseline is not told.
    """
    base = baseline_of(result, baseline)
    why = _why_none(result)
    if why is not None:
        return Lossless(base, Share(0, 0), (), why)
    rows = [row for row in result.rows if row.usable and row.samples.text_sha]
    texts = result.texts or {}
    return Lossless(
        base,
        _itself(row for row in rows if row.arm == base),
        tuple(_arm(arm.name, base, rows, texts) for arm in result.arms if arm.name != base),
    )


def _why_none(result: Result) -> str | None:
    temperature = result.provenance.temperature
    if result.simulated:
        return "simulated servers write the same words whatever they are asked"
    if temperature is None:
        return "the file does not tell at which temperature was sampled"
    if temperature > 0:
        return f"sampled at temperature {temperature:g}: answers differ by chance"
    if not any(row.samples.text_sha for row in result.rows) and not result.texts:
        return "no answers were kept"
    return None


def _answers(rows: Iterable[Row]) -> dict[str, list[tuple[Place, str]]]:
    """By `dataset/id`: each answer, with the load and repeat that it is of."""
    found: dict[str, list[tuple[Place, str]]] = defaultdict(list)
    for row in rows:
        for prompt, sha in zip(row.samples.prompt, row.samples.text_sha, strict=True):
            found[f"{row.dataset}/{prompt}"].append(((row.batch, row.rate, row.repeat), sha))
    return found


def _itself(rows: Iterable[Row]) -> Share:
    same = pairs = 0
    for answers in _answers(rows).values():
        for (_, one), (_, other) in combinations(answers, 2):
            same, pairs = same + (one == other), pairs + 1
    return Share(same, pairs)


def _arm(name: str, base: str, rows: list[Row], texts: Mapping[str, Mapping[str, Any]]) -> Arm:
    ours = [row for row in rows if row.arm == name]
    theirs = _answers(row for row in rows if row.arm == base)
    mine, known = texts.get(name, {}), texts.get(base, {})
    same = pairs = unlocated = 0
    places: dict[str, list[Place]] = {}
    for prompt, answers in _answers(ours).items():
        at = dict(theirs.get(prompt, ()))
        places[prompt] = [place for place, _ in answers if place in at]
        for place, sha in answers:
            if place not in at:
                continue
            same, pairs = same + (sha == at[place]), pairs + 1
            kept = {text_at(mine.get(prompt), place), text_at(known.get(prompt), place)}
            unlocated += sha != at[place] and (len(kept) < 2 or None in kept)
    kept_, partings = _partings(mine, known, places)
    return Arm(name, Share(same, pairs), _itself(ours), kept_, partings, unlocated)


def _partings(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], places: Mapping[str, list[Place]]
) -> tuple[Share | None, tuple[Located, ...]]:
    """Where texts part, each two texts once; `places`: where both arms answered a prompt."""
    both, found = 0, []
    for prompt, mine in ours.items():
        known = theirs.get(prompt)
        pairs = [
            (text, plain)
            for place in places.get(prompt) or [_FIRST]
            if (text := text_at(mine, place)) is not None
            and (plain := text_at(known, place)) is not None
        ]
        both += bool(pairs)
        for text, plain in dict.fromkeys(pairs):
            parted = parting(text, plain)
            if parted is not None:
                found.append(Located(prompt, _classed(text, parted, known or {})))
    if not both:
        return None, ()
    found.sort(key=lambda each: (KINDS.index(each.parting.kind), each.parting.token))
    off = len({each.prompt for each in found})
    return Share(both - off, both), tuple(found)


def _classed(text: str, parted: Parting, known: Mapping[str, Any]) -> Parting:
    """With the baseline's log-probabilities; what it writes itself, elsewhere, is rounding."""
    asked = known.get("asked") or known
    if text in every_text(known) | every_text(asked):
        return replace(parted, gap=0.0)
    if asked.get("logprobs") is None:
        return parted
    return parting(text, str(asked.get("text", "")), asked["logprobs"]) or parted
