"""The alerts, each beside streams that raise it and streams that only come near."""

from __future__ import annotations

from typing import Any

from speccli.core.alert.rules import engines
from speccli.core.alert.rules import expressions as ex
from speccli.core.alert.rules.compared import compared_alerts
from speccli.core.alert.rules.model import (
    BASELINE,
    COST,
    FLOOR,
    MODEL,
    OF_ENGINE,
    OF_MODEL,
    OF_TARGET,
    Alert,
    Stream,
    Terms,
)
from speccli.core.alert.rules.targets import target_alerts
from speccli.core.engines.registry import ADAPTERS
from speccli.core.findings.base import Thresholds
from speccli.core.sources import derived
from speccli.core.sources.promql import duration

LATE_S = 900


def constants(terms: Terms) -> list[dict[str, Any]]:
    """Thresholds as series, so that a dashboard shows what the rules hold numbers against."""
    rules: list[dict[str, Any]] = [
        {"record": FLOOR, "expr": f"vector({terms.thresholds.acceptance_floor:g})"}
    ]
    if terms.baseline is not None:
        named = {"baseline": terms.baseline.name}
        value = f"vector({terms.baseline.rate:.6g})"
        rules.append({"record": BASELINE, "expr": value, "labels": named})
        if terms.baseline.plain:
            made = engines.batch_records(terms.baseline.plain, terms.model)
            rules += [{"record": name, "expr": expression} for name, expression in made]
    price = terms.pricing.gpu_hour_usd
    if price is not None:
        hourly = price * terms.pricing.gpus_per_engine
        tokens = derived.bare("specctl:generation_tokens:rate2m")
        cost = f"{derived.ENGINES} * {hourly:.6g} / (3600 * ({tokens} > 0)) * 1e6"
        rules.append({"record": COST, "expr": cost})
    return rules


def alerts(terms: Terms) -> list[Alert]:
    """Every alert that these terms ask for."""
    thresholds = terms.thresholds
    found = [_zero(thresholds), _low(thresholds), _cliff(thresholds), _drift(terms)]
    if thresholds.expect_speculation is not False:
        found.insert(0, _not_active(thresholds))
    found += [stalled for adapter in ADAPTERS for stalled in _stalled(adapter.kind)]
    found += [*_down(), *_missing(), _absent(), _contradict(), _watch()]
    return [*found, *compared_alerts(terms), *target_alerts(terms)]


def of_engines(terms: Terms) -> list[dict[str, Any]]:
    """What is recorded of single engines, seldom: it is asked for by the day."""
    expression = engines.acceptance(terms.thresholds.min_draft_tokens)
    return [{"record": engines.ACCEPTANCE, "expr": expression}]


def _not_active(t: Thresholds) -> Alert:
    return Alert(
        "SPEC_NOT_ACTIVE",
        ex.not_active(t.min_tokens),
        "5m",
        "critical",
        f"{MODEL} generates tokens and drafts none",
        "look for speculative_config in the start-up log; give --speculative-config",
        Stream({"drafts": "0x240", "draft_tokens": "0x240", "accepted": "0x240"}),
        None,
        Stream({"drafts": "0+1x240", "draft_tokens": "0+3x240", "accepted": "0+2x240"}),
        OF_MODEL,
    )


def _zero(t: Thresholds) -> Alert:
    return Alert(
        "ZERO_ACCEPTANCE",
        f"{derived.ACCEPTANCE} <= {t.zero_rate:g} and {ex.enough(t.min_draft_tokens)}",
        "0s",
        "critical",
        f"{MODEL}: drafts are made and none is accepted",
        "send one prompt and read the answer; compare the draft with the target; restart without "
        "--speculative-config until they fit",
        Stream({"accepted": "0x240"}),
        None,
        Stream({"drafts": "0+1x240", "draft_tokens": "0+3x240", "accepted": "0x240"}),
        OF_MODEL,
    )


def _low(t: Thresholds) -> Alert:
    floor, hold = t.acceptance_floor, t.hold_s
    low, near = round(3000 * floor * 0.75), round(3000 * floor * 1.02)
    return Alert(
        "LOW_ACCEPTANCE",
        f"{derived.ACCEPTANCE} < {floor:g} and {ex.enough(t.min_draft_tokens)}",
        duration(hold),
        "warning",
        f'{MODEL}: acceptance {{{{ $value | printf "%.2f" }}}}, under {floor:g} '
        f"for {duration(hold)}",
        "send the same prompts to a freshly started engine; better there: restart (vllm#41838)",
        Stream({"accepted": f"0+{low}x1000"}, at=f"{int(hold / 60) + 10}m"),
        f"{low / 3000:.2f}",
        Stream({"accepted": f"0+{near}x1000"}, at=f"{int(hold / 60) + 10}m"),
        OF_MODEL,
    )


def _cliff(t: Thresholds) -> Alert:
    return Alert(
        "PARALLEL_DRAFT_CLIFF",
        ex.cliff(t.cliff_ratio, t.cliff_first, t.min_draft_tokens),
        "5m",
        "warning",
        f'{MODEL}: position 1 is accepted {{{{ $value | printf "%.2f" }}}} times as often as '
        "position 0",
        "take response_format out of one request and compare (vllm#42004); make "
        "parallel_drafting agree with the checkpoint",
        Stream({"at1": "0+80x240", "at2": "0+8x240", "accepted": "0+888x240"}),
        "0.10",
        Stream({"at1": "0+320x240", "at2": "0+80x240", "accepted": "0+1200x240"}),
        OF_MODEL,
    )


