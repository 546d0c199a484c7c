"""What rules do not say, and why: for checks alone, or because nobody said the limit."""

from __future__ import annotations

from speccli.core.alert.rules.alerting import alerts
from speccli.core.alert.rules.model import Terms
from speccli.core.findings.base import CODES

FOR_CHECKS = {
    "DRAFT_BEHIND_TARGET": "no metric tells revisions: give them to `alert check`",
}
"""What Prometheus cannot know at all."""
_ASKS = {
    "SPEC_NOT_ACTIVE": "--method none expects no speculation",
    "BATCH_COLLAPSE": "needs --baseline with an arm without speculation (baseline record --plain)",
    "BASELINE_KEY_MISMATCH": "needs --baseline of a known model or K",
    "QUEUE_WAIT": "needs queue_wait_ms in specctl.toml",
    "P99_REGRESSION": "needs ttft_p99_ms or tpot_p99_ms in specctl.toml",
    "COST_OVER": "needs cost_target in specctl.toml, and --gpu-hour-usd",
    "NO_TRAFFIC": "needs --require-traffic",
}
IN_PART = (
    "ACCEPTANCE_DRIFT",
    "ACCEPTANCE_SLOPE",
    "VERSION_SKEW",
    "BASELINE_KEY_MISMATCH",
    "P99_REGRESSION",
    "PARTIAL_DATA",
    "METRICS_MISSING",
    "METRICS_INCONSISTENT",
)
"""What rules see less of than checks do; docs/alerting.md says what they lack."""


def left_out(terms: Terms) -> dict[str, str]:
    """Codes that these terms make no rule of, and why."""
    made = {alert.code for alert in alerts(terms)}
    return {code: (FOR_CHECKS | _ASKS)[code] for code in CODES if code not in made}
