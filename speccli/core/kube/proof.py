"""Proof that speculation is on: a few requests to a server, and what its counters say after them.

Drafts rise, the first drafted token is accepted often enough, the text is sane; without a draft,
it serves and nothing is drafted. What cannot be seen is unknown, with the reason, never assumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

from speccli.core.errors import SpecctlError
from speccli.core.findings import evaluate
from speccli.core.findings.base import Finding, Thresholds
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window

Verdict = Literal["proven", "refuted", "unknown"]
LOOKUP = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that draft only where a text repeats itself."""
ROUNDS = 3
"""How often the prompts are sent at most, where answers are short."""
MAX_TOKENS = 96
LEAST_TOKENS = 120
"""Output tokens under which the absence of drafts means little."""
LEAST_DRAFTS = 20
"""Drafts under which no acceptance is judged."""
_SETTLE_S = 3.0
"""How long counters may lag behind the answers."""
_OTHERS_S = 20.0
"""How long others' traffic is waited for where requests of ours are not let in."""
_AT_ONCE = 2
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
_TELLING = ("SPEC_NOT_ACTIVE", "ZERO_ACCEPTANCE", "PARALLEL_DRAFT_CLIFF", "METRICS_INCONSISTENT")


class Ask(Protocol):
    """How a server is asked."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer.

        Raises:
            SpecctlError: no answer.
        """


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a server of one pool is to prove."""

    method: str
    floor: float
    """Acceptance of the first drafted token, 0..1, that must be reached."""
    pool: str = "main"


@dataclass(frozen=True, slots=True)
class ServerProof:
    """What one server showed."""

    server: str
    pool: str
    verdict: Verdict
    method: str
    evidence: str
    cause: str = ""
    action: str = ""
    code: str | None = None
    """The finding's code, where one says it."""
    requests: int = 0
    tokens: int = 0
    drafts: float | None = None
    """None: the server does not count them."""
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    first_position: float | None = None
    """Accepted at position 0 / drafts, 0..1."""
    text: str = ""
    """The beginning of one answer."""
    own: bool = True
    """False: requests of others were counted."""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """What all servers that were asked showed."""

    servers: tuple[ServerProof, ...]
    of: int
    """How many there are."""
    at: str
    reason: str = ""
    """Why none was asked."""

    @property
    def verdict(self) -> Verdict:
        """The worst of them; unknown where none was asked."""
        verdicts = {each.verdict for each in self.servers}
        order: tuple[Verdict, ...] = ("refuted", "unknown", "proven")
        return next((each for each in order if each in verdicts), "unknown")

    @property
    def simulated(self) -> bool:
        """Whether any of them is."""
        return any(each.simulated for each in self.servers)

    def to_json(self) -> dict[str, Any]:
        """Its part of the record."""
        return {
            "verdict": self.verdict,
            "at": self.at,
            "asked": len(self.servers),
            "of": self.of,
            "reason": self.reason or None,
            "simulated": self.simulated,
            "servers": [asdict(each) for each in self.servers],
        }


@dataclass(slots=True)
class _Answers:
    """What came of the prompts."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    failure: str | None = None
    keyed: bool = False
    """Whether the server wants an API key."""


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
            return replace(base, evidence=f"/v1/models answers HTTP {status}", action=_SEE_LOG)
        model, simulated = _model(body)
        base = replace(base, simulated=simulated)
        before = _scrape(server, ask, clock)
        answers = _send(ask, model, wanted.method)
        if answers.failure:
            return _failed(base, answers)
        after = _settled(server, ask, wanted, before, clock, sleep)
    except SpecctlError as error:
        return replace(base, evidence=error.message, action=error.hint or "")
    counted = replace(base, requests=len(answers.texts), tokens=answers.tokens)
    return judge(counted, wanted, (before, after), answers.texts)


_SEE_LOG = "read the engine's log"


def _model(body: bytes) -> tuple[str, bool]:
    """The first model's name, and whether a simulator serves it."""
    try:
        first = json.loads(body)["data"][0]
        return str(first["id"]), first.get("owned_by") == "specctl-simulator"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise SpecctlError(
            "/v1/models names no model", hint="is it an OpenAI-compatible server?"
        ) from error


def _scrape(server: str, ask: Ask, clock: Callable[[], float]) -> Scrape:
    status, body = ask("GET", "/metrics")
    if status != 200:
        raise SpecctlError(f"/metrics answers HTTP {status}", hint=_SEE_LOG)
    return Scrape(clock(), server, status, body)


