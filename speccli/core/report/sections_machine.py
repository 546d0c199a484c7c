"""The part of a report on the machine: what the GPU did and used, what each server holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

from speccli.core.bench.compare import load_order
from speccli.core.bench.facts import known
from speccli.core.bench.pairing import Load
from speccli.core.bench.results import Arm, Row
from speccli.core.report.build import Report
from speccli.core.report.sections import Block, Section, Table, reasons, told
from speccli.core.values import Number
from speccli.core.views import bench as view

_GIB = 2.0**30
_DID: tuple[tuple[str, Callable[[Row], Number], str], ...] = (
    ("utilisation, %", lambda row: row.gpu_utilisation, "{:.0f}"),
    ("power, W", lambda row: row.power_w, "{:.0f}"),
    ("SM clock, MHz", lambda row: row.sm_clock_mhz, "{:.0f}"),
    ("J / output token", lambda row: row.energy_j_per_token, "{:.3g}"),
)


def machine(report: Report) -> Section | None:
    """GPU and energy by load, memory by arm; None where nothing of either is known."""
    blocks: list[Block] = [*_did(report), *_holds(report)]
    return Section("machine", "GPU, energy, memory", report.kind, tuple(blocks)) if blocks else None


def _did(report: Report) -> Sequence[Table]:
    grouped: dict[tuple[str, Load], list[Row]] = defaultdict(list)
    for row in report.result.rows:
        if row.usable:
            grouped[row.arm, (row.batch, row.rate)].append(row)
    if not any(of(row).value is not None for row in report.result.rows for _, of, _ in _DID):
        return ()
    order = {arm.name: i for i, arm in enumerate(report.result.arms)}
    places = sorted(grouped, key=lambda key: (load_order(key[1]), order[key[0]]))
    means = {place: [_mean(grouped[place], of) for _, of, _ in _DID] for place in places}
    kind = "batch" if places[0][1][0] is not None else "rate"
    names = [name for name, _, _ in _DID]
    return (
        Table(
            (kind, "arm", *names),
            tuple(
                (
                    view.load_words(load),
                    arm,
                    *(_as(value, i) for i, value in enumerate(means[arm, load])),
                )
                for arm, load in places
            ),
            keys=2,
            notes=(
                "means of all datasets and repeats; power and energy are of all the server's GPUs "
                "together, idle parts of a shared GPU included",
                *reasons(pair for each in means.values() for pair in zip(names, each, strict=True)),
            ),
        ),
    )


def _mean(rows: Sequence[Row], of: Callable[[Row], Number]) -> Number:
    values = [value for row in rows if (value := of(row).value) is not None]
    return Number.known(fmean(values), n=len(values)) if values else of(rows[0])


def _as(value: Number, place: int) -> str:
    percent = 100 if place == 0 else 1
    return told(value, lambda number: _DID[place][2].format(percent * number))


def _holds(report: Report) -> Sequence[Table]:
    arms = [arm for arm in report.result.arms if arm.server is not None and known(arm.server)]
    if not arms:
        return ()
    names = ("KV cache, tokens", "KV cache, GiB", "weights, GiB", "CUDA graphs, GiB", "GPU, GiB")
    found = {arm.name: _facts(arm) for arm in arms}
    return (
        Table(
            ("arm", *names),
            tuple(
                (
                    arm.name,
                    told(found[arm.name][0], "{:,.0f}".format),
                    *(told(each, lambda n: f"{n / _GIB:.2f}") for each in found[arm.name][1:]),
                )
                for arm in arms
            ),
            notes=(
                "of one GPU, as the server's metrics and log say; weights are target and draft; "
                "GPU is what it holds more of than before the server was started; for its graphs "
                "vLLM tells what the whole GPU lost meanwhile, other servers' share included",
                *reasons(pair for each in found.values() for pair in zip(names, each, strict=True)),
            ),
        ),
    )


def _facts(arm: Arm) -> tuple[Number, ...]:
    server = arm.server
    assert server is not None
    return (
        server.kv_cache_tokens,
        server.kv_cache_bytes,
        server.weights_bytes,
        server.cuda_graph_bytes,
        server.gpu_memory_bytes,
    )
