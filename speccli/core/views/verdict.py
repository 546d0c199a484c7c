"""The first line of the screen: is speculation on, and is it right?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from speccli.core.findings._text import plural
from speccli.core.stats.snapshot import NOT_DUE, EngineSnapshot, Snapshot
from speccli.core.views.format import duration, hundredths, ratio
from speccli.core.views.state import RANK, Finding, UiState, without_scheme
from speccli.core.views.text import Line, Span, glyph, line, wrap

_SETTLE_S = 5.0
"""Seconds of data under which the absence of drafts is not worth a word."""
_NO_TROUBLE = frozenset({"ok", "no-traffic", "loading", "terminating"})
"""States an engine passes through when all is well."""
_ALL_OF_IT = "… (a)"
"""Where a sentence was cut: the key that shows it whole."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the screen concludes."""

    severity: str
    """`ok`, `warning`, `critical` or `unknown`."""
    word: str
    text: str
    """What is known, with the outlier's name."""
    action: str = ""
    """What to do; empty where nothing is."""
    more: int = 0
    """Further findings that are warnings or worse."""


def verdict(
    snapshot: Snapshot | None, findings: Sequence[Finding], ui: UiState, now: float
) -> Verdict:
    """The one sentence, worst first."""
    if snapshot is None:
        return _nothing_yet(ui)
    if not snapshot.engines and snapshot.pooled is None:
        return Verdict("unknown", "UNKNOWN", _no_engines(ui), "check the address and --help")
    grave = sorted(
        (f for f in findings if f.severity in ("critical", "warning")),
        key=lambda f: (RANK[f.severity], f.subject == "fleet" and len(snapshot.engines) > 1),
    )
    if not snapshot.fresh and snapshot.pooled is None:
        others = [f for f in grave if f.code not in ("ENGINE_DOWN", "METRICS_MISSING")]
        return replace(_dark(snapshot, ui), more=len(others))
    if grave:
        return _found(grave, snapshot, now)
    troubled = [e for e in snapshot.engines if e.state not in _NO_TROUBLE]
    if troubled:
        return _troubled(troubled, snapshot)
    low = [e for e in snapshot.engines if e.low_since is not None]
    if low:
        return _low(low, snapshot)
    return _fine(snapshot)


def verdict_lines(said: Verdict, width: int, rows: int) -> list[Line]:
    """The verdict in exactly `rows` rows: what is known, then what to do."""
    # Beside the word, where nothing is ever cut: a second fault must not hide behind a long one.
    more = f" (+{said.more}{' more' if width >= 60 else ''}, a)" if said.more else ""
    head = line(glyph(said.severity), " ", Span(said.word, said.severity), Span(more), "  ")
    indent = len(said.word) + 4 if width >= 60 else 2
    first_room = width - len(said.word) - len(more) - 4
    room = rows - (1 if said.action and rows > 1 else 0)
    body = _body(said.text, first_room, width - indent, room)
    lines = [line(*head, body[0])]
    lines += [line(" " * indent, text) for text in body[1:]]
    if said.action and len(lines) < rows:
        lines += _action(said.action, width, indent, rows - len(lines))
    return ([_marked(each) for each in lines] + [()] * rows)[:rows]


def _marked(row: Line) -> Line:
    """A row that was cut says which key shows all of it."""
    if not row or not row[-1].text.endswith("…"):
        return row
    text, style = row[-1]
    return (*row[:-1], Span(text[: -len(_ALL_OF_IT)].rstrip() + _ALL_OF_IT, style))


def _body(text: str, first: int, rest: int, rows: int) -> list[str]:
    text = " ".join(text.split())
    head = wrap(text, first, 1 if rows == 1 else 99)
    if rows == 1 or len(head) == 1:
        return head[:1]
    left = text[len(head[0]) :].strip()
    return [head[0], *wrap(left, rest, rows - 1)]


