"""What `alert watch` says of itself over HTTP: /metrics and /healthz."""

from __future__ import annotations

import time
from collections.abc import Callable

from speccli.core.alert.endpoint import Endpoint, Families, escaped
from speccli.core.alert.verdict import Verdict

_LATE = 3.0
"""Intervals without a successful check after which it is not healthy."""


class Heartbeat(Endpoint):
    """Counts checks, and remembers the last one."""

    def __init__(
        self,
        deployment: str,
        interval_s: float,
        floor: float,
        baseline: float | None,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`baseline`: its acceptance rate; `steady`: a clock that nobody sets."""
        self.deployment = deployment
        self._interval_s = interval_s
        self._floor = floor
        self._baseline = baseline
        self._clock = clock
        self._steady = steady
        self._began = self._last = steady()
        self._success_at: float | None = None
        self._checks = self._failures = self._untold = 0
        self._verdict: Verdict | None = None

    def beat(self, verdict: Verdict, untold: int = 0) -> None:
        """A check was made. One that could not read its source is a failure."""
        self._checks += 1
        self._untold += untold
        self._verdict = verdict
        if verdict.snapshot is None:
            self._failures += 1
        else:
            self._success_at, self._last = self._clock(), self._steady()

    @property
    def healthy(self) -> bool:
        """Whether checks are still being made."""
        return self._steady() - self._last <= max(30.0, _LATE * self._interval_s)

    def page(self) -> str:
        """The metrics."""
        families = Families(self.deployment)
        family = families.add
        family(
            "specctl_alert_last_success_timestamp_seconds",
            "gauge",
            "When the source was last read and judged.",
            ("", None if self._success_at is None else round(self._success_at, 3)),
        )
        family("specctl_alert_checks_total", "counter", "Checks made.", ("", self._checks))
        family(
            "specctl_alert_failures_total", "counter", "Checks without data.", ("", self._failures)
        )
        family(
            "specctl_alert_notify_failures_total",
            "counter",
            "Notifications that could not be delivered.",
            ("", self._untold),
        )
        family("specctl_alert_acceptance_floor", "gauge", "Floor of acceptance.", ("", self._floor))
        family(
            "specctl_alert_acceptance_baseline",
            "gauge",
            "Acceptance rate of the baseline.",
            ("", self._baseline),
        )
        self._of_verdict(family)
        return families.text

    def _of_verdict(self, family: Callable[..., None]) -> None:
        verdict = self._verdict
        if verdict is None:
            return
        family(
            "specctl_alert_exit_code",
            "gauge",
            "What `alert check` would have exited with: 0 ok, 1 warning, 2 critical, 3 unknown.",
            ("", verdict.exit),
        )
        findings = [
            (
                f'code="{f.code}",severity="{f.severity}",subject="{escaped(f.subject)}"',
                1.0,
            )
            for f in verdict.findings
        ]
        family("specctl_alert_findings", "gauge", "What is found now.", *findings)
        if verdict.snapshot is None:
            return
        rate = verdict.snapshot.fleet.acceptance_rate
        cost = verdict.snapshot.fleet.cost_per_1m_output_usd
        engines = verdict.snapshot.pooled_engines or len(verdict.snapshot.fresh)
        family("specctl_alert_engines", "gauge", "Engines that are read.", ("", engines))
        family(
            "specctl_alert_acceptance_rate",
            "gauge",
            "Accepted / draft tokens, as judged.",
            ("", rate.value),
        )
        family(
            "specctl_alert_cost_per_1m_output_usd",
            "gauge",
            "USD per 1M output tokens.",
            ("", cost.value),
        )
