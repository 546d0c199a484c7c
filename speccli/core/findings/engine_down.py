"""No answer."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, by_server
from speccli.core.findings._text import duration, plural
from speccli.core.findings.base import Finding, Hit, Rule, Severity, Thresholds
from speccli.core.stats.snapshot import EngineSnapshot

CODE = "ENGINE_DOWN"
_ACTIONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("speaks plain http",),
        "this side began TLS and the server does not answer in it",
        "give the address with http://, or look for the port that has TLS",
    ),
    (
        ("speaks tls",),
        "this side spoke plain http to a port that wants TLS",
        "give the address with https:// (and --ca FILE if its CA is your own)",
    ),
    (
        ("expired",),
        "its certificate is over: this side refuses it, and so does every other client",
        "renew the certificate; --insecure accepts any until then",
    ),
    (
        ("another host", "mismatch"),
        "its certificate is for another name than the one it was asked by",
        "use a name that the certificate is for, or renew it with this one",
    ),
    (
        ("certificate", "tls", "ssl"),
        "the connection is refused by this side: the certificate is not accepted",
        "give the CA (--ca FILE), or renew the certificate",
    ),
    (
        ("name not found", "resolve", "name or service"),
        "the name does not resolve: a typing mistake, or the pod is gone",
        "check the URL; inside Kubernetes, kubectl get endpoints",
    ),
    (
        ("refused", "reset", "closed"),
        "nothing listens there: the process died, still starts, or listens elsewhere",
        "look at the last lines of its log (kubectl logs --previous) and its port",
    ),
    (
        ("no answer", "time", "deadline"),
        "it accepts and does not answer: hung, overloaded, or a firewall in between",
        "curl its /metrics from its own host; if that hangs too, restart the engine",
    ),
)


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Says of every server that does not answer why, once."""
    engines = case.snapshot.engines
    ever_read = any(engine.at is not None for engine in engines)
    down = [e for e in engines if e.state == "down" and e.reason != "not read yet"]
    for name, members in by_server(down):
        known = ever_read or members[0].fix  # that it crashed is the cluster's word, not a guess
        finding = _finding(name, members, case.snapshot.at, "critical" if known else "unknown")
        yield Hit(finding, badness=len(members), engines=len(members))


def _finding(name: str, members: list[EngineSnapshot], now: float, severity: Severity) -> Finding:
    reason = members[0].reason or "no answer"
    seen = max((e.at for e in members if e.at is not None), default=None)
    evidence = [reason]
    if len(members) > 1:
        evidence.append(plural(len(members), "engine"))
    if seen is None:
        evidence.append("never answered")
    elif now > seen:
        evidence.append(f"last read {duration(now - seen)} ago")
    cause, action = _advice(reason)
    if members[0].fix:
        cause, action = "its container ended, and is started again and again", members[0].fix
    return Finding(CODE, severity, name, ", ".join(evidence), cause, action, seen)


def _advice(reason: str) -> tuple[str, str]:
    words = reason.lower()
    for marks, cause, action in _ACTIONS:
        if any(mark in words for mark in marks):
            return cause, action
    return "the server cannot be reached", "curl its /metrics from here, then from its own host"


RULE = Rule(CODE, check)
