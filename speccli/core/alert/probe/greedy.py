"""Greedy answers with and without speculation: the same, or apart where numerics allow it.

The speculating server is asked for text alone: asking it for log-probabilities may turn its
speculation off (vllm#34497). The other one tells its tokens with the log-probabilities of five
candidates; where the texts part, the gap between its own choice and the other's says why. Batches
of another shape round differently, so a near tie may fall either way (vllm#7627); a clear choice
may not.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.alert.probe.client import Client, Reply
from speccli.core.alert.probe.features import failure
from speccli.core.alert.probe.outcome import Outcome, State

NEAR_TIE = 0.5
"""Nats up to which bfloat16 logits of another batch shape have been seen to change places."""
MAX_TOKENS = 64
_TOP = 5
PROMPTS: tuple[str, ...] = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village by the sea,",
    "1, 1, 2, 3, 5, 8, 13,",
    "To make bread you need flour, water, yeast and",
    "SELECT name, COUNT(*) FROM orders GROUP BY name HAVING",
    "The three laws of thermodynamics are:",
    "Lieber Herr Meier, vielen Dank für",
)


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two answers part."""

    token: int
    """Of the answer without speculation, from 0."""
    chosen: str
    other: str
    gap: float | None
    """Nats between its choice and the other's; None where that is not told."""
    at_least: bool = False
    """The other's choice is not among the candidates: the gap is larger than this."""

    @property
    def near_tie(self) -> bool:
        """Whether rounding can have decided."""
        return self.gap is not None and self.gap <= NEAR_TIE


async def compare(client: Client, plain: Client, subject: str) -> tuple[Outcome, bool]:
    """Every prompt on both, one at a time on each."""
    if client.simulated or plain.simulated:
        words = "simulated servers write the same words whatever they are asked"
        return Outcome("F-GREEDY", "skipped", subject, words), False
    same, partings = 0, []
    for prompt in PROMPTS:
        mine, other = await asyncio.gather(
            client.complete(prompt, MAX_TOKENS, temperature=0.0),
            plain.complete(prompt, MAX_TOKENS, temperature=0.0, logprobs=_TOP),
        )
        for name, reply in ((subject, mine), (f"the baseline {plain.url}", other)):
            if not reply.ok:
                worst, dying = failure(reply)
                state: State = worst if name == subject else "unknown"
                evidence = f"{name}: {reply.said}"
                return Outcome("F-GREEDY", state, subject, evidence), dying and name == subject
        found = parting(mine.text, other)
        if found is None:
            same += 1
        else:
            partings.append((prompt, found))
    return _judged(same, partings, subject), False


def _judged(same: int, partings: Sequence[tuple[str, Parting]], subject: str) -> Outcome:
    total = same + len(partings)
    evidence = f"{same} of {total} greedy answers are the same"
    if not partings:
        return Outcome("F-GREEDY", "pass", subject, evidence)
    clear = [(prompt, p) for prompt, p in partings if not p.near_tie]
    prompt, first = min(clear or partings, key=lambda pair: pair[1].token)
    evidence += f"; {_words(first)}, of {prompt[:30]!r}"
    if not clear:
        cause = "near ties, decided by rounding: another batch shape rounds differently"
        return Outcome("F-GREEDY", "pass", subject, evidence, cause)
    if all(p.gap is None for _, p in clear):
        cause = "whether rounding explains it cannot be told without log-probabilities"
        return Outcome("F-GREEDY", "unknown", subject, evidence, cause)
    cause = "verification lets through what the target would not choose, or the servers differ"
    action = (
        "see that both serve the same weights and dtype; then run `specctl kernels check` on this "
        "GPU"
    )
    return Outcome("F-GREEDY", "critical", subject, evidence, cause, action)


def _words(p: Parting) -> str:
    gap = "gap unknown" if p.gap is None else f"gap {'>' if p.at_least else ''}{p.gap:.2f} nats"
    return f"parting first at token {p.token}: {p.other!r} for {p.chosen!r}, {gap}"


def parting(text: str, plain: Reply) -> Parting | None:
    """Where `text` leaves the answer without speculation; None where it does not."""
    known = plain.text
    if text == known:
        return None
    n = next(
        (i for i, (a, b) in enumerate(zip(text, known, strict=False)) if a != b),
        min(len(text), len(known)),
    )
    told = plain.choice.get("logprobs")
    starts = _starts(told) if isinstance(told, Mapping) else []
    if not isinstance(told, Mapping) or not starts or starts[-1] > len(known):
        return Parting(n, known[n : n + 8], text[n : n + 8], None)
    i = max(j for j, start in enumerate(starts) if start <= n)
    end = starts[i + 1] if i + 1 < len(starts) else len(known)
    return _gap(i, known[starts[i] : end], text[starts[i] :], told)


def _starts(told: Mapping[str, Any]) -> list[int]:
    """Where each token begins in the text."""
    offsets = told.get("text_offset")
    if not isinstance(offsets, list) or not all(isinstance(each, int) for each in offsets):
        return []
    return [each - offsets[0] for each in offsets]


def _gap(i: int, chosen: str, rest: str, told: Mapping[str, Any]) -> Parting:
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
    matching = [word for word in others if word and rest.startswith(word)]
    if matching:
        other = max(matching, key=len)
        return Parting(i, chosen, other, max(0.0, best - others[other]))
    if not rest:  # it ended: with a token that has no text
        return Parting(i, chosen, "", max(0.0, best - max(others.values())))
    return Parting(i, chosen, rest[:8], max(0.0, best - min(others.values())), at_least=True)
