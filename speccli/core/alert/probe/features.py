"""Request features that speculation has broken before, each asked for once (or thirty times)."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from speccli.core.alert.probe.client import Client, Reply
from speccli.core.alert.probe.outcome import Outcome, State

JSON_REQUESTS = 30
_JSON_TOKENS = 256
_PROMPT = "Name three rivers and the country each rises in."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 24},
        "large": {"type": "boolean"},
        "rank": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["city", "large", "rank"],
    "additionalProperties": False,
}
_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "city", "schema": SCHEMA, "strict": True},
}
Check = Callable[[Client, str], Awaitable[tuple[Outcome, bool]]]
"""The client and the subject in; the outcome, and whether the engine may be dying."""


def failure(reply: Reply) -> tuple[State, bool]:
    """What a request that failed says of the server, and whether its engine may be dying."""
    if reply.status == 400:
        return "warning", False
    if reply.status is not None and reply.status < 500:
        return "unknown", False  # not let in, or too busy: nothing was tried
    return "critical", True


async def json_schema(client: Client, subject: str) -> tuple[Outcome, bool]:
    """Thirty structured answers at once (vllm#27969: the engine dies of a draft token)."""
    if client.simulated:
        words = "a simulated server writes no JSON"
        return Outcome("F-JSON", "skipped", subject, words), False
    asked = (
        client.chat(
            f"Describe a city as JSON, number {i}.",
            _JSON_TOKENS,
            temperature=0.7,
            seed=i,
            response_format=_FORMAT,
        )
        for i in range(JSON_REQUESTS)
    )
    replies = await asyncio.gather(*asked)
    failed = [reply for reply in replies if not reply.ok]
    if failed:
        return _json_failed(failed, subject)
    whole = [reply for reply in replies if reply.choice.get("finish_reason") != "length"]
    wrong = [reply for reply in whole if not fits(reply.text)]
    evidence = f"{len(whole) - len(wrong)} of {len(whole)} answers fit the schema"
    cut = len(replies) - len(whole)
    evidence += f", {cut} were cut at {_JSON_TOKENS} tokens" if cut else ""
    if wrong:
        cause = "the grammar is not applied to what was drafted"
        action = "compare with speculation off; see vllm#27969 and the structured-output backend"
        shown = f"{evidence}; one is {wrong[0].text[:60]!r}"
        return Outcome("F-JSON", "warning", subject, shown, cause, action), False
    if not whole:
        return Outcome("F-JSON", "unknown", subject, evidence), False
    return Outcome("F-JSON", "pass", subject, evidence), False


def _json_failed(failed: list[Reply], subject: str) -> tuple[Outcome, bool]:
    evidence = f"{len(failed)} of {JSON_REQUESTS} structured requests failed: {failed[0].said}"
    if all(reply.status == 400 for reply in failed):
        cause = "the server refuses response_format"
        action = "clients that ask for JSON get this error; see the structured-output backend"
        return Outcome("F-JSON", "warning", subject, evidence, cause, action), False
    worst, dying = failure(next((r for r in failed if failure(r)[1]), failed[0]))
    if not dying:
        return Outcome("F-JSON", worst, subject, evidence), False
    cause = "draft tokens that violate the grammar have killed engines (vllm#27969, vllm#47025)"
    action = "read the server's log; serve structured output without speculation"
    return Outcome("F-JSON", "critical", subject, evidence, cause, action), True


def fits(text: str) -> bool:
    """Whether an answer is what the schema asks for.

    Control characters inside strings pass: grammars let them through, with or without drafts.
    """
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or set(value) != set(SCHEMA["required"]):
        return False
    rank = value["rank"]
    return (
        isinstance(value["city"], str)
        and isinstance(value["large"], bool)
        and isinstance(rank, int)
        and not isinstance(rank, bool)
    )


async def _parameter(
    client: Client, subject: str, rule: str, thread: str, **asked: Any
) -> tuple[Outcome, bool]:
    (name,) = asked
    reply = await client.chat(_PROMPT, 32, temperature=0.8, seed=1, **asked)
    if reply.ok:
        return Outcome(rule, "pass", subject, f"{name} is taken, {reply.tokens} tokens"), False
    evidence = f"{name}: {reply.said}"
    if reply.status == 400:
        cause = f"with speculation the server refuses {name} ({thread})"
        action = "clients that send it break when speculation is turned on; route them elsewhere"
        return Outcome(rule, "warning", subject, evidence, cause, action), False
    state, dying = failure(reply)
    return Outcome(rule, state, subject, evidence, "the request failed", _LOG), dying


_LOG = "read the server's log"


async def min_p(client: Client, subject: str) -> tuple[Outcome, bool]:
    """Taken, or refused with 400."""
    return await _parameter(client, subject, "F-MIN-P", "vllm#42744", min_p=0.05)


async def logit_bias(client: Client, subject: str) -> tuple[Outcome, bool]:
    """Taken, or refused with 400."""
    bias = {"5": -2.0}
    return await _parameter(client, subject, "F-LOGIT-BIAS", "vllm PR #31982", logit_bias=bias)


async def logprobs(client: Client, subject: str) -> tuple[Outcome, bool]:
    """One log-probability a token, none of them above 0 (vllm#34497)."""
    if client.simulated:
        words = "a simulated server has no log-probabilities"
        return Outcome("F-LOGPROBS", "skipped", subject, words), False
    reply = await client.complete(_PROMPT, 32, temperature=0.0, logprobs=1)
    if not reply.ok:
        state, dying = failure(reply)
        return Outcome("F-LOGPROBS", state, subject, f"logprobs: {reply.said}", "", _LOG), dying
    told = reply.choice.get("logprobs")
    values = told.get("token_logprobs") if isinstance(told, dict) else None
    numbers = [v for v in values or () if isinstance(v, int | float)]
    good = [v for v in numbers if math.isfinite(v) and v <= 1e-6]
    evidence = f"{len(good)} sound log-probabilities for {reply.tokens} tokens"
    if len(good) == reply.tokens == len(numbers) and good:
        return Outcome("F-LOGPROBS", "pass", subject, evidence), False
    cause = "log-probabilities are missing or wrong with speculation (vllm#34497)"
    action = "do not use them from this server; compare with speculation off"
    return Outcome("F-LOGPROBS", "warning", subject, evidence, cause, action), False


async def seed(client: Client, subject: str) -> tuple[Outcome, bool]:
    """The same seed, the same answer."""
    replies = [await client.chat(_PROMPT, 48, temperature=1.0, seed=1234) for _ in range(2)]
    failed = [reply for reply in replies if not reply.ok]
    if failed:
        state, dying = failure(failed[0])
        return Outcome("F-SEED", state, subject, f"seed: {failed[0].said}", "", _LOG), dying
    first, second = (reply.text for reply in replies)
    if first == second:
        return Outcome("F-SEED", "pass", subject, "the same seed gave the same answer"), False
    same = len(_common(first, second))
    evidence = f"the same seed gave two answers, alike for {same} characters"
    cause = "other requests in the batch change the numerics, or drafts are not seeded"
    action = "repeat it without other traffic; there it must hold"
    return Outcome("F-SEED", "warning", subject, evidence, cause, action), False


def _common(a: str, b: str) -> str:
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:n]


CHECKS: tuple[Check, ...] = (logprobs, min_p, logit_bias, seed, json_schema)
"""In an order in which what may kill the engine comes last."""
