"""promtool's unit tests: every alert fires on its stream, and no other and none else does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from speccli.core.alert.rules.model import Alert, Stream
from speccli.core.sources.promql import duration

_ENGINE = 'job="vllm",namespace="prod",instance="a:8000",engine="0",model_name="m"'
_SGLANG = 'job="vllm",namespace="prod",instance="s:30000",model_name="m"'
_SPEC = "vllm:spec_decode_num_"
_LONG = 1500
SOUND: Mapping[str, tuple[str, str]] = {
    "up": ('up{job="vllm",namespace="prod",instance="a:8000"}', "1"),
    "running": (f"vllm:num_requests_running{{{_ENGINE}}}", "4"),
    "waiting": (f"vllm:num_requests_waiting{{{_ENGINE}}}", "0"),
    "gen": (f"vllm:generation_tokens_total{{{_ENGINE}}}", "+2800"),
    "steps": (f"vllm:iteration_tokens_total_count{{{_ENGINE}}}", "+250"),
    "drafts": (f"{_SPEC}drafts_total{{{_ENGINE}}}", "+1000"),
    "draft_tokens": (f"{_SPEC}draft_tokens_total{{{_ENGINE}}}", "+3000"),
    "accepted": (f"{_SPEC}accepted_tokens_total{{{_ENGINE}}}", "+1800"),
    **{
        f"at{i}": (f'{_SPEC}accepted_tokens_per_pos_total{{{_ENGINE},position="{i}"}}', f"+{n}")
        for i, n in enumerate((800, 600, 400))
    },
    "queue_sum": (f"vllm:request_queue_time_seconds_sum{{{_ENGINE}}}", "+0.1"),
    "queue_count": (f"vllm:request_queue_time_seconds_count{{{_ENGINE}}}", "+10"),
    "ttft_count": (f"vllm:time_to_first_token_seconds_count{{{_ENGINE}}}", "+10"),
    "itl_count": (f"vllm:inter_token_latency_seconds_count{{{_ENGINE}}}", "+1000"),
    "heartbeat": ('specctl_alert_last_success_timestamp_seconds{deployment="prod"}', "+30"),
}
"""A sound engine: what each short name is, and its value or its growth in 30 s."""
_MORE: Mapping[str, str] = {
    "sglang_gen": f"sglang:generation_tokens_total{{{_SGLANG}}}",
    "sglang_waiting": f"sglang:num_queue_reqs{{{_SGLANG}}}",
    "sglang_running": f"sglang:num_running_reqs{{{_SGLANG}}}",
}


def cases_of(
    alerts: Sequence[Alert],
    rule_files: Sequence[str],
    model: str,
    *,
    every_s: float,
    first: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A tests file: each alert on the stream that must raise it, and on the one that must not.

    `model`: what the engines serve; `first`: tests to begin with.
    """
    tests = list(first)
    for alert in alerts:
        tests.append(_test(f"{_title(alert)} fires", alert.fires, [alert], model, firing=alert))
        tests.append(_test(f"{_title(alert)} stays silent", alert.quiet, [alert], model))
    every = duration(every_s)
    return {"rule_files": list(rule_files), "evaluation_interval": every, "tests": tests}


def _title(alert: Alert) -> str:
    return f"{alert.alert} of {alert.kind}" if alert.kind else alert.alert


def quiet_of(alerts: Sequence[Alert], model: str) -> dict[str, Any]:
    """A test: a sound engine raises nothing, now or later."""
    changes: dict[str, str] = {}
    for alert in alerts:
        # How much is made for the money, and what the baseline was of, is for the terms to say.
        if alert.code in {"COST_OVER", "BASELINE_KEY_MISMATCH"}:
            changes |= {k: v.replace("x240", f"x{_LONG}") for k, v in alert.quiet.changes.items()}
    return _test("a sound engine raises nothing", Stream(changes, at="3h"), alerts, model)


def _test(
    name: str,
    stream: Stream,
    alerts: Sequence[Alert],
    model: str,
    *,
    firing: Alert | None = None,
) -> dict[str, Any]:
    cases = []
    for alert in {a.alert: a for a in alerts}.values():
        case: dict[str, Any] = {"eval_time": stream.at, "alertname": alert.alert}
        expected = []
        if firing is not None and firing.alert == alert.alert:
            labels = _labels(firing, model)
            told = _annotations(firing, labels)
            expected = [{"exp_labels": labels, "exp_annotations": told}]
        cases.append({**case, "exp_alerts": expected})
    series = [
        {**each, "series": each["series"].replace(_OF_M, f"model_name={json.dumps(model)}")}
        for each in _series(stream)
    ]
    return {
        "name": name,
        "interval": "30s",
        "input_series": series,
        "alert_rule_test": cases,
    }


_OF_M = 'model_name="m"'


def _series(stream: Stream) -> list[dict[str, str]]:
    changes = {**_buckets(stream), **stream.changes}
    series = []
    for short, (name, usual) in SOUND.items():
        values = changes.pop(short, None)
        if values is None:
            values = f"0{usual}x{_LONG * 2}" if usual.startswith("+") else f"{usual}x{_LONG * 2}"
        series.append({"series": name, "values": values})
    for short, name in _MORE.items():
        if short in changes:
            series.append({"series": name, "values": changes.pop(short)})
    for name, values in changes.items():
        if name.startswith("vllm:"):
            series.append({"series": name, "values": values})
    return series


_FAMILIES = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
}


def _buckets(stream: Stream) -> dict[str, str]:
    """Requests of which `…_slow` took longer than any limit, of `…_all`."""
    found = {}
    for short, family in _FAMILIES.items():
        every = stream.changes.get(f"{short}_all")
        if every is None:
            continue
        for bound in ("0.001", "1e+06", "+Inf"):
            values = "0x240" if bound == "0.001" else every
            found[f'{family}_bucket{{{_ENGINE},le="{bound}"}}'] = values
        found[f"{family}_count{{{_ENGINE}}}"] = every
    return found


def _labels(alert: Alert, model: str) -> dict[str, str]:
    of = {"model_name": model} if "model_name" in alert.labels else {}
    return {**alert.labels, **of, **alert.own_labels}


_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_VALUE = re.compile(r"\{\{ \$value[^}]*\}\}")


def _annotations(alert: Alert, labels: Mapping[str, str]) -> dict[str, str]:
    """The annotations with their templates filled in."""
    told = {}
    for name, text in alert.annotations.items():
        text = _LABEL.sub(lambda found: labels.get(found[1], ""), text)
        told[name] = _VALUE.sub(alert.value or "", text)
    return told
