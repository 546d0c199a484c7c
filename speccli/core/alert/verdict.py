"""What a check comes to: a verdict, an exit code, one line for a monitoring system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from speccli.core.alert.confirm import Change, Said
from speccli.core.errors import ExitCode, SpecctlError
from speccli.core.findings._text import duration, plural
from speccli.core.findings.base import Finding, Thresholds
from speccli.core.stats.snapshot import Snapshot
from speccli.core.values import Number, Quantile
from speccli.core.views.status import finding as finding_object
from speccli.core.views.status import rfc3339, status

SCHEMA = "specctl.alert/v1"
Word = Literal["ok", "warning", "critical", "unknown"]
EXITS: dict[Word, ExitCode] = {
    "ok": ExitCode.OK,
    "warning": ExitCode.WARNING,
    "critical": ExitCode.CRITICAL,
    "unknown": ExitCode.UNKNOWN,
}
_WORST: tuple[Word, ...] = ("critical", "warning", "unknown")


@dataclass(frozen=True, slots=True)
class Turn:
    """A change on the way through a recording."""

    at: float
    verdict: Word
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check says."""

    word: Word
    message: str
    """The sentence after the dash."""
    findings: tuple[Finding, ...] = ()
    pending: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    snapshot: Snapshot | None = None
    thresholds: Thresholds = Thresholds()
    history: tuple[Turn, ...] | None = None
    """None where one moment was judged."""

    @property
    def exit(self) -> int:
        """0 to 3."""
        return int(EXITS[self.word])

    @property
    def line(self) -> str:
        """`SPECCTL WARNING - … | label=value;warn;crit …`."""
        said = f"SPECCTL {self.word.upper()} - {_one_line(self.message)}"
        numbers = " ".join(performance(self.snapshot, self.thresholds))
        return f"{said} | {numbers}" if numbers else said

    @property
    def lines(self) -> list[str]:
        """The line, then one a finding, then what is not confirmed yet."""
        told = [self.line]
        told += [_finding_line(f.severity.upper(), f) for f in self.findings]
        told += [_finding_line("PENDING", f) for f in self.pending]
        for turn in self.history or ():
            told += [turn_line(turn, change) for change in turn.changes]
        return told

    def to_json(self) -> dict[str, Any]:
        """The contract's `specctl.alert/v1` object."""
        told: dict[str, Any] = {
            "schema": SCHEMA,
            "exit": self.exit,
            "verdict": self.word,
            "message": self.message,
            "findings": [finding_object(f) for f in self.findings],
            "pending": [finding_object(f) for f in self.pending],
            "status": status(self.snapshot, self.findings) if self.snapshot else None,
        }
        if self.history is not None:
            told["history"] = [
                {
                    "at": rfc3339(turn.at),
                    "verdict": turn.verdict,
                    "exit": int(EXITS[turn.verdict]),
                    "changes": [
                        {"change": change.kind, **finding_object(change.finding)}
                        for change in turn.changes
                    ],
                }
                for turn in self.history
            ]
        return told


def turn_line(turn: Turn, change: Change) -> str:
    """`2026-11-29T18:00:00.000Z FIRING critical ZERO_ACCEPTANCE …`."""
    f = change.finding
    what = _one_line(f"{change.kind.upper()} {f.severity} {f.code} {f.subject}: {f.evidence}")
    return f"{rfc3339(turn.at)} {what}"


def failed(error: SpecctlError, thresholds: Thresholds | None = None) -> Verdict:
    """A check that came to nothing."""
    hint = f" ({error.hint})" if error.hint else ""
    return Verdict("unknown", f"{error.message}{hint}", thresholds=thresholds or Thresholds())


def verdict_of(
    snapshot: Snapshot,
    said: Said,
    thresholds: Thresholds,
    *,
    require_traffic: bool = False,
    baseline: tuple[str, float] | None = None,
) -> Verdict:
    """What is said, as one word and one sentence. `baseline`: its name and acceptance rate."""
    word: Word = "ok"
    for worst in _WORST:
        if any(f.severity == worst for f in said.findings):
            word = worst
            break
    quiet = _quiet(snapshot, thresholds)
    if word == "ok" and not readable(snapshot):
        word = "unknown"
    if word == "ok" and quiet and require_traffic:
        word = "unknown"
    message = _message(word, snapshot, said.findings, quiet, baseline)
    if word == "ok" and said.pending:  # the first line is all that many a monitor shows
        codes = ", ".join(dict.fromkeys(f.code for f in said.pending))
        message += f"; pending: {codes}"
    return Verdict(word, message, said.findings, said.pending, said.changes, snapshot, thresholds)


