"""The Grafana dashboard: recorded series only, so that it is quick whatever the fleet's size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccli.core.alert.rules.model import BASELINE, COST, FLOOR, Terms
from speccli.core.sources import derived
from speccli.core.sources.derived import bare, p99

UID = "specctl"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_PICK = 'namespace=~"$namespace",model_name=~"$model"'
_BATCHES = ((1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 1e9))
_LEGEND = "{{namespace}} {{model_name}}"


def picked(name: str) -> str:
    """A recorded series of what is chosen above."""
    if name.endswith("}"):
        return f"{name[:-1]},{_PICK}}}"
    return f"{name}{{{_PICK}}}"


def dashboard(terms: Terms) -> dict[str, Any]:
    """Grafana's JSON, as its import takes it."""
    panels = [*_acceptance(terms), *_latency(terms), *_load(terms)]
    for i, panel in enumerate(panels):
        panel["id"] = i + 1
        panel["gridPos"] = {"h": 9, "w": 12, "x": 12 * (i % 2), "y": 9 * (i // 2)}
    return {
        "uid": UID,
        "title": "specctl: speculative decoding",
        "tags": ["specctl", "vllm"],
        "schemaVersion": 42,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [_alerts()]},
        "templating": {"list": [_datasource(), _choice("namespace"), _choice("model")]},
        "links": [],
        "panels": panels,
    }


def _acceptance(terms: Terms) -> list[dict[str, Any]]:
    rate = [(picked(derived.ACCEPTANCE), _LEGEND), (FLOOR, "floor")]
    if terms.baseline is not None:
        rate.append((BASELINE, "baseline {{baseline}}"))
    return [
        _panel(
            "Acceptance, with floor and baseline",
            "accepted / draft tokens",
            rate,
            unit="percentunit",
            top=1.0,
            dashed=("floor", "/^baseline.*/"),
        ),
        _panel(
            "Acceptance by position",
            "accepted at a position / drafts",
            [(picked(derived.AT), f"{_LEGEND} position {{{{position}}}}")],
            unit="percentunit",
            top=1.0,
        ),
    ]


def _latency(terms: Terms) -> list[dict[str, Any]]:
    by_batch = [
        (
            f"{picked(p99('itl'))} and ({picked(derived.BATCH)} >= {low} < {high:g})",
            f"{_LEGEND} batch {low}" + ("+" if high > 1e6 else f"-{high - 1:g}"),
        )
        for low, high in _BATCHES
    ]
    waits = [(picked(derived.QUEUE_WAIT), _LEGEND)]
    if terms.thresholds.queue_wait_ms is not None:
        waits.append((f"vector({terms.thresholds.queue_wait_ms:g})", "target"))
    return [
        _panel(
            "p99 of the time between tokens, by batch size",
            "at the fleet's mean batch size then; interpolated inside a bucket. specctl status "
            "bins single engines and gives intervals.",
            by_batch,
            unit="s",
            points=True,
        ),
        _panel(
            "Queue wait",
            "the larger of what finished requests waited and what one that comes now will",
            waits,
            unit="ms",
            dashed=("target",),
        ),
    ]


def _load(terms: Terms) -> list[dict[str, Any]]:
    if terms.pricing.gpu_hour_usd is None:
        words = "no price: write the rules with --gpu-hour-usd"
    else:
        hourly = terms.pricing.gpu_hour_usd * terms.pricing.gpus_per_engine
        words = f"at {hourly:g} USD an hour and engine"
    cost = [(picked(COST), _LEGEND)]
    if terms.thresholds.cost_per_1m_usd is not None:
        cost.append((f"vector({terms.thresholds.cost_per_1m_usd:g})", "target"))
    share = f"{picked(derived.WASTED)} / ({bare(picked('specctl:draft_tokens:rate2m'))} > 0)"
    made = f"{bare(picked('specctl:generation_tokens:rate2m'))}"
    return [
        _panel("USD per 1M output tokens", words, cost, unit="currencyUSD", dashed=("target",)),
        _panel(
            "Drafts wasted",
            "draft tokens a second that the target did not take, and their share",
            [(picked(derived.WASTED), f"{_LEGEND} tokens/s"), (share, f"{_LEGEND} share")],
            unit="short",
            right="/.*share$/",
        ),
        _panel(
            "Output tokens a second",
            "of all engines",
            [(made, _LEGEND)],
            unit="short",
        ),
        _panel(
            "Batch size, requests running and waiting",
            "batch size: requests in an engine step",
            [
                (picked(derived.BATCH), f"{_LEGEND} batch"),
                (bare(picked("specctl:requests_running:sum")), f"{_LEGEND} running"),
                (bare(picked("specctl:requests_waiting:sum")), f"{_LEGEND} waiting"),
            ],
            unit="short",
        ),
    ]


def _panel(
    title: str,
    words: str,
    queries: Sequence[tuple[str, str]],
    *,
    unit: str,
    top: float | None = None,
    dashed: Sequence[str] = (),
    right: str | None = None,
    points: bool = False,
) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": unit,
        "min": 0,
        "custom": {
            "drawStyle": "points" if points else "line",
            "lineWidth": 1,
            "pointSize": 4,
            "showPoints": "always" if points else "never",
            "spanNulls": False,
        },
    }
    if top is not None:
        defaults["max"] = top
    overrides = [_override(each, [("custom.lineStyle", _DASHES)]) for each in dashed]
    if right is not None:
        axis = [("unit", "percentunit"), ("custom.axisPlacement", "right"), ("max", 1)]
        overrides.append(_override(right, axis))
    return {
        "type": "timeseries",
        "title": title,
        "description": words,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": _SOURCE,
                "editorMode": "code",
                "expr": expression,
                "legendFormat": legend,
                "range": True,
            }
            for i, (expression, legend) in enumerate(queries)
        ],
    }


_DASHES = {"fill": "dash", "dash": [8, 6]}


def _override(name: str, properties: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    matcher = "byRegexp" if name.startswith("/") else "byName"
    return {
        "matcher": {"id": matcher, "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties],
    }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Specctl.*",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{severity}} {{model_name}} {{instance}}",
        "step": "30s",
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Data source",
        "hide": 0,
    }


def _choice(name: str) -> dict[str, Any]:
    label = "model_name" if name == "model" else name
    query = f"label_values(specctl:requests_running:sum, {label})"
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": ["All"], "value": ["$__all"]},
    }