def _drift(terms: Terms) -> Alert:
    base = terms.baseline
    if base is None:
        expr, against = ex.drift_of_day(terms.thresholds.min_draft_tokens), "the last day's"
        fell = "0+1800x1440 2592600+1200x480"
        fires = Stream({"accepted": fell}, at="13h30m")
        value = "0.40"
        quiet = Stream({"accepted": "0+1800x1440 2593740+1740x480"}, at="13h30m")
    else:
        fallen = base.rate - terms.margin
        least = terms.thresholds.min_draft_tokens
        expr = ex.drift_of_baseline(BASELINE, terms.margin, least, terms.model)
        stand_in = " (of a stand-in)" if base.stand_in else ""
        against = f"baseline {base.name}'s {base.rate:.3f}{stand_in}"
        low, near = round(3000 * fallen * 0.9), round(3000 * (fallen + 0.25 * terms.margin))
        fires = Stream({"accepted": f"0+{low}x480"}, at="2h")
        value = f"{low / 3000:.2f}"
        quiet = Stream({"accepted": f"0+{near}x480"}, at="2h")
    return Alert(
        "ACCEPTANCE_DRIFT",
        expr,
        "30m",
        "warning",
        f'{MODEL}: acceptance {{{{ $value | printf "%.2f" }}}} against {against}',
        "specctl alert check --baseline tells whether it is the draft or the traffic",
        fires,
        value,
        quiet,
        OF_MODEL,
    )


def _stalled(kind: str) -> list[Alert]:
    if kind != "vllm":
        return [
            Alert(
                "STALLED",
                ex.stalled(kind),
                "0s",
                "critical",
                "{{ $labels.instance }}: work waits or runs and no token has left for 2 minutes",
                "keep the log and a stack, then restart the engine",
                Stream(
                    {"sglang_gen": "5000x240", "sglang_running": "3x240", "sglang_waiting": "0x240"}
                ),
                None,
                Stream(
                    {"sglang_gen": "0+1x240", "sglang_running": "3x240", "sglang_waiting": "0x240"}
                ),
                {k: v for k, v in OF_ENGINE.items() if k != "engine"} | {"instance": "s:30000"},
                kind=kind,
            )
        ]
    return [
        Alert(
            "STALLED",
            ex.stalled(kind),
            "0s",
            "critical",
            "{{ $labels.instance }}: work waits or runs and no token has left for 2 minutes",
            "keep the log and a stack (py-spy dump --pid of EngineCore), then restart the engine",
            Stream({"gen": "5000x240", "drafts": "0x240", "draft_tokens": "0x240"}),
            None,
            Stream({"gen": "5000x240", "running": "0x240", "drafts": "0x240"}),
            OF_ENGINE,
            kind=kind,
        )
    ]


def _down() -> list[Alert]:
    return [
        Alert(
            "ENGINE_DOWN",
            ex.down(),
            "2m",
            "critical",
            "{{ $labels.instance }} does not answer",
            "look at the last lines of its log (kubectl logs --previous)",
            Stream({"up": "1x20 0x220", **_gone(20)}, at="20m"),
            None,
            Stream({"up": "0x240", **_gone(0)}, at="20m"),
            OF_TARGET,
        )
    ]


def _missing() -> list[Alert]:
    return [
        Alert(
            "METRICS_MISSING",
            ex.missing(),
            "5m",
            "warning",
            "{{ $labels.instance }} answers, and no longer with metrics of an engine",
            "curl its /metrics; look for a proxy, a login page, --disable-log-stats",
            Stream(_gone(20), at="30m"),
            None,
            Stream(_gone(0), at="30m"),
            OF_TARGET,
        )
    ]


_SERIES = ("running", "waiting", "gen", "drafts", "draft_tokens", "accepted", "at0", "at1", "at2")


def _gone(after: int) -> dict[str, str]:
    """Series that end after so many samples; 0: that were never there."""
    if not after:
        return dict.fromkeys(_SERIES, "_x240")
    return {
        name: f"1x{after} _x{240 - after}" if name in {"running"} else f"0+10x{after} _x220"
        for name in _SERIES
    }


def _absent() -> Alert:
    return Alert(
        "METRICS_MISSING",
        "absent(specctl:requests_running:sum)",
        "10m",
        "warning",
        "no engine is scraped, or the recording rules do not run",
        "see that Prometheus scrapes the engines and has loaded recording-rules.yaml",
        Stream(_gone(0), at="30m"),
        None,
        Stream({}, at="30m"),
        {},
        name="SpecctlNoEngines",
    )


def _contradict() -> Alert:
    return Alert(
        "METRICS_INCONSISTENT",
        f"{derived.ACCEPTANCE} > 1.02",
        "5m",
        "warning",
        f"{MODEL}: more tokens are accepted than were drafted",
        "scrape the engines themselves, not a load balancer or a proxy",
        Stream({"accepted": "0+3300x240"}),
        None,
        Stream({"accepted": "0+3000x240"}),
        OF_MODEL,
    )


def _watch() -> Alert:
    return Alert(
        "METRICS_MISSING",
        f"time() - specctl_alert_last_success_timestamp_seconds > {LATE_S}",
        "1m",
        "warning",
        "specctl alert watch of {{ $labels.deployment }} has judged nothing for 15 minutes",
        "read its log",
        Stream({"heartbeat": "600x240"}, at="40m"),
        None,
        Stream({"heartbeat": "0+30x240"}, at="40m"),
        {"deployment": "prod"},
        name="SpecctlWatchSilent",
    )