def _action(action: str, width: int, indent: int, rows: int) -> list[Line]:
    texts = wrap(action, width - indent - 2, rows)
    marks = ["→ ", *["  "] * (len(texts) - 1)]
    return [
        line(" " * indent, Span(mark, "key"), text) for mark, text in zip(marks, texts, strict=True)
    ]


def _nothing_yet(ui: UiState) -> Verdict:
    where = _several(ui.targets) if ui.targets else "the source"
    if ui.stopped is not None:
        return Verdict("unknown", "UNKNOWN", f"nothing was read from {where}")
    if ui.trouble is not None:
        return Verdict("unknown", "UNKNOWN", ui.trouble, "it is tried again by itself; R tries now")
    return Verdict("unknown", "WAITING", f"asked {where}; no answer yet")


def _no_engines(ui: UiState) -> str:
    return f"no engine at {_several(ui.targets)}" if ui.targets else "no engine found"


def _several(names: Sequence[str], most: int = 2) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _dark(snapshot: Snapshot, ui: UiState) -> Verdict:
    """No engine can be read now: what is known, what was tried, what to do."""
    not_due = [e for e in snapshot.engines if e.state in NOT_DUE]
    if not_due and len(not_due) == len(snapshot.engines):
        return _on_their_way(not_due)
    reasons = Counter(e.reason or e.state for e in snapshot.engines)
    reason, times = reasons.most_common(1)[0]
    first = next(e for e in snapshot.engines if (e.reason or e.state) == reason)
    total = len(snapshot.engines)
    who = first.target if total == 1 else f"none of {total} engines can be read; {first.target}"
    others = f" (and {total - times} for other reasons)" if times < total else ""
    if any(e.state == "stale" for e in snapshot.engines):
        return Verdict(
            "warning", "STALE", f"{who}: {reason}{others}", "numbers below are the last ones read"
        )
    if first.fix:  # that it crashed is the cluster's word, not a guess
        return Verdict("critical", "CRITICAL", f"{who}: {reason}{others}", first.fix)
    return Verdict("unknown", "UNKNOWN", f"{who}: {reason}{others}", _advice(reason))


def _on_their_way(engines: Sequence[EngineSnapshot]) -> Verdict:
    """None serves, and none should: they are being started or ended."""
    count = Counter(e.state for e in engines)
    many = ", ".join(f"{n} {state}" for state, n in count.most_common())
    first = min(engines, key=lambda e: (e.state != "pending", e.state != "loading"))
    text = f"no engine serves yet: {many}; {first.target}: {first.reason or first.state}"
    severity = "warning" if count["pending"] else "unknown"
    return Verdict(severity, first.state.upper(), text, first.fix or "")


_ADVICE = (
    (("speaks plain http",), "the address should begin with http://"),
    (("speaks TLS",), "the address should begin with https://"),
    (("expired",), "renew its certificate; --insecure accepts any until then"),
    (("another host", "mismatch"), "use the name that its certificate is for"),
    (("AUTH", "401", "403"), "give --token, --cert or SPECCTL_TOKEN, or ask the server itself"),
    (("404", "redirect"), "the address should be the server's root; /metrics is added to it"),
    (("refused", "reset"), "is the server up, and this its port? (port-forward?)"),
    (("not found", "resolve", "name"), "is the host's name right, seen from this machine?"),
    (("within", "time", "deadline"), "is there a route to it? a firewall drops without a word"),
    (("certificate", "TLS", "SSL"), "give --ca, or use the name the certificate is for"),
    (("none of an engine", "not a metrics"), "this page is another program's: check the port"),
    (("empty",), "the server answers with nothing: is it still loading its model?"),
)


def _advice(reason: str) -> str:
    for words, advice in _ADVICE:
        if any(word in reason for word in words):
            return advice
    return "tried again by itself, ever more slowly; R tries now"