def _send(ask: Ask, model: str, method: str) -> _Answers:
    """The prompts, again while answers are too short to say anything."""
    prompts = (*REPEATING, *PROMPTS[:2]) if method in LOOKUP else PROMPTS
    answers = _Answers()
    for _ in range(ROUNDS):
        with ThreadPoolExecutor(_AT_ONCE) as side_by_side:
            for got in side_by_side.map(lambda prompt: _one(ask, model, prompt), prompts):
                answers.texts += got.texts
                answers.tokens += got.tokens
                answers.failure = answers.failure or got.failure
                answers.keyed = answers.keyed or got.keyed
        if answers.failure or answers.tokens >= LEAST_TOKENS:
            break
    return answers


def _one(ask: Ask, model: str, prompt: str) -> _Answers:
    """One answer, as chat, or as plain completion where the model has no chat template."""
    asked = {"model": model, "max_tokens": MAX_TOKENS, "temperature": 0}
    messages = [{"role": "user", "content": prompt}]
    status, body = ask("POST", "/v1/chat/completions", asked | {"messages": messages})
    if status == 400 and b"template" in body:
        status, body = ask("POST", "/v1/completions", asked | {"prompt": prompt})
    if status != 200:
        said = " ".join(body.decode("utf-8", "replace").split())[:160]
        return _Answers(failure=f"HTTP {status} {said}", keyed=status in {401, 403})
    try:
        told = json.loads(body)
        choice = told["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        return _Answers([str(text or "")], int(told["usage"]["completion_tokens"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return _Answers(failure=f"an answer is no completion ({error!r})")


def _failed(base: ServerProof, answers: _Answers) -> ServerProof:
    return replace(
        base,
        verdict="refuted",
        requests=len(answers.texts),
        evidence=f"a plain request failed: {answers.failure}",
        cause="the server is ready and does not serve",
        action=_SEE_LOG,
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
        after = _scrape(server, ask, clock)
        drafts = _sums(_snapshot(wanted, (before, after)), "drafts")
        tokens = _sums(_snapshot(wanted, (before, after)), "generation_tokens")
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
    before = _scrape(base.server, ask, clock)
    waited = 0.0
    while True:
        sleep(1.0)
        waited += 1.0
        after = _scrape(base.server, ask, clock)
        tokens = _sums(_snapshot(wanted, (before, after)), "generation_tokens") or 0.0
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


def _snapshot(wanted: Wanted, pages: Sequence[Scrape]) -> Snapshot:
    window = Window(Settings(window_s=None, span_s=None, method=wanted.method))
    for page in pages:
        window.push([page])
    return window.snapshot()


def _sums(snapshot: Snapshot, name: str) -> float | None:
    sums = snapshot.subject.pool.sums(name)
    return None if sums is None else sums[0]


def judge(
    base: ServerProof, wanted: Wanted, pages: tuple[Scrape, Scrape], texts: Sequence[str] | None
) -> ServerProof:
    """What two pages and the answers between them say. `texts` None: the answers were others'."""
    before, after = pages
    if after.at <= before.at:
        after = replace(after, at=before.at + 1.0)
    snapshot = _snapshot(wanted, (before, after))
    told = _counted(base, snapshot, texts)
    if texts is not None and (wrong := insane(texts)):
        cause = "the target's own output is broken, or verification lets garbage through"
        action = "ask again without --speculative-config: as broken there, it is the target"
        return replace(told, verdict="refuted", evidence=wrong, cause=cause, action=action)
    if told.tokens < LEAST_TOKENS:
        evidence = f"{told.requests} requests gave {told.tokens} tokens, too few to judge"
        return replace(told, evidence=evidence, action="send it longer requests")
    if wanted.method == "none":
        return _without(told)
    found = _found(snapshot, told)
    if found is not None and found.severity == "critical":
        return _refuted(told, found)
    return _drafting(told, wanted, found)


def _counted(base: ServerProof, snapshot: Snapshot, texts: Sequence[str] | None) -> ServerProof:
    pool = snapshot.subject.pool
    drafts, drafted = _sums(snapshot, "drafts"), _sums(snapshot, "draft_tokens")
    first = _sums(snapshot, "accepted_at:0")
    generated = _sums(snapshot, "generation_tokens")
    tokens = base.tokens or int(generated or 0)
    return replace(
        base,
        tokens=tokens,
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=_sums(snapshot, "accepted_tokens"),
        first_position=first / drafts if first is not None and drafts else None,
        text=" ".join(texts[0].split())[:80] if texts else "",
        simulated=base.simulated or snapshot.simulated,
        evidence="" if pool.members else "its /metrics show no engine",
    )


def _found(snapshot: Snapshot, told: ServerProof) -> Finding | None:
    """The worst of what the ordinary rules say of so little traffic."""
    thresholds = Thresholds(
        expect_speculation=True,
        min_tokens=min(LEAST_TOKENS, told.tokens) / 2,
        min_draft_tokens=LEAST_DRAFTS,
    )
    found = (f for f in evaluate(snapshot, thresholds) if f.code in _TELLING)
    return next(found, None)


def _refuted(told: ServerProof, found: Finding) -> ServerProof:
    return replace(
        told,
        verdict="refuted",
        code=found.code,
        evidence=found.evidence,
        cause=found.cause,
        action=found.action,
    )


def _without(told: ServerProof) -> ServerProof:
    words = f"{_sent(told)}, {told.tokens} tokens"
    if told.drafts:
        return replace(
            told,
            verdict="refuted",
            evidence=f"{words}, and {told.drafts:.0f} drafts",
            cause="it drafts although the recipe says none",
            action="look for --speculative-config in the engine's line",
        )
    return replace(told, verdict="proven", evidence=f"{words}, nothing drafted")


def _sent(told: ServerProof) -> str:
    return f"{told.requests} requests" if told.own else "others' requests"


def _drafting(told: ServerProof, wanted: Wanted, found: Finding | None) -> ServerProof:
    """Drafts rise, or nobody can tell: whether they are any good."""
    if told.drafts is None or not told.drafts:
        cause = found.cause if found else "it exposes no counters of drafts"
        action = found.action if found else _SEE_LOG
        words = f"{_sent(told)}, {told.tokens} tokens, no drafts counted"
        return replace(told, evidence=words, cause=cause, action=action)
    evidence = _evidence(told, wanted)
    if told.drafts < LEAST_DRAFTS or told.first_position is None:
        cause = "too few drafts to judge them" if told.drafts < LEAST_DRAFTS else _NO_POSITIONS
        return replace(told, evidence=evidence, cause=cause, action="send it longer requests")
    if wanted.method not in LOOKUP and told.first_position < wanted.floor:
        return replace(
            told,
            verdict="refuted",
            code="LOW_ACCEPTANCE",
            evidence=evidence,
            cause="the draft does not know these prompts: another target, revision or template?",
            action="specctl draft check TARGET DRAFT; alerts.acceptance_floor is the floor",
        )
    warned = found.cause if found else ""
    return replace(
        told,
        verdict="proven",
        code=found.code if found else None,
        evidence=evidence,
        cause=warned,
        action=found.action if found else "",
    )


_NO_POSITIONS = "it does not count acceptance by position"


def _evidence(told: ServerProof, wanted: Wanted) -> str:
    words = f"{_sent(told)}, {told.tokens} tokens: {told.drafts or 0:.0f} drafts"
    if told.draft_tokens and told.accepted_tokens is not None:
        rate = told.accepted_tokens / told.draft_tokens
        words += f", {rate:.2f} of {told.draft_tokens:.0f} draft tokens accepted"
    if told.first_position is not None:
        words += f", position 0 {told.first_position:.2f}"
        words += "" if wanted.method in LOOKUP else f" (floor {wanted.floor:g})"
    return words


def insane(texts: Sequence[str]) -> str | None:
    """Why answers are no text: nothing at all, one sign over and over, bytes that are none.

    A broken verification begins right and then repeats one token (vllm#9534), so the beginning of
    each answer is passed over.
    """
    if not any(text.strip() for text in texts):
        return "every answer is empty"
    for text in texts:
        rest = "".join(text.split())[4:]
        if len(rest) >= 16 and len(set(rest)) <= 1:
            return f"an answer is {rest[0]!r} over and over: {text.strip()[:40]!r}"
        if len(rest) >= 16 and rest.count("\N{REPLACEMENT CHARACTER}") > len(rest) / 2:
            return f"an answer is not text: {text.strip()[:40]!r}"
    return None
