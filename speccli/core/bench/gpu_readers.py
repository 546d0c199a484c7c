"""Who tells of GPUs: NVML, else nvidia-smi, of this machine's; a DCGM exporter of others'."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import shutil
from typing import Any

from speccli.core.bench.gpu import Look, Looker

_SM_CLOCK = ctypes.c_uint(1)
_SMI = ("nvidia-smi", "--format=csv,noheader,nounits")
_FIELDS = "index,utilization.gpu,power.draw,clocks.sm,memory.used"


class _Use(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Nvml:
    """The driver's own library, called as it is: no package has to be installed beside it."""

    def __init__(self, library: Any = None) -> None:
        """Raises OSError where there is no driver, or it has no GPU."""
        self._nvml = library or ctypes.CDLL("libnvidia-ml.so.1")
        if self._nvml.nvmlInit_v2():
            raise OSError("NVML does not begin")
        count = self._read("nvmlDeviceGetCount_v2", kind=ctypes.c_uint)
        self._handles: dict[int, Any] = {}
        for i in _visible(count.value if count else 0):
            index = ctypes.c_uint(i)
            handle = self._read("nvmlDeviceGetHandleByIndex_v2", index, kind=ctypes.c_void_p)
            if handle is not None:
                self._handles[i] = handle
        if not self._handles:
            raise OSError("NVML sees no GPU")

    def _read(self, name: str, *given: Any, kind: Any) -> Any:
        """What a function fills in; None where it returns an error (mostly: not supported)."""
        value = kind()
        return None if getattr(self._nvml, name)(*given, ctypes.byref(value)) else value

    async def look(self) -> list[Look]:
        """All GPUs; a call takes well under a millisecond each."""
        return await asyncio.to_thread(self._look)

    def _look(self) -> list[Look]:
        return [self._one(f"{i}", handle) for i, handle in self._handles.items()]

    def _one(self, index: str, gpu: Any) -> Look:
        use = self._read("nvmlDeviceGetUtilizationRates", gpu, kind=_Use)
        power = self._read("nvmlDeviceGetPowerUsage", gpu, kind=ctypes.c_uint)
        clock = self._read("nvmlDeviceGetClockInfo", gpu, _SM_CLOCK, kind=ctypes.c_uint)
        memory = self._read("nvmlDeviceGetMemoryInfo", gpu, kind=_Memory)
        energy = self._read("nvmlDeviceGetTotalEnergyConsumption", gpu, kind=ctypes.c_ulonglong)
        return Look(
            index,
            None if use is None else use.gpu / 100,
            None if power is None else power.value / 1000,  # an integer of C that is 0 is false
            None if clock is None else float(clock.value),
            None if memory is None else memory.used / 2**20,
            None if energy is None else energy.value / 1000,
        )


def _visible(count: int) -> list[int]:
    """Of `count` GPUs those that a server started here may use."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = [int(word) for word in told if word.strip().isdigit()]
    return [i for i in named if i < count] if len(named) == len(told) else list(range(count))


class Smi:
    """The program, where the library is not found."""

    async def look(self) -> list[Look]:
        """All GPUs."""
        process = await asyncio.create_subprocess_exec(
            *_SMI,
            f"--query-gpu={_FIELDS}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate()
        return parse_smi(out.decode("utf-8", "replace"))


def parse_smi(text: str) -> list[Look]:
    """The lines of `nvidia-smi --query-gpu`; `[N/A]` is not known."""
    looks = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5:
            use, power, clock, memory = map(_number, cells[1:])
            looks.append(Look(cells[0], None if use is None else use / 100, power, clock, memory))
    return looks


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Dcgm:
    """A DCGM exporter, for GPUs of other machines."""

    def __init__(self, url: str) -> None:
        """`url`: of its metrics page."""
        self._url = url

    async def look(self) -> list[Look]:
        """All GPUs on its page."""
        import aiohttp

        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(self._url) as answer,
        ):
            answer.raise_for_status()
            return parse_dcgm(await answer.text())


_DCGM = re.compile(
    r"^DCGM_FI_DEV_(GPU_UTIL|POWER_USAGE|SM_CLOCK|FB_USED|TOTAL_ENERGY_CONSUMPTION)\{(.*)\} (\S+)",
    re.M,
)
_GPU = re.compile(r'(?:^|,)(?:UUID|gpu)="([^"]*)"')


def parse_dcgm(text: str) -> list[Look]:
    """The GPUs of a DCGM exporter's page."""
    found: dict[str, dict[str, float | None]] = {}
    for name, labels, value in _DCGM.findall(text):
        gpu = "/".join(_GPU.findall(labels))
        found.setdefault(gpu, {})[name] = _number(value)
    return [
        Look(
            gpu,
            None if (use := values.get("GPU_UTIL")) is None else use / 100,
            values.get("POWER_USAGE"),
            values.get("SM_CLOCK"),
            values.get("FB_USED"),
            None if (used := values.get("TOTAL_ENERGY_CONSUMPTION")) is None else used / 1000,
        )
        for gpu, values in found.items()
    ]


NONE = "no NVIDIA GPU can be asked here (no driver, no nvidia-smi)"


def here() -> tuple[Looker | None, str]:
    """What can be asked about this machine's GPUs, and why nothing can."""
    try:
        return Nvml(), ""
    except (OSError, AttributeError):  # no driver, an old one, no GPU
        if shutil.which("nvidia-smi"):
            return Smi(), ""
    return None, NONE


async def describe() -> dict[str, Any] | None:
    """`name`, `count`, `driver`, clocks' and power's limits; None without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return None
    fields = "name,driver_version,clocks.max.sm,power.limit,memory.total"
    process = await asyncio.create_subprocess_exec(
        *_SMI,
        f"--query-gpu={fields}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    rows = [[c.strip() for c in line.split(",")] for line in out.decode().splitlines()]
    rows = [row for row in rows if len(row) == 5]
    if not rows:
        return None
    name, driver, clock, power, memory = rows[0]
    return {
        "name": name,
        "count": len(rows),
        "driver": driver,
        "max_sm_clock_mhz": _number(clock),
        "power_limit_w": _number(power),
        "memory_mib": _number(memory),
    }
