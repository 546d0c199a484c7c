"""What would be done about a deployment now, and why: the plan that a person reads at night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from speccli.core.fallback import policy, terms
from speccli.core.fallback.ladder import Ladder
from speccli.core.fallback.ladder import choose as choose_by_name
from speccli.core.fallback.measured import Bench, Expected, Faster, passed_over
from speccli.core.fallback.present import Heard, Present
from speccli.core.fallback.reactions import NOTHING, REACTIONS, Way
from speccli.core.fallback.rungs import LOOKUPS, Step, draft_words
from speccli.core.findings.spec_not_active import configured_without

if TYPE_CHECKING:
    from speccli.core.fallback.means import Means

_WORDS = {"critical": 0, "warning": 1}
"""Severities that move something, the worst first."""


class Supplies(Protocol):
    """Who knows how moves would be made."""

    def warm(self) -> str | None:
        """The rung that a standby keeps warm."""

    def means(self, step: Step) -> Means:
        """How a step would be made."""


@dataclass(frozen=True, slots=True)
class Place:
    """A rung below, with what is known of it."""

    step: Step
    expected: Expected
    beside: Faster
    """Its speed over that of what serves now."""
    slower: str | None
    """Which rung below is faster, as it was measured; None where none is, or it is refused."""
    warm: bool = False
    """Whether a standby serves it already."""

    @property
    def against(self) -> str | None:
        """What keeps it from being chosen."""
        if self.step.refusals:
            return self.step.refusals[0]
        return None if self.warm else self.slower


@dataclass(frozen=True, slots=True)
class Move:
    """One step, and everything about it that must be said beforehand."""

    place: Place
    heard: Heard | None
    """What leads to it; None where a person asks."""
    why: str
    means: Means | str
    """How it is made, or why that is not known."""
    risks: tuple[str, ...]
    back: str
    """How it is undone."""

    @property
    def step(self) -> Step:
        """The rung."""
        return self.place.step


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan."""

    found: Ladder
    present: Present
    bench: str | None
    """Name of the bench that rungs are told apart by."""
    expected: Expected
    """Of what serves now."""
    places: tuple[Place, ...]
    move: Move | None
    """What is advised; without a reason to move, what would be done if somebody asked."""
    advised: bool
    why_not: str | None
    """Why nothing is advised; None where something is."""

    @property
    def words(self) -> str:
        """The plan in a sentence."""
        name, now = self.found.record.name, draft_words(self.found.serving)
        if self.move is not None and self.advised:
            to = _called(self.move.step)
            return f"Move {name} from {now} to {to}: {self.move.why}"
        if self.unknown:
            return f"Whether {name} should leave {now} is not known: {self.why_not}"
        return f"Leave {name} at {now}: {self.why_not}"

    @property
    def unknown(self) -> bool:
        """Whether nobody could look for findings."""
        return not self.advised and bool(self.places) and self.present.unknown is not None

    def passed(self, place: Place) -> str | None:
        """Why a rung that is not refused is not stopped at; None where it is, or lies below."""
        move = self.move
        if place.step.refusals or (move is not None and place is move.place):
            return None
        if place.against is not None:
            return place.against
        heard = move.heard if move is not None and self.advised else None
        if move is None or heard is None:
            return None
        if self.places.index(place) > self.places.index(move.place):
            return None
        reaction = REACTIONS[heard.finding.code]
        if reaction.way == "down":  # it would help too
            return f"it would have to start, and {move.step.name} is warm"
        return reaction.why

    @property
    def command(self) -> str | None:
        """What makes the move."""
        if self.move is None:
            return None
        return f"specctl fallback apply {self.found.typed} --rung {self.move.step.name}"


def _called(step: Step) -> str:
    return "no speculation" if step.method == "none" else step.words


def plan_move(
    found: Ladder,
    present: Present,
    bench: Bench,
    supply: Supplies | str,
    rung: str | None = None,
) -> Planned:
    """What would be done.

    Args:
        found: The deployment's ladder.
        present: Findings and batch.
        bench: What was measured of the rungs.
        supply: What knows how a move is made, or why nothing does.
        rung: The rung that a person asks for.

    Raises:
        UsageError: a rung that is none, or that is refused.
    """
    places = tuple(_places(found, bench, None if isinstance(supply, str) else supply.warm()))
    heard = _reason(present)
    chosen, why_not = None, None
    if rung is not None:
        step = choose_by_name(found, rung)
        chosen = next(place for place in places if place.step.name == step.name)
    else:
        why_not = None if heard else _at_rest(present, places)
        way = REACTIONS[heard.finding.code].way if heard else "other"
        chosen = _choose(found, places, way)
        if chosen is None and heard is not None:
            why_not = _nowhere(found, places, heard)
    move = None if chosen is None else _move(found, present, chosen, heard, supply, asked=rung)
    return Planned(
        found,
        present,
        bench.name,
        bench.expected(found.serving),
        places,
        move,
        why_not is None and move is not None,
        why_not,
    )


