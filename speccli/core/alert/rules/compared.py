"""Alerts that hold an engine against itself of yesterday, its fellows, or the baseline's arms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from speccli.core.alert.rules import engines
from speccli.core.alert.rules.model import (
    MODEL,
    OF_ENGINE,
    OF_MODEL,
    OF_TARGET,
    Alert,
    Stream,
    Terms,
)
from speccli.core.baseline import Baseline
from speccli.core.findings.batch_collapse import SLOWER, speed_at

_OF_MODEL = {k: v for k, v in OF_MODEL.items() if k != "engine_kind"}
_SECOND = 'job="vllm",namespace="prod",instance="b:8000",engine="0",model_name="m"'
_DAY = 3000
"""Samples of 30 s: a day and an hour."""


def compared_alerts(terms: Terms) -> list[Alert]:
    """Those that these terms ask for."""
    base = terms.baseline
    found = [_slope(terms), _skew(), _partial()]
    if base is not None:
        found += [*_collapse(terms, base), *_unlike(base)]
    return found


def _slope(terms: Terms) -> Alert:
    fall = terms.thresholds.slope_fall
    whole = min(2 * fall, 0.6)
    slide = _counter([(round(3000 * (0.66 - whole * i / 25)), _DAY // 25) for i in range(25)])
    step = _counter([(1980, _DAY // 2), (round(3000 * (0.66 - whole)), _DAY // 2)])
    return Alert(
        "ACCEPTANCE_SLOPE",
        engines.slide(fall),
        "30m",
        "warning",
        '{{ $labels.instance }}: acceptance lost {{ $value | printf "%.2f" }} over a day, with no '
        "restart",
        "send the same prompts to a freshly started engine; if it does better, restart this one "
        "(vllm#41838)",
        Stream({"accepted": slide}, at="25h"),
        f"{whole * 18 / 25:.2f}",
        Stream({"accepted": step}, at="25h"),
        OF_ENGINE,
        every_s=engines.EVERY_S,
    )


def _counter(parts: Sequence[tuple[int, int]]) -> str:
    """A counter in promtool's notation: so much at each sample, so many samples, in turn."""
    words, value = [], 0
    for step, samples in parts:
        words.append(f"{value}+{step}x{samples - 1}")
        value += step * samples
    return " ".join(words)


def _skew() -> Alert:
    other = {
        f"vllm:num_requests_running{{{_SECOND}}}": "4x240",
        **{
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{_SECOND},position="{i}"}}': (
                "0+500x240"
            )
            for i in range(5)
        },
    }
    alike = {
        name: value for name, value in other.items() if '"3"' not in name and '"4"' not in name
    }
    return Alert(
        "VERSION_SKEW",
        engines.skewed(),
        "15m",
        "warning",
        f"{MODEL}: some engines draft other numbers of tokens than others, or none, or are another "
        "engine",
        "finish or undo the rollout; specctl status says which engines differ, and in what",
        Stream(other),
        None,
        Stream(alike),
        _OF_MODEL,
    )


def _partial() -> Alert:
    return Alert(
        "PARTIAL_DATA",
        engines.flapping(),
        "15m",
        "warning",
        "{{ $labels.instance }}: scrapes fail on and off, so what is recorded of it lacks parts",
        "look at scrape_duration_seconds beside the time-out, and at what slows its /metrics",
        Stream({"up": " ".join(["1x2 0x0"] * 60)}, at="45m"),
        None,
        Stream({"up": "1x40 0x4 1x200"}, at="45m"),
        OF_TARGET,
    )


def _collapse(terms: Terms, base: Baseline) -> list[Alert]:
    """Only where the baseline has an arm without speculation, at sizes that are judged."""
    rows = sorted(base.plain, key=lambda row: row.batch)[-2:]
    size = math.prod(row.batch for row in rows) ** (1 / max(1, len(rows)))
    wanted = speed_at(base.plain, size)
    if not rows or wanted is None or size < terms.thresholds.collapse_batch:
        return []

    def stream(share: float) -> Stream:
        made = 30 * share * wanted
        served = {"itl_count": f"0+{30 * size:g}x240", "ttft_count": "0x240", "steps": "0+30x240"}
        return Stream({"gen": f"0+{made:.6f}x240", **served})

    return [
        Alert(
            "BATCH_COLLAPSE",
            engines.collapsed(terms.thresholds.collapse_batch, SLOWER),
            "5m",
            "warning",
            '{{ $labels.instance }}: {{ $value | printf "%.0f" }} output tokens/s, less than the '
            f"arm without speculation of baseline {base.name} at this batch size",
            "batch x (1 + K) must be among the captured sizes; else lower K, cap --max-num-seqs "
            "and add replicas",
            stream(0.8),
            f"{0.8 * wanted:.0f}",
            stream(1.0),
            OF_ENGINE,
        )
    ]


def _unlike(base: Baseline) -> list[Alert]:
    expression = engines.unlike(base.key.target, base.key.k)
    if expression is None:
        return []
    if base.key.k is None:
        gone = dict.fromkeys(("running", "waiting"), "_x240")
        fires, labels = Stream(gone), {"model_name": "m"}
        quiet = Stream()
    else:
        fires, labels = Stream(_positions(base.key.k + 1)), dict(OF_ENGINE)
        quiet = Stream(_positions(base.key.k))
    return [
        Alert(
            "BASELINE_KEY_MISMATCH",
            expression,
            "15m",
            "warning",
            "{{ $labels.instance }} {{ $labels.model_name }}: not what baseline "
            f"{base.name} was recorded on, so no drift is told",
            "after an intended change record a new baseline (specctl baseline record); else undo "
            "it",
            fires,
            None,
            quiet,
            labels,
        )
    ]


def _positions(k: int) -> dict[str, str]:
    """So many positions and no others, each accepted half as often as the one before it."""
    usual = {f"at{i}": "_x3000" for i in range(k, 3)}
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    engine = ",".join(f'{label}="{value}"' for label, value in OF_ENGINE.items())
    more = {f'{name}{{{engine},position="{i}"}}': "0+100x3000" for i in range(3, k)}
    return {**usual, **more}
