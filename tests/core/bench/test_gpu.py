"""What GPUs tell of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import pytest
from aiohttp import web

from speccli.core.bench.gpu import Look, Measured, Watch, summarised
from speccli.core.bench.gpu_readers import NONE, Dcgm, Nvml, here, parse_dcgm, parse_smi
from tests.support.servers import Server

SMI = "0, 87, 612.30, 1755, 70213\n1, 3, 71.10, 345, 4\n2, [N/A], [N/A], [N/A], 81000\n"
DCGM = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 92
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 640.5
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 1700
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 70000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 81250000
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="NVIDIA H200"} 0
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",modelName="NVIDIA H200"} 2
"""


def looked(*looks: Sequence[Look], gpus: int | None = None, why: str = "") -> Measured:
    """Looks half a second apart, of a window that holds them."""
    seen = [(0.5 * i, look) for i, look in enumerate(looks)]
    return summarised(seen, 0.5 * len(looks), gpus, why)


def test_only_gpus_that_hold_a_model_count() -> None:
    found = looked(parse_smi(SMI))
    assert found.utilisation.value == pytest.approx(0.87)
    assert found.power_w.value == pytest.approx(612.3)
    assert found.sm_clock_mhz.value == 1755
    assert "2 GPU(s)" in (found.power_w.reason or "")


def test_what_is_not_told_is_unknown() -> None:
    found = looked([Look("0", None, None, None, 80_000.0)])
    assert found.utilisation.state == "unknown"
    assert found.utilisation.reason == "the GPU does not tell"
    assert looked(why="no GPU here").power_w.reason == "no GPU here"
    assert looked([Look("0", 0.5, 1.0, 1.0, 1.0)]).power_w.reason == ("no GPU holds a model")


def busy(index: str, *, energy_j: float | None = None, use: float = 0.9) -> Look:
    return Look(index, use, 600.0, 1700.0, 70_000.0, energy_j)


def test_idle_gpus_of_other_arms_are_not_the_servers_own() -> None:
    looks = [busy("0"), busy("1", use=0.0), busy("2", use=0.0)]
    found = looked(looks, looks, gpus=1)
    assert (found.utilisation.value, found.power_w.value) == (0.9, 600.0)
    both = looked([busy("0"), busy("1")], gpus=1)
    assert both.power_w.value is None
    assert "2 GPUs worked" in (both.power_w.reason or "")
    assert looked([busy("0", use=0.0)], gpus=1).utilisation.value == 0.0


def test_energy_is_the_counters_over_the_window() -> None:
    looks = [[busy("0", energy_j=1000.0 + 300.0 * i)] for i in range(5)]
    found = looked(*looks)  # 5 looks in 2.0 s, of a window of 2.5 s: 600 W
    assert found.energy_j.value == pytest.approx(1500.0)
    assert "counter" in (found.energy_j.reason or "")
    by_power = looked(*[[busy("0")]] * 4)
    assert by_power.energy_j.value == pytest.approx(1200.0)
    assert by_power.energy_j.reason == "mean power x time"
    assert looked([Look("0", 0.9, None, None, 80_000.0)]).energy_j.value is None


def test_an_energy_counter_that_began_anew_is_not_believed() -> None:
    found = looked(*([busy("0", energy_j=told)] for told in (9000.0, 300.0, 600.0, 900.0)))
    assert found.energy_j.value == pytest.approx(1200.0)
    assert found.energy_j.reason == "mean power x time"


class FakeDriver:
    """NVML with two GPUs, of which the second does not tell its energy."""

    def nvmlInit_v2(self) -> int:  # noqa: N802 - the library's names
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 100 + index.value
        return 0

    def nvmlDeviceGetUtilizationRates(self, _gpu: Any, use: Any) -> int:  # noqa: N802
        use._obj.gpu = 87
        return 0

    def nvmlDeviceGetPowerUsage(self, gpu: Any, power: Any) -> int:  # noqa: N802
        power._obj.value = 612_300 if gpu.value == 100 else 0
        return 0

    def nvmlDeviceGetClockInfo(self, _gpu: Any, kind: Any, clock: Any) -> int:  # noqa: N802
        clock._obj.value = 1755 if kind.value == 1 else 0
        return 0

    def nvmlDeviceGetMemoryInfo(self, gpu: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.used = (70_000 if gpu.value == 100 else 4) * 2**20
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Any, energy: Any) -> int:  # noqa: N802
        energy._obj.value = 81_250_000
        return 0 if gpu.value == 100 else 3  # not supported


async def test_the_drivers_library_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first, second = await Nvml(FakeDriver()).look()
    assert first == Look("0", 0.87, 612.3, 1755.0, 70_000.0, 81_250.0)
    assert (second.power_w, second.energy_j) == (0.0, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (only,) = await Nvml(FakeDriver()).look()
    assert (only.index, only.memory_mib) == ("1", 4.0)


def test_without_a_driver_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("ctypes.CDLL", _no_library)
    assert here() == (None, NONE)


def _no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


def test_a_dcgm_page_is_read() -> None:
    first, second = parse_dcgm(DCGM)
    assert (first.utilisation, first.power_w, first.sm_clock_mhz) == (0.92, 640.5, 1700)
    assert first.energy_j == 81_250.0
    assert (second.power_w, second.energy_j) == (None, None)


async def test_a_window_holds_what_was_seen_in_it() -> None:
    async def page(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=DCGM)

    async with Server(page) as server, Watch(Dcgm(server.url), "not asked") as watch:
        begin = perf_counter()
        async with asyncio.timeout(60):
            while (  # noqa: ASYNC110 - a watch knows no events
                seen := watch.between(begin, perf_counter())
            ).utilisation.value is None:
                await asyncio.sleep(0.02)
        assert watch.between(0.0, 1.0).utilisation.reason == "not asked"
    assert seen.utilisation.value == pytest.approx(0.92)


async def test_an_exporter_that_fails_ends_no_bench() -> None:
    async with Watch(Dcgm("http://127.0.0.1:9"), "not asked") as watch:
        async with asyncio.timeout(60):
            while "refused" not in (  # noqa: ASYNC110 - the same
                watch.between(0, 1).power_w.reason or ""
            ):
                await asyncio.sleep(0.02)
    assert "cannot be asked: connect refused" in (watch.between(0, 1).power_w.reason or "")
