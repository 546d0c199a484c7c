"""Proof that speculation is on: a few requests to a server, and what its counters say after them.

Drafts rise, the first drafted token is accepted often enough, the text is sane; without a draft,
it serves and nothing is drafted. What cannot be seen is unknown, with the reason, never assumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from speccli.core.errors import SpecctlError
from speccli.core.kube.proven import (
    LEAST_TOKENS,
    LOOKUP,
    SEE_LOG,
    ServerProof,
    Wanted,
    judge,
    snapshot_of,
    sums_of,
)
from speccli.core.sources.base import Scrape

ANSWER_S = 120.0
"""For one answer of a model: a cold one takes long."""
ROUNDS = 3
"""How often the prompts are sent at most, where answers are short."""
MAX_TOKENS = 96
_SETTLE_S = 3.0
"""How long counters may lag behind the answers."""
_OTHERS_S = 20.0
"""How long others' traffic is waited for where requests of ours are not let in."""
_AT_ONCE = 2
_BUSY = frozenset({429, 503})
_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Between requests that were turned away for now."""
PROMPTS: tuple[str, ...] = (
    "Explain in plain words how a refrigerator keeps food cold.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "List the months of the year with the number of days in each.",
    "Describe how water becomes rain, step by step.",
)
_LINE = "the quick brown fox jumps over the lazy dog and runs through the green field. "
REPEATING: tuple[str, ...] = (
    f"Copy the following text exactly, five times: {_LINE * 4}",
    f"{_LINE * 6}",
)
"""What gives a lookup something to find."""


class Ask(Protocol):
    """How a server is asked."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer.

        Raises:
            SpecctlError: no answer.
        """


@dataclass(slots=True)
class _Answers:
    """What came of the prompts."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    failure: str | None = None
    keyed: bool = False
    """Whether the server wants an API key."""
    busy: bool = False
    """Whether it took no request for now, for as long as that was waited for."""


