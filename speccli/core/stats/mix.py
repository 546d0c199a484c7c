"""Traffic or draft: what the mix of prompts and the shape over positions say of a fall.

Two things can be read from counters: the mean prompt of the requests that got their first token,
and acceptance by position. Where the baseline saw prompts of that length, it says what acceptance
to expect of them; what is left after that is not the mix's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from speccli.core.stats.drift import Look

Kind = Literal["draft", "traffic", "unclear"]
_ENOUGH_REQUESTS = 100.0
"""Requests that a mean prompt is taken over at least: few requests make a wild mean."""
_BIN_LOOKS = 2
"""Looks a bin needs before anything is expected of it."""
_SAME = 1.25
"""Mean prompts within this factor of the baseline's are the same mix."""
_MOVED = 1.5
"""Beyond this factor they are another one."""
_ONE_PROMPT = 1.4
"""How far a prompt's length scatters about its mean, in means: first turns of ShareGPT do."""
_HELD = 0.96
"""Position 0 has held when it has this share of its old acceptance."""
_BROKEN = 0.85
"""Later positions, given the ones before, have broken when they have less than this share."""


@dataclass(frozen=True, slots=True)
class PromptBin:
    """Acceptance of the baseline while the mean prompt lay in a range."""

    low: float
    """Lower edge, tokens."""
    high: float
    prompt_tokens: float
    """Mean prompt inside it."""
    rate: float
    drafts: float
    looks: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whose fault a fall is."""

    kind: Kind
    words: str
    """Why, one clause."""


@dataclass(slots=True)
class Mix:
    """The mean prompt of late, over enough requests to mean something."""

    prompt_tokens: float = 0.0
    requests: float = 0.0

    def take(self, look: Look) -> float | None:
        """One look; returns the mean prompt as of it, None where nobody tells."""
        if look.prompt_mean is None:
            return None
        kept = max(0.0, 1.0 - look.requests / _ENOUGH_REQUESTS)
        self.prompt_tokens = self.prompt_tokens * kept + look.prompt_tokens
        self.requests = self.requests * kept + look.requests
        return self.prompt_tokens / self.requests

    def to_json(self) -> list[float]:
        """Its whole state."""
        return [self.prompt_tokens, self.requests]

    @classmethod
    def from_json(cls, value: Any) -> Mix:
        """The mix of a state; ValueError or TypeError where it is none."""
        prompt_tokens, requests = (float(x) for x in value)
        if not (math.isfinite(prompt_tokens) and math.isfinite(requests)):
            raise ValueError("not a mix")
        return cls(prompt_tokens, requests)


def bin_edges(prompt: float) -> tuple[float, float]:
    """The range a mean prompt falls in: four to a doubling."""
    step = math.floor(4 * math.log2(max(1.0, prompt)))
    return 2.0 ** (step / 4), 2.0 ** ((step + 1) / 4)


def expected_rate(bins: Sequence[PromptBin], prompt: float | None) -> float | None:
    """The baseline's acceptance for prompts of this mean length; None where it saw none such."""
    known = sorted((b for b in bins if b.looks >= _BIN_LOOKS), key=lambda b: b.prompt_tokens)
    if prompt is None or not known or not known[0].low <= prompt <= known[-1].high:
        return None
    if prompt <= known[0].prompt_tokens:
        return known[0].rate
    for a, b in zip(known, known[1:], strict=False):
        if prompt <= b.prompt_tokens:
            if a.high < b.low and a.high < prompt < b.low:
                return None  # between two mixes that were seen lies one that was not
            share = math.log(prompt / a.prompt_tokens) / math.log(b.prompt_tokens / a.prompt_tokens)
            return a.rate + share * (b.rate - a.rate)
    return known[-1].rate


def conditional(positions: Sequence[float]) -> list[float]:
    """Acceptance at each position given all before it, from unconditional rates."""
    before, result = 1.0, []
    for rate in positions:
        if before <= 0:
            break
        result.append(rate / before)
        before = rate
    return result


def later_broke(was: Sequence[float], now: Sequence[float]) -> bool | None:
    """Whether position 0 holds while later ones fall; None where positions are not known.

    Harder text is harder from the first token on: this is the drafting itself.
    """
    old, new = conditional(was), conditional(now)
    if len(old) < 2 or len(new) < 2 or min(old) <= 0 or min(new) <= 0:
        return None
    ratios = [b / a for a, b in zip(old, new, strict=False)]
    later = math.exp(sum(map(math.log, ratios[1:])) / len(ratios[1:]))
    return ratios[0] >= _HELD and later < _BROKEN


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a fall when its cause is asked."""

    rate: float
    """Acceptance since it began."""
    was: float
    """The baseline's, whatever the mix."""
    expected: float | None
    """The baseline's for the mix seen; None where it saw no such mix."""
    prompt: float | None
    """Mean prompt since it began."""
    prompt_was: float | None
    positions: tuple[float, ...]
    """By position since it began, unconditional."""
    positions_were: tuple[float, ...]
    proven: bool
    """Whether the fall beyond what the mix explains is proven on its own."""
    requests: float | None = None
    """That the mean prompt is of; None: enough."""


def verdict(seen: Seen) -> Verdict | None:
    """Whose fault the fall is; None where it is too early to say so much as `unclear`."""
    broke = later_broke(seen.positions_were, seen.positions)
    if seen.expected is not None:
        return _by_expectation(seen, seen.expected)
    moved = _moved(seen)
    if moved is None:
        if broke:
            return Verdict("draft", _LATER)
        return Verdict("unclear", "the prompt mix is not known, here or in the baseline")
    prompts = f"prompts of {seen.prompt:,.0f} tokens against {seen.prompt_was:,.0f}"
    if moved <= _SAME:
        return Verdict("draft", f"the prompt mix is the baseline's ({prompts})")
    if broke:
        return Verdict("unclear", f"{prompts} on average, but {_LATER}")
    if moved >= _MOVED and _by_chance(moved, seen.requests):
        few = f"{prompts} on average, of {seen.requests:,.0f} requests, which may be chance"
        return Verdict("unclear", few)
    if moved >= _MOVED:
        return Verdict(
            "traffic",
            f"the mix moved to where the baseline saw nothing: {prompts} on average, and every "
            "position fell alike",
        )
    return Verdict("unclear", f"the prompt mix moved somewhat ({prompts} on average)")


_LATER = "position 0 holds while later ones fell, which harder text does not do"


def _by_expectation(seen: Seen, expected: float) -> Verdict | None:
    explained, fall = seen.was - expected, seen.was - seen.rate
    told = f"for prompts of {seen.prompt or 0:,.0f} tokens the baseline has {expected:.3f}"
    if seen.proven:
        part = f"; the mix explains {100 * explained:.1f} of {100 * fall:.1f} points"
        return Verdict("draft", told + (part if explained > 0.1 * fall else ""))
    if fall > 0 and explained >= 0.5 * fall:
        return Verdict("traffic", f"{told}, and {seen.rate:.3f} is seen")
    return None


def _by_chance(moved: float, requests: float | None) -> bool:
    """Whether so few requests of the old mix could have a mean that is off by this factor.

    A fall may be proven by a dozen requests; that their prompts are others must be shown too.
    """
    return requests is not None and math.log(moved) * math.sqrt(requests) < 2 * _ONE_PROMPT


def _moved(seen: Seen) -> float | None:
    """By what factor the mean prompt moved, up or down; None where either is unknown."""
    if not seen.prompt or not seen.prompt_was:
        return None
    return max(seen.prompt / seen.prompt_was, seen.prompt_was / seen.prompt)
