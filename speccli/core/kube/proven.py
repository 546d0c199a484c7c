"""What a server's counters and answers prove: proven, refuted, or unknown with a reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from speccli.core.findings import evaluate
from speccli.core.findings.base import Finding, Thresholds
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window

Verdict = Literal["proven", "refuted", "unknown"]
LOOKUP = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that draft only where a text repeats itself."""
LEAST_TOKENS = 120
"""Output tokens under which the absence of drafts means little."""
LEAST_DRAFTS = 20
"""Drafts under which no acceptance is judged."""
SEE_LOG = "read the engine's log"
_TELLING = ("SPEC_NOT_ACTIVE", "ZERO_ACCEPTANCE", "PARALLEL_DRAFT_CLIFF", "METRICS_INCONSISTENT")


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
    answers: bool = True
    """False: requests fail, or what it says is no text."""
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
    def answers(self) -> bool:
        """Whether requests get answers of any, however it drafts."""
        return any(each.answers for each in self.servers)

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


def snapshot_of(wanted: Wanted, pages: Sequence[Scrape]) -> Snapshot:
    """What pages of one server, in order, amount to."""
    window = Window(Settings(window_s=None, span_s=None, method=wanted.method))
    for page in pages:
        window.push([page])
    return window.snapshot()


def sums_of(snapshot: Snapshot, name: str) -> float | None:
    """Growth of a counter; None where the server does not expose it."""
    sums = snapshot.subject.pool.sums(name)
    return None if sums is None else sums[0]


def judge(
    base: ServerProof, wanted: Wanted, pages: tuple[Scrape, Scrape], texts: Sequence[str] | None
) -> ServerProof:
    """What two pages and the answers between them say. `texts` None: the answers were others'."""
    before, after = pages
    if after.at <= before.at:
        after = replace(after, at=before.at + 1.0)
    snapshot = snapshot_of(wanted, (before, after))
    told = _counted(base, snapshot, texts)
    if texts is not None and (wrong := insane(texts)):
        cause = "the target's own output is broken, or verification lets garbage through"
        action = "ask again without --speculative-config: as broken there, it is the target"
        told = replace(told, verdict="refuted", answers=False)
        return replace(told, evidence=wrong, cause=cause, action=action)
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
    drafts, drafted = sums_of(snapshot, "drafts"), sums_of(snapshot, "draft_tokens")
    first = sums_of(snapshot, "accepted_at:0")
    generated = sums_of(snapshot, "generation_tokens")
    tokens = base.tokens or int(generated or 0)
    return replace(
        base,
        tokens=tokens,
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=sums_of(snapshot, "accepted_tokens"),
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
        action = found.action if found else SEE_LOG
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
