"""What a finding is, what it is decided by, and what a rule has to be.

A rule is a file of its own in this package: evidence in, findings out, no I/O and no clock. It
never fires on a number that is unknown. `docs/findings.md` has a section a code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from speccli.core.findings._case import Case

Severity = Literal["info", "warning", "critical", "unknown"]

WORST_FIRST: tuple[Severity, ...] = ("critical", "warning", "unknown", "info")
"""What is known to be wrong goes before what is not known."""

CODES: tuple[str, ...] = (
    "SPEC_NOT_ACTIVE",
    "ZERO_ACCEPTANCE",
    "LOW_ACCEPTANCE",
    "ACCEPTANCE_DRIFT",
    "ACCEPTANCE_SLOPE",
    "PARALLEL_DRAFT_CLIFF",
    "DRAFT_BEHIND_TARGET",
    "BASELINE_KEY_MISMATCH",
    "BATCH_COLLAPSE",
    "QUEUE_WAIT",
    "P99_REGRESSION",
    "COST_OVER",
    "STALLED",
    "ENGINE_DOWN",
    "METRICS_MISSING",
    "METRICS_INCONSISTENT",
    "VERSION_SKEW",
    "NO_TRAFFIC",
    "PARTIAL_DATA",
)
"""Every code there is. A code, once shipped, keeps its meaning."""

FLEET = "fleet"
"""Subject of a finding about all engines together."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule concludes."""

    code: str
    """One of `CODES`."""
    severity: Severity
    """`unknown`: something keeps specctl from judging."""
    subject: str
    """`fleet`, `host:port/engine`, or `host:port/*` for every engine of a server."""
    evidence: str
    """The numbers, the window and n."""
    cause: str
    """What is wrong, or what most likely is."""
    action: str
    """What to do: a flag, a command, or the thread where others met it."""
    since: float | None = None
    """Since when it has been so, Unix seconds; None where that cannot be told."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What numbers are held against. A target that is None is not judged at all."""

    expect_speculation: bool | None = None
    """Whether these engines should speculate. True: even where every server says it has no draft;
    False: no; None: yes, unless the server itself says that it runs without (then it is a note,
    where a judge does not know better)."""
    min_tokens: float = 200
    """Output tokens after the first of each request, under which the absence of drafts means
    nothing."""
    acceptance_floor: float = 0.4
    """Acceptance rate (accepted / draft tokens, 0..1) under which acceptance is low."""
    hold_s: float = 3600.0
    """Seconds for which acceptance must stay under the floor before it is a finding."""
    min_draft_tokens: float = 200
    """Draft tokens under which no acceptance is judged."""
    zero_rate: float = 0.005
    """Acceptance rate at or under which nothing is accepted: garbage is right by luck at times."""
    cliff_ratio: float = 0.35
    """Acceptance at position 1 over that at position 0, under which later positions collapse."""
    cliff_first: float = 0.4
    """Acceptance at position 0 from which that position is in order, 0..1."""
    stalled_s: float = 30.0
    """Seconds with work and without an output token; a single prefill must be shorter."""
    length_tolerance: float = 0.02
    """Share by which 1 + Σ positions may differ from the acceptance length."""
    drift_looks: float = 8640
    """Checks without a false alarm of drift, on average: 30 days at one in 5 minutes."""
    drift_every_s: float = 300.0
    """Seconds of growth that make one such check, however often the judge is called."""
    drift_min_drafts: float = 200
    """Drafts that such a check needs; with fewer it waits for more."""
    drift_margin: float = 0.01
    """Fall of the acceptance rate that is in order; more where the baseline itself swings more."""
    slope_fall: float = 0.03
    """Fall of the acceptance rate since process start that makes a slide a finding."""
    collapse_batch: float = 64
    """Requests per step from which speed is held against the arm without speculation."""
    queue_wait_ms: float | None = None
    """Queue wait, milliseconds, that must not be passed."""
    ttft_p99_ms: float | None = None
    """99th percentile of the time to first token, milliseconds, that must not be passed."""
    tpot_p99_ms: float | None = None
    """99th percentile of a request's time per output token, milliseconds, likewise."""
    cost_per_1m_usd: float | None = None
    """USD per 1M output tokens that must not be passed."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A finding as a rule makes it, before what the fleet has in common is said once."""

    finding: Finding
    badness: float = 0.0
    """Orders the findings of one code: the larger, the worse."""
    engines: int = 1
    """How many engines it is about."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One code and the check that raises it."""

    code: str
    check: Callable[[Case, Thresholds], Iterable[Hit]]
