"""What GPUs tell of themselves."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest
from aiohttp import web

from speccli.core.bench.gpu import Dcgm, Look, Watch, parse_dcgm, parse_smi, summarised
from tests.support.servers import Server

SMI = "0, 87, 612.30, 1755, 70213\n1, 3, 71.10, 345, 4\n2, [N/A], [N/A], [N/A], 81000\n"
DCGM = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 92
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 640.5
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 1700
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 70000
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="NVIDIA H200"} 0
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",modelName="NVIDIA H200"} 2
"""


def test_only_gpus_that_hold_a_model_count() -> None:
    found = summarised([parse_smi(SMI)], "")
    assert found.utilisation.value == pytest.approx(0.87)
    assert found.power_w.value == pytest.approx(612.3)
    assert found.sm_clock_mhz.value == 1755
    assert "2 GPU(s)" in (found.power_w.reason or "")


def test_what_is_not_told_is_unknown() -> None:
    found = summarised([[Look("0", None, None, None, 80_000.0)]], "")
    assert found.utilisation.state == "unknown"
    assert found.utilisation.reason == "the GPU does not tell"
    assert summarised([], "no GPU here").power_w.reason == "no GPU here"
    assert summarised([[Look("0", 0.5, 1.0, 1.0, 1.0)]], "").power_w.reason == (
        "no GPU holds a model"
    )


def test_a_dcgm_page_is_read() -> None:
    first, second = parse_dcgm(DCGM)
    assert (first.utilisation, first.power_w, first.sm_clock_mhz) == (0.92, 640.5, 1700)
    assert second.power_w is None


async def test_a_window_holds_what_was_seen_in_it() -> None:
    async def page(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=DCGM)

    async with Server(page) as server, Watch(Dcgm(server.url), "not asked") as watch:
        begin = perf_counter()
        await asyncio.sleep(0.3)
        seen = watch.between(begin, perf_counter())
        assert watch.between(0.0, 1.0).utilisation.reason == "not asked"
    assert seen.utilisation.value == pytest.approx(0.92)


async def test_an_exporter_that_fails_ends_no_bench() -> None:
    async with Watch(Dcgm("http://127.0.0.1:9"), "not asked") as watch:
        await asyncio.sleep(0.1)
    assert "cannot be asked: connect refused" in (watch.between(0, 1).power_w.reason or "")
