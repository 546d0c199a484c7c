"""promtool's unit tests: every alert fires on its stream, and no other and none else does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speccli.core.alert.rules.model import Alert, Stream

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


def cases_of(alerts: list[Alert], rule_files: tuple[str, ...]) -> dict[str, Any]:
    """The tests file."""
    tests = [_silent(alerts)]
    for alert in alerts:
        tests.append(_test(f"{_title(alert)} fires", alert.fires, [alert], firing=alert))
        tests.append(_test(f"{_title(alert)} stays silent", alert.quiet, [alert], firing=None))
    return {"rule_files": list(rule_files), "evaluation_interval": "30s", "tests": tests}


def _title(alert: Alert) -> str:
    return f"{alert.alert} of {alert.kind}" if alert.kind else alert.alert


def _silent(alerts: list[Alert]) -> dict[str, Any]:
    """A sound engine raises nothing, now or later."""
    changes = {}
    for alert in alerts:
        if alert.code == "COST_OVER":  # how much is made for the money is for the terms to say
            changes = {k: v.replace("x240", f"x{_LONG}") for k, v in alert.quiet.changes.items()}
    return _test("a sound engine raises nothing", Stream(changes, at="3h"), alerts, firing=None)


def _test(
    name: str, stream: Stream, alerts: list[Alert], *, firing: Alert | None
) -> dict[str, Any]:
    cases = []
    for alert in {a.alert: a for a in alerts}.values():
        case: dict[str, Any] = {"eval_time": stream.at, "alertname": alert.alert}
        expected = []
        if firing is not None and firing.alert == alert.alert:
            expected = [{"exp_labels": _labels(firing), "exp_annotations": _annotations(firing)}]
        cases.append({**case, "exp_alerts": expected})
    return {
        "name": name,
        "interval": "30s",
        "input_series": [*_series(stream)],
        "alert_rule_test": cases,
    }


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


def _labels(alert: Alert) -> dict[str, str]:
    return {**alert.labels, **alert.own_labels}


def _annotations(alert: Alert) -> dict[str, str]:
    """The annotations with their templates filled in."""
    told = {}
    for name, text in alert.annotations.items():
        for label, value in alert.labels.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", value)
        while "{{ $value" in text:
            head, _, rest = text.partition("{{ $value")
            text = f"{head}{alert.value}{rest.partition('}}')[2]}"
        told[name] = text
    return told
