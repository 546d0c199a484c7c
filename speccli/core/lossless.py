"""Where two greedy answers part, and whether rounding can have done it.

The one without speculation tells its tokens with the log-probabilities of a few candidates; where
the other's text parts, the gap between its own choice and the other's says why. Batches of another
shape round differently, so a near tie may fall either way (vllm#7627); a clear choice may not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

NEAR_TIE = 0.5
"""Nats up to which bfloat16 logits of another batch shape have been seen to change places."""
CANDIDATES = 5
"""Log-probabilities to ask for at each token."""
Kind = Literal["numeric", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two answers part."""

    token: int
    """Of the answer without speculation, from 0; of its characters where `counted` is False."""
    chosen: str
    other: str
    gap: float | None
    """Nats between its choice and the other's; None where that is not told."""
    at_least: bool = False
    """The other's choice is not among the candidates: the gap is larger than this."""
    counted: bool = True
    """Whether the answer's tokens are known."""

    @property
    def near_tie(self) -> bool:
        """Whether rounding can have decided."""
        return self.gap is not None and self.gap <= NEAR_TIE

    @property
    def kind(self) -> Kind:
        """numeric: rounding can have decided. wrong: it cannot. unknown: no log-probabilities."""
        if self.gap is None:
            return "unknown"
        return "numeric" if self.near_tie else "wrong"

    @property
    def words(self) -> str:
        """`parting first at token 12: ' a' for ' the', gap 0.03 nats`."""
        gap = (
            "gap unknown"
            if self.gap is None
            else f"gap {'>' if self.at_least else ''}{self.gap:.2f} nats"
        )
        what = "token" if self.counted else "character"
        return f"parting first at {what} {self.token}: {self.other!r} for {self.chosen!r}, {gap}"


def parting(text: str, known: str, told: Any = None, own: Any = None) -> Parting | None:
    """Where `text` leaves the answer without speculation; None where it does not.

    Args:
        text: The answer with speculation.
        known: The one without.
        told: The log-probabilities of `known`, in the form of either API; None: not asked for.
        own: Those of `text`, which tell its tokens; None: of candidates that begin alike (a line
            feed, two of them) it is taken to have chosen the likeliest, as it is greedy.
    """
    if text == known:
        return None
    n = next(
        (i for i, (a, b) in enumerate(zip(text, known, strict=False)) if a != b),
        min(len(text), len(known)),
    )
    told = _plain(told)
    starts = _starts(told)
    if not starts or starts[-1] > len(known):
        return Parting(n, known[n : n + 8], text[n : n + 8], None, counted=False)
    i = max(j for j, start in enumerate(starts) if start <= n)
    end = starts[i + 1] if i + 1 < len(starts) else len(known)
    theirs = [*_starts(_plain(own)), len(text)]
    whole = starts[i] in theirs[:-1]
    ends = theirs[theirs.index(starts[i]) + 1] if whole else len(text)
    return _gap(i, known[starts[i] : end], text[starts[i] : ends], told, whole=whole)


def _plain(told: Any) -> Mapping[str, Any]:
    """Log-probabilities in the form of the completions API; chat's are a list of tokens."""
    if not isinstance(told, Mapping):
        return {}
    content = told.get("content")
    if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
        return told
    words = [str(each.get("token") or "") for each in content]
    return {
        "text_offset": [0, *accumulate(map(len, words))][: len(words)],
        "token_logprobs": [each.get("logprob") for each in content],
        "top_logprobs": [
            {str(top.get("token")): top.get("logprob") for top in each.get("top_logprobs") or ()}
            for each in content
        ],
    }


def _starts(told: Mapping[str, Any]) -> Sequence[int]:
    """Where each token begins in the text."""
    offsets = told.get("text_offset")
    if not isinstance(offsets, list) or not all(isinstance(each, int) for each in offsets):
        return []
    return [each - offsets[0] for each in offsets]


def _gap(i: int, chosen: str, rest: str, told: Mapping[str, Any], *, whole: bool) -> Parting:
    """`whole`: whether `rest` is the other's token, and not all of its text from there."""
    top, own = told.get("top_logprobs"), told.get("token_logprobs")
    here = top[i] if isinstance(top, list) and i < len(top) else None
    best = own[i] if isinstance(own, list) and i < len(own) else None
    if not isinstance(here, Mapping) or not isinstance(best, int | float):
        return Parting(i, chosen, rest[:8], None)
    others = {
        str(word): float(value)
        for word, value in here.items()
        if isinstance(value, int | float) and math.isfinite(value) and word != chosen
    }
    if not others:
        return Parting(i, chosen, rest[:8], None)
    matching = [w for w in others if w and (rest == w if whole else rest.startswith(w))]
    if matching:
        other = max(matching, key=lambda word: others[word])
        return Parting(i, chosen, other, max(0.0, best - others[other]))
    if not rest:  # it ended: with a token that has no text
        return Parting(i, chosen, "", max(0.0, best - max(others.values())))
    return Parting(i, chosen, rest[:8], max(0.0, best - min(others.values())), at_least=True)
