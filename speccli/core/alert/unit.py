"""One thing that is watched over time: an engine, or the fleet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from speccli.core.alert.judgement import Drift
from speccli.core.baseline.model import Baseline
from speccli.core.findings.base import Thresholds
from speccli.core.stats.drift import Detector, Dispersion, Look, per_draft_variance
from speccli.core.stats.growth import Pending
from speccli.core.stats.mix import Mix, Seen, expected_rate, verdict
from speccli.core.stats.slope import Slope

_UNCOVERED_LOOKS = 12
"""Looks of a mix the baseline never saw after which the test beside the mix begins anew."""


@dataclass(slots=True)
class Unit:
    """Growth in, looks made of it, and what two tests and a slope remember of them."""

    pending: Pending = field(default_factory=Pending)
    mix: Mix = field(default_factory=Mix)
    whole: Detector = field(default_factory=Detector)
    """Against the baseline's rate, whatever the mix."""
    beside: Detector = field(default_factory=Detector)
    """Against what the baseline expects of the mix seen: what is left is not the mix's."""
    uncovered: int = 0
    """Looks in a row whose mix the baseline never saw."""
    slope: Slope = field(default_factory=Slope)

    def cut(self) -> None:
        """Another process or method: what was remembered is not about it."""
        self.pending, self.slope = Pending(), Slope()
        self.whole.clear()
        self.beside.clear()
        self.uncovered = 0

    def grown(
        self,
        look: Look,
        baseline: Baseline | None,
        scatter: Dispersion,
        thresholds: Thresholds,
        limit: float,
    ) -> None:
        """Growth since the last observation; judged once it makes a look."""
        whole = self.pending.take(look, thresholds.drift_every_s, thresholds.drift_min_drafts)
        if whole is None:
            return
        prompt = self.mix.take(whole)
        expected = expected_rate(baseline.bins, prompt) if baseline else None
        variance = scatter.variance(whole.drafts)
        if baseline is not None:
            spread, margin = math.sqrt(variance), scatter.margin(thresholds.drift_margin)
            self.whole.take(whole, baseline.rate, spread, margin, limit)
            if expected is not None:
                self.uncovered = 0
                self.beside.take(whole, expected, spread, margin, limit)
            elif self.uncovered >= _UNCOVERED_LOOKS:
                self.beside.clear()
            else:
                self.uncovered += 1
        usual = expected if expected is not None else baseline.rate if baseline else 0.0
        known = expected is not None
        self.slope.take(whole.at, whole.rate - usual, variance, mix_known=known)

    def drift(self, subject: str, baseline: Baseline, limit: float) -> Drift | None:
        """The fall that is proven, with whose fault it is; None where there is none."""
        proven = self.beside.alarm
        test = self.beside if proven else self.whole
        since = test.since
        if not test.alarm or since.draft_tokens <= 0:
            return None
        if proven:
            expected: float | None = test.expected / since.draft_tokens
        else:
            expected = expected_rate(baseline.bins, since.prompt_mean)
        drafts = since.drafts
        found = verdict(
            Seen(
                rate=since.rate,
                was=baseline.rate,
                expected=expected,
                prompt=since.prompt_mean,
                prompt_was=baseline.prompt_tokens,
                positions=tuple(p / drafts for p in since.positions) if drafts else (),
                positions_were=baseline.positions,
                proven=proven,
                requests=since.requests,
            )
        )
        if found is None:
            return None
        whole_is_usual = expected is None or found.kind == "traffic"
        return Drift(
            subject=subject,
            was=baseline.rate if whole_is_usual else expected or 0.0,
            now=since.rate,
            length=1 + since.accepted / drafts if drafts else None,
            drafts=drafts,
            seconds=since.seconds,
            since=test.began,
            verdict=found,
            looks_between=limit,
        )

    def to_json(self) -> dict[str, Any]:
        """Its whole state."""
        return {
            "pending": self.pending.look.to_json() if self.pending.look else None,
            "mix": self.mix.to_json(),
            "whole": self.whole.to_json(),
            "beside": self.beside.to_json(),
            "uncovered": self.uncovered,
            "slope": self.slope.to_json(),
        }

    @classmethod
    def from_json(cls, value: Any) -> Unit:
        """The unit of a state; ValueError, TypeError or KeyError where it is none."""
        pending = value["pending"]
        return cls(
            Pending(None if pending is None else Look.from_json(pending)),
            Mix.from_json(value["mix"]),
            Detector.from_json(value["whole"]),
            Detector.from_json(value["beside"]),
            int(value["uncovered"]),
            Slope.from_json(value["slope"]),
        )


def assumed(look: Look) -> Dispersion:
    """The scatter of an engine for which no baseline tells it."""
    positions = tuple(p / look.drafts for p in look.positions) if look.drafts else ()
    if look.drafts and look.draft_tokens < 0.9 * len(positions) * look.drafts:
        positions = ()
    return Dispersion(per_draft=per_draft_variance(positions, look.rate))
