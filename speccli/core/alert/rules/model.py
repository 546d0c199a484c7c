"""What an alert is, and what alerts are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speccli.core.alert.notify.alertmanager import alert_name
from speccli.core.baseline import Baseline
from speccli.core.cost import Pricing
from speccli.core.findings.base import Thresholds
from speccli.core.sources.promql import RULE_INTERVAL_S

FLOOR = "specctl:acceptance_floor"
BASELINE = "specctl:acceptance_baseline"
COST = "specctl:cost_per_1m_output_usd"
MODEL = "{{ $labels.model_name }} in {{ $labels.namespace }}"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the rules are made from."""

    thresholds: Thresholds = Thresholds()
    baseline: Baseline | None = None
    pricing: Pricing = Pricing()
    require_traffic: bool = False

    @property
    def model(self) -> str | None:
        """The model that the baseline is of; None where it tells none."""
        return self.baseline.key.target if self.baseline else None

    @property
    def margin(self) -> float:
        """Fall under the baseline that is in order."""
        wander = self.baseline.fleet.wander if self.baseline else 0.0
        return round(max(self.thresholds.slope_fall, 3 * wander), 4)


@dataclass(frozen=True, slots=True)
class Stream:
    """Series of one engine that are not as in a sound one; values in promtool's notation."""

    changes: Mapping[str, str] = field(default_factory=dict)
    """By short name (see `cases`)."""
    at: str = "30m"
    """When it is looked at."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert."""

    code: str
    expr: str
    hold: str
    severity: str
    summary: str
    action: str
    fires: Stream
    value: str | None
    """What `$value` is when it fires, as its annotation writes it; None: not told."""
    quiet: Stream
    """Comes near and must not raise it."""
    labels: Mapping[str, str]
    """Labels of the series that raise it in `fires`."""
    name: str = ""
    kind: str | None = None
    """Engine kind, where the expression loses it."""
    every_s: float = RULE_INTERVAL_S
    """How often it is looked at, seconds."""

    @property
    def alert(self) -> str:
        """Its name."""
        return self.name or alert_name(self.code)

    @property
    def own_labels(self) -> dict[str, str]:
        """Labels it adds."""
        told = {"severity": self.severity, "code": self.code, "source": "specctl-rules"}
        return {**told, "engine_kind": self.kind} if self.kind else told

    def rule(self) -> dict[str, Any]:
        """The rule."""
        return {
            "alert": self.alert,
            "expr": self.expr,
            "for": self.hold,
            "labels": self.own_labels,
            "annotations": self.annotations,
        }

    @property
    def annotations(self) -> dict[str, str]:
        """What is said."""
        return {
            "summary": self.summary,
            "action": self.action,
            "runbook": f"docs/findings.md#{self.code.lower()}",
        }


OF_MODEL = {"namespace": "prod", "model_name": "m", "engine_kind": "vllm"}
OF_ENGINE = {
    "job": "vllm",
    "namespace": "prod",
    "instance": "a:8000",
    "engine": "0",
    "model_name": "m",
}
OF_TARGET = {"job": "vllm", "namespace": "prod", "instance": "a:8000"}