def readable(snapshot: Snapshot) -> bool:
    """Whether at least one engine could be read."""
    return bool(snapshot.pooled_engines) or any(e.engine != "?" for e in snapshot.fresh)


def _quiet(snapshot: Snapshot, thresholds: Thresholds) -> str | None:
    """Why acceptance says nothing; None where it can be judged."""
    pool = snapshot.subject.pool
    tokens = pool.sums("generation_tokens")
    drafted = pool.sums("draft_tokens")
    if (tokens is None or tokens[0] == 0) and (drafted is None or drafted[0] == 0):
        return "no traffic"
    if drafted is not None and drafted[0] < thresholds.min_draft_tokens:
        need = f"{thresholds.min_draft_tokens:g}"
        return f"little traffic: {drafted[0]:,.0f} draft tokens, {need} are needed to judge"
    return None


def _message(
    word: Word,
    snapshot: Snapshot,
    findings: Sequence[Finding],
    quiet: str | None,
    baseline: tuple[str, float] | None,
) -> str:
    simulated = "SIMULATED, " if snapshot.simulated else ""
    wrong = [f for f in findings if f.severity != "info"]
    if wrong:
        first = wrong[0]
        more = f" (and {plural(len(wrong) - 1, 'other finding')})" if len(wrong) > 1 else ""
        return f"{simulated}{first.code} {first.subject}: {first.evidence}{more}"
    if not readable(snapshot):
        why = "; ".join(f"{e.target}: {e.reason}" for e in snapshot.engines[:3])
        return f"{simulated}no engine could be read ({why or 'there is none'})"
    engines = plural(snapshot.pooled_engines or len(snapshot.fresh), "engine")
    pool = snapshot.subject.pool
    seconds = pool.seconds
    over = "since the process started" if pool.since_start else ""
    if not over and seconds is not None:
        over = f"over {duration(seconds)}"
    if quiet:
        return f"{simulated}{quiet}, {engines}, {over}".rstrip(", ")
    rate = snapshot.fleet.acceptance_rate
    if rate.value is None:
        return f"{simulated}acceptance unknown: {rate.reason}, {engines}"
    against = f" (baseline {baseline[0]} {baseline[1]:.3f})" if baseline else ""
    return f"{simulated}acceptance {rate.value:.3f}{against}, {engines}, {over}".rstrip(", ")


def performance(snapshot: Snapshot | None, thresholds: Thresholds) -> list[str]:
    """`label=value;warn;crit`, in the plug-in convention's form; U where a number is unknown."""
    if snapshot is None:
        return []
    fleet = snapshot.fleet
    wait, cost = thresholds.queue_wait_ms, thresholds.cost_per_1m_usd
    return [
        f"engines={snapshot.pooled_engines or len(snapshot.fresh)};;1:",
        _number("acceptance_rate", fleet.acceptance_rate, f"{thresholds.acceptance_floor:g}:"),
        _number("acceptance_length", fleet.acceptance_length),
        _number("draft_tokens", fleet.draft_tokens),
        _number("wasted_draft_tokens_per_s", fleet.wasted_draft_tokens_per_s),
        _number("output_tokens_per_s", fleet.output_tokens_per_s),
        _number("running", fleet.running),
        _number("waiting", fleet.waiting),
        _number("queue_wait", fleet.queue_wait_ms, _limit(wait), unit="ms"),
        _upper("ttft_p99", fleet.ttft_s.p99, thresholds.ttft_p99_ms),
        _upper("tpot_p99", fleet.tpot_s.p99, thresholds.tpot_p99_ms),
        _number("cost_per_1m_usd", fleet.cost_per_1m_output_usd, _limit(cost)),
    ]


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _number(label: str, number: Number, warn: str = "", unit: str = "") -> str:
    if number.value is None or number.state != "value":
        return f"{label}=U;{warn};"
    return f"{label}={number.value:.6g}{unit};{warn};"


def _upper(label: str, quantile: Quantile, limit_ms: float | None) -> str:
    """The upper end of the bucket: what may be said of a percentile without inventing one."""
    warn = "" if limit_ms is None else f"{limit_ms / 1000:g}"
    if quantile.state == "unknown" or quantile.high is None:
        return f"{label}=U;{warn};"
    return f"{label}={quantile.high:.6g}s;{warn};"


def _finding_line(word: str, f: Finding) -> str:
    return _one_line(f"{word} {f.code} {f.subject}: {f.evidence}. {f.cause}. Do: {f.action}")


def _one_line(text: str) -> str:
    """One line without the bar that begins performance data, and nothing that moves a cursor."""
    flat = " ".join(text.split()).replace("|", "/")
    return "".join(char if char.isprintable() else "?" for char in flat)