def _places(found: Ladder, bench: Bench, warm: str | None) -> Iterator[Place]:
    able = [step for step in found.down if not step.refusals]
    drafts = [step.recipe.draft for step in able]
    for step in found.down:
        draft = step.recipe.draft
        yield Place(
            step,
            bench.expected(draft),
            bench.faster(draft, found.serving),
            None if step.refusals else passed_over(bench, drafts, able.index(step), found.serving),
            step.name == warm,
        )


def _reason(present: Present) -> Heard | None:
    """The finding that leads to a move: the worst, then in the order of what is sure."""
    order = list(REACTIONS)
    moving = [
        each
        for each in present.findings
        if each.finding.code in REACTIONS
        and each.finding.severity in _WORDS
        and not configured_without(each.finding)
    ]
    return min(
        moving,
        key=lambda each: (_WORDS[each.finding.severity], order.index(each.finding.code)),
        default=None,
    )


def _at_rest(present: Present, places: Sequence[Place]) -> str:
    if not places:
        return "there is nothing below it"
    if present.unknown is not None:
        return f"{present.unknown} (--finding CODE says what is wrong)"
    told = [each.finding for each in present.findings if each.finding.severity in _WORDS]
    if not told:
        return "nothing speaks against it"
    because = NOTHING.get(told[0].code)
    if configured_without(told[0]):
        because = "what serves has no draft that could be bad: deploy what the recipe says"
    return f"{told[0].code} moves nothing" + (f": {because}" if because else "")


def _choose(found: Ladder, places: Sequence[Place], way: Way) -> Place | None:
    """As the watch would."""
    here = found.serving
    top = found.top.draft
    own = top.method != "none" and (here.method, here.model) == (top.method, top.model)
    ladder = (
        terms.Step("here", here.method, here.k, here.schedule is not None, own=own),
        *(
            terms.Step(
                place.step.name,
                place.step.method,
                place.step.recipe.draft.k,
                place.step.recipe.draft.schedule is not None,
                place.against,
                place.step.own,
            )
            for place in places
        ),
    )
    warm = next((i + 1 for i, place in enumerate(places) if place.warm), None)
    number = found.record.current.number
    at = policy.choose(terms.Situation("", number, ladder, 0, standby=warm), way)
    return None if at is None else places[at - 1]


def _nowhere(found: Ladder, places: Sequence[Place], heard: Heard) -> str:
    code = heard.finding.code
    if not places:
        return f"{code}, and there is nothing below it: the draft is not the cause"
    told = "; ".join(f"{place.step.name}: {place.against}" for place in places if place.against)
    return f"{code}, and no rung below helps" + (f" ({told})" if told else "")


def _move(
    found: Ladder,
    present: Present,
    place: Place,
    heard: Heard | None,
    supply: Supplies | str,
    *,
    asked: str | None,
) -> Move:
    if asked is not None:
        why = "asked for"
    elif heard is not None:
        finding = heard.finding
        why = f"{finding.code} on {finding.subject}: {finding.evidence} ({heard.source})"
        if heard.source == "by hand":
            why = f"{finding.code}, named by hand"
    else:
        why = "if it must move"
    means = supply if isinstance(supply, str) else supply.means(place.step)
    return Move(
        place,
        heard,
        why,
        means,
        tuple(_risks(found, place, heard, means)),
        _back(found, means),
    )


def _risks(found: Ladder, place: Place, heard: Heard | None, means: Means | str) -> Iterator[str]:
    step = place.step
    if not isinstance(means, str):
        yield from means.risks
    if place.warm and place.slower:
        yield f"{place.slower}, but this one is warm"
    slower = place.beside.ratio.value
    if slower is not None and slower < 1:
        yield f"{place.beside.words('as what serves now')}, when that is in order"
    if step.own and heard is not None:
        yield "the same draft with fewer tokens: a bench of it was of a draft in order"
    if step.method in LOOKUPS and place.expected.tokens_per_s.value is None:
        yield "n-gram may be slower than no speculation (vllm#27379, #19254): not measured here"
    if step.recipe.draft.schedule is not None:
        yield "changing K by batch collapsed under concurrency in one report (vllm#49548)"
    if step.gained_tokens is not None and step.gained_tokens < 0:
        yield f"{-step.gained_tokens:,} tokens of KV cache fewer a server (estimate)"
    if heard is not None and heard.finding.code == "ENGINE_DOWN":
        yield f"only where the log blames speculation: specctl status {found.typed}"


def _back(found: Ladder, means: Means | str) -> str:
    if not isinstance(means, str) and means.mechanism == "traffic":
        how = "the main pool stays as it is, and takes the traffic back when a canary has passed"
    else:
        number = (found.back or found.record.current).number
        here = not isinstance(means, str) and means.mechanism == "restart"
        way = "proven before it gets requests" if here else "through a canary first"
        how = f"revision {number} again, {way}"
    return f"specctl fallback restore {found.typed}: {how}"
