"""The pages behind the keys: all events, all findings, help and why each `—` is one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from speccli.core.stats.snapshot import Snapshot
from speccli.core.values import Latency, Number, Quantile
from speccli.core.views.detail import finding_lines
from speccli.core.views.journal import event_lines, merged
from speccli.core.views.state import Finding, UiState
from speccli.core.views.text import Line, Span, fit, glyph, line, rule, wrap

KEYS = (
    ("↑ ↓ j k", "move; pgup pgdn home end too"),
    ("enter", "the engine under the cursor in full; esc comes back"),
    ("s · r", "next sort key · the other way round"),
    ("/", "filter by name, model, version, state (several words: all must match)"),
    ("w", "next window: 10 s, 30 s, 1 min, 5 min, 15 min, 1 h"),
    ("p", "pause: holds the screen, data goes on"),
    ("e · a", "all events · all findings, with cause and what to do"),
    ("y", "copy the snapshot as JSON to the terminal's clipboard (OSC 52)"),
    ("S", "write a picture of the screen (SVG) to this directory"),
    ("R", "read now"),
    ("ctrl-z", "to the shell, and back by fg; nothing is read meanwhile"),
    ("q", "quit"),
)
_STATES = (
    ("ok", "ok", "answers, and requests run"),
    ("warning", "warning", "partial or stale data, or a finding"),
    ("critical", "critical", "down, or without metrics, or a grave finding"),
    ("unknown", "unknown", "no traffic, or nothing known"),
)
_MARKS = (
    ("—", "unknown: the reasons are listed above"),
    ("25–50 ms", "the quantile lies in this bucket; nothing finer can be known"),
    ("<10 ms", "inside the first bucket: the histogram resolves no less"),
    (">60 s", "beyond the last bucket"),
    ("·", "no step ran at this batch size in the window"),
    ("dim", "stale: the last value read, with its age"),
    ("since start", "one scrape so far: counted since the process began, not over the window"),
)
_FORMULAS = (
    ("acceptance", "accepted / draft tokens, added over engines before dividing"),
    ("AL", "1 + accepted / drafts: tokens per verify step"),
    ("by position", "accepted at the position / drafts"),
    ("tokens/step", "output tokens per request and engine step; 1.00 without speculation"),
    ("wasted", "drafted and not accepted"),
    ("queue wait", "the larger of: observed (requests that finished), backlog (waiting / leaving)"),
    ("batch", "requests in an engine step"),
)


def events_page(snapshot: Snapshot | None, ui: UiState) -> tuple[Line, ...]:
    """Every event kept, newest first."""
    told = merged(snapshot.events if snapshot is not None else (), ui.log)
    rows = [rule("events, newest first", ui.width, f"{len(told)}")]
    rows += event_lines(told, ui.width, ui.tz, dates=ui.width >= 76)
    if not told:
        rows.append(line(Span("nothing has happened since this screen was opened", "dim")))
    return tuple(fit(each, ui.width) for each in rows)


def findings_page(findings: Sequence[Finding], ui: UiState, now: float) -> tuple[Line, ...]:
    """Every finding with evidence, cause and action."""
    rows = finding_lines(findings, ui.width, now, "findings, worst first", "none: nothing to do")
    return tuple(fit(each, ui.width) for each in rows)


def help_page(snapshot: Snapshot | None, names: Sequence[str], ui: UiState) -> tuple[Line, ...]:
    """Keys, why each dash is one, and what marks and words mean."""
    rows = [rule("keys", ui.width)]
    rows += _pairs(KEYS, ui.width, 12)
    rows += [(), rule("why — ?", ui.width)]
    told = reasons(snapshot, names)
    for why, where in told:
        rows += [
            line(Span(text, "head" if i == 0 else ""))
            for i, text in enumerate(wrap(why, ui.width, 3))
        ]
        rows += [line(Span(f"    {text}", "dim")) for text in wrap(where, ui.width - 4, 4)]
    if not told:
        rows.append(line(Span("every number on the screen is known", "dim")))
    rows += [(), rule("marks", ui.width)]
    for severity, word, meaning in _STATES:
        text = f"{word:<10} {meaning}"
        rows.append(line(glyph(severity), " ", text))
    rows += _pairs(_MARKS, ui.width, 12)
    rows += [(), rule("words", ui.width)]
    rows += _pairs(_FORMULAS, ui.width, 12)
    return tuple(fit(each, ui.width) for each in rows)


def _pairs(pairs: Sequence[tuple[str, str]], width: int, label: int) -> list[Line]:
    rows: list[Line] = []
    for name, meaning in pairs:
        parts = wrap(meaning, max(10, width - label), 4)
        rows.append(line(Span(name.ljust(label), "key"), parts[0]))
        rows += [line(" " * label, part) for part in parts[1:]]
    return rows


_NAMES = {
    "acceptance_rate": "acceptance",
    "acceptance_length": "AL",
    "acceptance_by_position": "by position",
    "tokens_per_step": "tokens/step",
    "wasted_draft_tokens_per_s": "wasted",
    "batch_size": "batch",
    "kv_cache_usage": "KV",
    "queue_wait_ms": "queue wait",
    "queue_wait_observed_ms": "queue wait observed",
    "queue_wait_backlog_ms": "queue wait backlog",
    "running": "running",
    "waiting": "waiting",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "output_tokens_per_s": "tok/s",
    "cost_per_1m_output_usd": "$/1M",
}


def reasons(snapshot: Snapshot | None, names: Sequence[str]) -> list[tuple[str, str]]:
    """Every reason behind a dash on screen, and where it stands; `names`: the engines in view."""
    if snapshot is None:
        return [("no answer yet", "every number")]
    found: dict[str, dict[str, list[str]]] = {}
    _collect(found, "fleet", snapshot.fleet)
    wanted = set(names)
    for engine in snapshot.engines:
        if engine.name not in wanted:
            continue
        _collect(found, engine.name, engine.metrics)
        for label, value in (("version", engine.version), ("K", engine.k)):
            if value is None:
                _add(found, f"{label} is not told by the engine's metrics", engine.name, label)
    if snapshot.unbinned is not None:
        _add(found, snapshot.unbinned, "fleet", "p99 by batch size")
    return [(why, _where(places)) for why, places in _alike(found).items()]


def _alike(found: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Reasons that differ in a count only, as one."""
    first: dict[str, str] = {}
    joined: dict[str, dict[str, list[str]]] = {}
    for why, places in found.items():
        shape = re.sub(r"^[\d,.]+", "#", why)
        told = first.setdefault(shape, why)
        for who, labels in places.items():
            known = joined.setdefault(told, {}).setdefault(who, [])
            known += [label for label in labels if label not in known]
    return joined


def _collect(found: dict[str, dict[str, list[str]]], who: str, metrics: object) -> None:
    for item in fields(metrics):  # type: ignore[arg-type]
        label = _NAMES.get(item.name)
        value = getattr(metrics, item.name)
        if label is None:
            continue
        parts: Sequence[Number | Quantile] = (value,) if isinstance(value, Number) else ()
        if isinstance(value, Latency):
            parts = (value.p50, value.p99)
        elif isinstance(value, tuple):
            parts = value
        for part in parts:
            if part.state == "unknown":
                _add(found, part.reason or "no reason given", who, label)


def _add(found: dict[str, dict[str, list[str]]], why: str, who: str, label: str) -> None:
    labels = found.setdefault(why, {}).setdefault(who, [])
    if label not in labels:
        labels.append(label)


def _where(places: dict[str, list[str]]) -> str:
    """Who lacks what, engines that lack the same named together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for who, labels in places.items():
        alike.setdefault(tuple(labels), []).append(who)
    parts = []
    for lacking, names in alike.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"{', '.join(names[:3])}{more}: {', '.join(lacking)}")
    return "; ".join(parts)