def prove(
    server: str,
    ask: Ask,
    wanted: Wanted,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> ServerProof:
    """Ask one server. Nothing raises: what cannot be done is an unknown with its reason."""
    base = ServerProof(server, wanted.pool, "unknown", wanted.method, "")
    try:
        status, body = ask("GET", "/v1/models")
        if status in {401, 403}:
            return _by_others(base, ask, wanted, clock, sleep)
        if status != 200:
            return replace(base, evidence=f"/v1/models answers HTTP {status}", action=SEE_LOG)
        model, simulated = _model(body)
        base = replace(base, simulated=simulated)
        before = scrape(server, ask, clock)
        answers = _send(ask, model, wanted.method, sleep)
        if answers.keyed:
            return _by_others(base, ask, wanted, clock, sleep)
        if answers.failure:
            return _failed(base, answers)
        after = _settled(server, ask, wanted, before, clock, sleep)
    except SpecctlError as error:
        return replace(base, evidence=error.message, action=error.hint or "")
    counted = replace(base, requests=len(answers.texts), tokens=answers.tokens)
    return judge(counted, wanted, (before, after), answers.texts)


def _model(body: bytes) -> tuple[str, bool]:
    """The first model's name, and whether a simulator serves it."""
    try:
        first = json.loads(body)["data"][0]
        return str(first["id"]), first.get("owned_by") == "specctl-simulator"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise SpecctlError(
            "/v1/models names no model", hint="is it an OpenAI-compatible server?"
        ) from error


def scrape(server: str, ask: Ask, clock: Callable[[], float]) -> Scrape:
    """A server's page.

    Raises:
        SpecctlError: it gives none.
    """
    status, body = ask("GET", "/metrics")
    if status != 200:
        raise SpecctlError(f"/metrics answers HTTP {status}", hint=SEE_LOG)
    return Scrape(clock(), server, status, body)


def _send(ask: Ask, model: str, method: str, sleep: Callable[[float], None]) -> _Answers:
    """The prompts, again while answers are too short to say anything."""
    prompts = (*REPEATING, *PROMPTS[:2]) if method in LOOKUP else PROMPTS
    answers = _Answers()
    for _ in range(ROUNDS):
        with ThreadPoolExecutor(_AT_ONCE) as side_by_side:
            for got in side_by_side.map(lambda prompt: _one(ask, model, prompt, sleep), prompts):
                answers.texts += got.texts
                answers.tokens += got.tokens
                answers.failure = answers.failure or got.failure
                answers.keyed = answers.keyed or got.keyed
                answers.busy = answers.busy or got.busy
        if answers.failure or answers.tokens >= LEAST_TOKENS:
            break
    return answers


def _one(ask: Ask, model: str, prompt: str, sleep: Callable[[float], None]) -> _Answers:
    """One answer, as chat, or as plain completion where the model has no chat template."""
    asked = {"model": model, "max_tokens": MAX_TOKENS, "temperature": 0}
    messages = [{"role": "user", "content": prompt}]
    for pause in (*_PAUSES_S, None):
        status, body = ask("POST", "/v1/chat/completions", asked | {"messages": messages})
        if status not in _BUSY or pause is None:
            break
        sleep(pause)
    if status == 400 and b"template" in body:
        status, body = ask("POST", "/v1/completions", asked | {"prompt": prompt})
    if status != 200:
        said = " ".join(body.decode("utf-8", "replace").split())[:160]
        return _Answers(
            failure=f"HTTP {status} {said}", keyed=status in {401, 403}, busy=status in _BUSY
        )
    try:
        told = json.loads(body)
        choice = told["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        return _Answers([str(text or "")], int(told["usage"]["completion_tokens"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return _Answers(failure=f"an answer is no completion ({error!r})")


def _failed(base: ServerProof, answers: _Answers) -> ServerProof:
    if answers.busy:
        return replace(
            base,
            requests=len(answers.texts),
            evidence=f"it takes no request of ours now: {answers.failure}",
            cause="it, or something before it, has too much to do or is not ready again",
            action="deploy again when it has less to do: nothing is restarted for it",
        )
    return replace(
        base,
        verdict="refuted",
        answers=False,
        requests=len(answers.texts),
        evidence=f"a plain request failed: {answers.failure}",
        cause="the server is ready and does not serve",
        action=SEE_LOG,
    )


def _settled(
    server: str,
    ask: Ask,
    wanted: Wanted,
    before: Scrape,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Scrape:
    """The page after the answers, once what is looked for is on it, or after a while."""
    waited = 0.0
    while True:
        after = scrape(server, ask, clock)
        drafts = sums_of(snapshot_of(wanted, (before, after)), "drafts")
        tokens = sums_of(snapshot_of(wanted, (before, after)), "generation_tokens")
        if waited >= _SETTLE_S or (tokens and (drafts or wanted.method == "none")):
            return after
        sleep(0.5)
        waited += 0.5


def _by_others(
    base: ServerProof,
    ask: Ask,
    wanted: Wanted,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> ServerProof:
    """The server wants an API key, which a proxy cannot pass on: count what others ask it."""
    before = scrape(base.server, ask, clock)
    waited = 0.0
    while True:
        sleep(1.0)
        waited += 1.0
        after = scrape(base.server, ask, clock)
        tokens = sums_of(snapshot_of(wanted, (before, after)), "generation_tokens") or 0.0
        if tokens >= LEAST_TOKENS:
            told = replace(base, own=False, tokens=int(tokens))
            return judge(told, wanted, (before, after), None)
        if waited >= _OTHERS_S:
            break
    return replace(
        base,
        own=False,
        tokens=int(tokens),
        evidence=f"{tokens:.0f} tokens of others' traffic in {waited:.0f} s",
        cause="it wants an API key, which the API server's proxy does not pass on",
        action="send it a few requests with the key, and deploy again: what is proven is recorded",
    )
