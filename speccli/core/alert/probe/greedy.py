"""Greedy answers with and without speculation: the same, or apart where numerics allow it.

The speculating server is asked for text alone: asking it for log-probabilities may turn its
speculation off (vllm#34497). The other one tells its tokens with those of a few candidates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from speccli.core.alert.probe.client import Client
from speccli.core.alert.probe.features import failure
from speccli.core.alert.probe.outcome import Outcome, State
from speccli.core.lossless import CANDIDATES, Parting, parting

MAX_TOKENS = 64
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


async def compare(client: Client, plain: Client, subject: str) -> tuple[Outcome, bool]:
    """Every prompt on both, one at a time on each."""
    if client.simulated or plain.simulated:
        words = "simulated servers write the same words whatever they are asked"
        return Outcome("F-GREEDY", "skipped", subject, words), False
    same, partings = 0, []
    for prompt in PROMPTS:
        mine, other = await asyncio.gather(
            client.complete(prompt, MAX_TOKENS, temperature=0.0),
            plain.complete(prompt, MAX_TOKENS, temperature=0.0, logprobs=CANDIDATES),
        )
        for name, reply in ((subject, mine), (f"the baseline {plain.url}", other)):
            if not reply.ok:
                worst, dying = failure(reply)
                state: State = worst if name == subject else "unknown"
                evidence = f"{name}: {reply.said}"
                return Outcome("F-GREEDY", state, subject, evidence), dying and name == subject
        found = parting(mine.text, other.text, other.choice.get("logprobs"))
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
    evidence += f"; {first.words}, of {prompt[:30]!r}"
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