def _found(grave: Sequence[Finding], snapshot: Snapshot, now: float) -> Verdict:
    worst = grave[0]
    fleet = worst.subject == "fleet"
    subject = "" if fleet and len(snapshot.engines) > 1 else without_scheme(worst.subject) + "  "
    parts = [f"{subject}{worst.evidence}"]
    if worst.since is not None and now - worst.since >= 60 and "for " not in worst.evidence:
        parts.append(f"for {duration(now - worst.since)}")
    whole = snapshot.fleet.acceptance_rate.value
    if not fleet and "ACCEPTANCE" in worst.code and whole is not None:
        parts.append(f"fleet {ratio(whole)}")
    if worst.cause:
        parts.append(worst.cause)
    return Verdict(
        worst.severity,
        worst.severity.upper(),
        "; ".join(parts),
        worst.action,
        len(grave) - 1,
    )


def _troubled(troubled: Sequence[EngineSnapshot], snapshot: Snapshot) -> Verdict:
    order = ("down", "missing", "pending", "stale", "partial")
    worst = min(troubled, key=lambda e: order.index(e.state))
    severity = "warning"
    text = f"{worst.name} is {worst.state}: {worst.reason or 'no reason given'}"
    fine = len(snapshot.engines) - len(troubled)
    text += f"; {fine} of {len(snapshot.engines)} engines ok"
    advice = _advice(worst.reason or "") if worst.state in ("down", "missing") else ""
    advice = worst.fix or advice
    return Verdict(severity, severity.upper(), text, advice, len(troubled) - 1)


def _low(low: Sequence[EngineSnapshot], snapshot: Snapshot) -> Verdict:
    worst = min(low, key=lambda e: e.low_since or 0.0)
    rate = worst.metrics.acceptance_rate.value
    whole = snapshot.fleet.acceptance_rate.value
    text = f"{worst.name} accepts {ratio(rate) if rate is not None else 'too little'}"
    text += f", under the floor for {duration(snapshot.at - (worst.low_since or snapshot.at))}"
    if whole is not None and len(snapshot.engines) > 1:
        text += f"; fleet {ratio(whole)}"
    return Verdict("warning", "WARNING", text, "enter shows the engine", len(low) - 1)


def _fine(snapshot: Snapshot) -> Verdict:
    engines = snapshot.engines
    total = snapshot.pooled_engines or len(engines)
    if engines and all(e.state == "no-traffic" for e in engines):
        many = f"all {total} engines answer" if total > 1 else f"{engines[0].name} answers"
        text = f"{many}, and no request has run in the window"
        advice = "send a request, widen the window (w), or check what routes to it"
        return Verdict("unknown", "NO TRAFFIC", text, advice)
    fleet = snapshot.fleet
    rate, length = fleet.acceptance_rate, fleet.acceptance_length
    if rate.value is None or length.value is None:
        if not snapshot.subject.speculating:
            who = "every engine that answers" if total > 1 else engines[0].name
            return Verdict("unknown", "NO SPECULATION", f"speculation is off on {who}")
        if 0 < snapshot.covered_s < _SETTLE_S and fleet.running.value:
            text = f"requests run; no draft in the first {snapshot.covered_s:.1f} s of data"
            return Verdict("unknown", "WAITING", text)
        text = "requests run, and whether speculation helps them is not known: "
        return Verdict("unknown", "UNKNOWN", text + (rate.reason or length.reason or ""))
    since = " since the process started" if snapshot.subject.pool.since_start else ""
    drafting = sum(e.state == "ok" for e in engines) if snapshot.pooled is None else total
    text = (
        f"speculation is on: {drafting} of {plural(total, 'engine')} drafting, "
        f"{ratio(rate.value)} accepted, AL {hundredths(length.value)}{since}"
    )
    for state in ("loading", "terminating"):
        if count := sum(e.state == state for e in engines):
            text += f"; {count} {state}"
    return Verdict("ok", "OK", text)
