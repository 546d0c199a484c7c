"""The server answers, and what it answers is not metrics of an engine."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, by_server
from speccli.core.findings._text import plural
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.sources.base import NO_ENGINES

CODE = "METRICS_MISSING"
_ADVICE: dict[str, tuple[str, str]] = {
    "AUTH": (
        "the server, or a proxy before it, wants a login",
        "give credentials (--token, --cert), or the engine's own address without the proxy",
    ),
    "SERVER": ("the metrics handler fails", "read the server's log"),
    "TRUNCATED": (
        "the answer is cut off before any metric",
        "look for a proxy with a size or time limit; raise --deadline",
    ),
    "GARBLED": (
        "the page is not in the Prometheus text format",
        "curl it: is it another service, or a proxy's own page?",
    ),
    "NAN": (
        "no value on the page is a number",
        "restart the engine; report it with the page (curl …/metrics)",
    ),
}
_LOCAL_FOLDER = "put PROMETHEUS_MULTIPROC_DIR on a local emptyDir (vllm#49983)"
_PLAIN = (
    "the page has no series of an engine: another service, a redirect, or statistics switched off",
    "check port and path (/metrics); start vLLM without --disable-log-stats, SGLang with "
    "--enable-metrics",
)
_NOT_IN_PROMETHEUS = (
    "it scrapes no engine, or the selector has a label or a value that no engine has",
    "ask without --selector; look at Prometheus's own page of targets",
)
_GONE = (
    "the server no longer shows this engine: it has fewer engines than before, or one died",
    "look for the engine's rank in the server's log",
)


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Says of every such server what it answered, once."""
    missing = [engine for engine in case.snapshot.engines if engine.state == "missing"]
    for name, members in by_server(missing):
        reason = members[0].reason or "no metrics"
        told = f", {plural(len(members), 'engine')}" if len(members) > 1 else ""
        cause, action = _advice(reason)
        seen = max((e.at for e in members if e.at is not None), default=None)
        finding = Finding(CODE, "unknown", name, reason + told, cause, action, seen)
        yield Hit(finding, badness=len(members), engines=len(members))


def _advice(reason: str) -> tuple[str, str]:
    if reason.startswith("no longer on its server's page"):
        return _GONE
    if NO_ENGINES in reason:
        return _NOT_IN_PROMETHEUS
    if "PROMETHEUS_MULTIPROC_DIR" in reason:
        return _ADVICE["SERVER"][0], f"vLLM: {_LOCAL_FOLDER}; else {_ADVICE['SERVER'][1]}"
    return _ADVICE.get(reason.partition(":")[0], _PLAIN)


RULE = Rule(CODE, check)
