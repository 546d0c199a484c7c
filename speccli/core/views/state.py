"""What a view is built from beside the data: the reader's choices, and what a finding is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Protocol

from speccli.core.stats.snapshot import EngineSnapshot, Event, Snapshot

WINDOWS = (10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""What the window key goes through, seconds."""


class Finding(Protocol):
    """What a check concluded; as `speccli.core.findings` makes them."""

    @property
    def code(self) -> str:
        """One of the contract's codes."""

    @property
    def severity(self) -> str:
        """`info`, `warning`, `critical` or `unknown`."""

    @property
    def subject(self) -> str:
        """`fleet` or `target/engine`."""

    @property
    def evidence(self) -> str:
        """Numbers, window, n."""

    @property
    def cause(self) -> str:
        """What is probably behind it."""

    @property
    def action(self) -> str:
        """What to do."""

    @property
    def since(self) -> float | None:
        """Since when, Unix seconds; None where not known."""


@dataclass(frozen=True, slots=True)
class UiState:
    """What the reader chose and what the program has to say of itself."""

    width: int = 120
    height: int = 40
    sort: str = "trouble"
    reverse: bool = False
    filter: str = ""
    filtering: bool = False
    """The filter is being typed."""
    paused: bool = False
    window_s: float | None = 60.0
    selected: str | None = None
    """Name of the engine under the cursor; None: the first."""
    first: int = 0
    """The first engine shown, where not all fit."""
    title: str = ""
    """What is watched, as the reader calls it."""
    targets: Sequence[str] = ()
    """What is being read, to be named while nothing has answered."""
    stale_s: float = 5.0
    """Age of the newest sample past which the whole screen no longer stands for now."""
    stopped: str | None = None
    """Why no more data will come; None while it does."""
    trouble: str | None = None
    """Why the source as a whole cannot be read right now; it is being tried again."""
    note: str | None = None
    """The answer to the last key."""
    live: bool = True
    """False for a recording: ages are not told against the clock."""
    log: Sequence[Event] = field(default_factory=tuple)
    """Events beside the snapshot's own: findings that came and went."""
    tz: tzinfo | None = None
    """The reader's zone; None: the machine's."""


def next_window(ui: UiState) -> float | None:
    """The window after the one looked over now; None: all of a recording."""
    now = ui.window_s
    if now is None:
        return WINDOWS[0]
    longer = next((window for window in WINDOWS if window > now), None)
    return longer if longer or not ui.live else WINDOWS[0]


RANK = {"critical": 0, "warning": 1, "unknown": 2, "info": 3, "ok": 4}
"""Trouble first."""

_STATE_SEVERITY = {
    "ok": "ok",
    "no-traffic": "unknown",
    "partial": "warning",
    "stale": "warning",
    "missing": "critical",
    "down": "critical",
    "pending": "warning",
    "loading": "unknown",
    "terminating": "unknown",
}

_WORDS = {
    "SPEC_NOT_ACTIVE": "spec off",
    "ZERO_ACCEPTANCE": "zero acc",
    "LOW_ACCEPTANCE": "low acc",
    "ACCEPTANCE_DRIFT": "drift",
    "ACCEPTANCE_SLOPE": "sliding",
    "PARALLEL_DRAFT_CLIFF": "cliff",
    "DRAFT_BEHIND_TARGET": "old draft",
    "BASELINE_KEY_MISMATCH": "baseline?",
    "BATCH_COLLAPSE": "collapse",
    "QUEUE_WAIT": "queueing",
    "P99_REGRESSION": "slow p99",
    "COST_OVER": "costly",
    "STALLED": "stalled",
    "ENGINE_DOWN": "down",
    "METRICS_MISSING": "missing",
    "METRICS_INCONSISTENT": "odd",
    "VERSION_SKEW": "version",
    "NO_TRAFFIC": "no traffic",
    "PARTIAL_DATA": "partial",
}


_KINDS = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "tgi": "TGI"}


def kind_name(kind: str) -> str:
    """An `engine_kind` as its makers write it."""
    return _KINDS.get(kind, kind)


def without_scheme(url: str) -> str:
    """A target, or a finding's subject, as it is called on the screen."""
    return url.split("://")[-1]


def concerns(finding: Finding, engine: EngineSnapshot) -> bool:
    """Whether a finding is about this engine, or about every engine of its server."""
    return without_scheme(finding.subject) in (engine.name, _whole_server(engine))


def _whole_server(engine: EngineSnapshot) -> str:
    return f"{without_scheme(engine.target)}/*"


def worst_by_engine(findings: Iterable[Finding]) -> dict[str, Finding]:
    """The gravest finding of each subject."""
    worst: dict[str, Finding] = {}
    for finding in findings:
        name = without_scheme(finding.subject)
        known = worst.get(name)
        if known is None or RANK.get(finding.severity, 3) < RANK.get(known.severity, 3):
            worst[name] = finding
    return worst


def finding_of(engine: EngineSnapshot, worst: Mapping[str, Finding]) -> Finding | None:
    """Its gravest finding, or its server's."""
    own = worst.get(engine.name)
    return own or worst.get(_whole_server(engine)) if worst else None


def severity_of(engine: EngineSnapshot, worst: Mapping[str, Finding]) -> tuple[str, str]:
    """An engine's severity and the word for it."""
    severity = _STATE_SEVERITY[engine.state]
    word = engine.state.replace("-", " ")
    if severity == "ok" and engine.increase is not None and engine.increase.since_start:
        word = "since start"
    finding = finding_of(engine, worst)
    low = severity == "ok" and engine.low_since is not None
    if low and (finding is None or finding.severity == "info"):
        severity, word = "warning", "low acc"
    elif finding is not None and RANK.get(finding.severity, 3) < RANK[severity]:
        severity = finding.severity
        word = _WORDS.get(finding.code, finding.code.lower().replace("_", " "))
    return severity, word


def is_stale(snapshot: Snapshot, ui: UiState, now: float) -> bool:
    """Whether the newest sample is too old to stand for now."""
    return ui.live and not ui.paused and now - snapshot.at > ui.stale_s
