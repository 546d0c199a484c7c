"""What the GPUs of this machine do meanwhile: NVML, else nvidia-smi, else a DCGM exporter."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any, Protocol

from speccli.core.sources.scrape import explain
from speccli.core.values import Number

_EVERY_S = 0.5
_IN_USE_MIB = 500.0
"""Memory from which on a GPU is taken to hold a model."""
_SMI = ("nvidia-smi", "--format=csv,noheader,nounits")
_FIELDS = "index,utilization.gpu,power.draw,clocks.sm,memory.used"


@dataclass(frozen=True, slots=True)
class Look:
    """One GPU at one instant; None where it does not tell."""

    index: str
    utilisation: float | None
    """0..1"""
    power_w: float | None
    sm_clock_mhz: float | None
    memory_mib: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over a window."""

    utilisation: Number
    power_w: Number
    sm_clock_mhz: Number


class Looker(Protocol):
    """Something that can be asked about GPUs."""

    async def look(self) -> list[Look]:
        """All GPUs, now."""


def summarised(looks: Sequence[Sequence[Look]], reason: str) -> Measured:
    """Means over instants: utilisation and clock over the GPUs in use, power of all of them."""
    used = {
        look.index
        for instant in looks
        for look in instant
        if look.memory_mib is None or look.memory_mib >= _IN_USE_MIB
    }
    if not looks or not used:
        nothing = Number.unknown(reason if not looks else "no GPU holds a model")
        return Measured(nothing, nothing, nothing)
    words = f"mean of {len(used)} GPU(s) in use"
    return Measured(
        _mean([[x.utilisation for x in at if x.index in used] for at in looks], fmean, words),
        _mean([[x.power_w for x in at if x.index in used] for at in looks], sum, words),
        _mean([[x.sm_clock_mhz for x in at if x.index in used] for at in looks], fmean, words),
    )


def _mean(instants: Sequence[Sequence[float | None]], over: Any, words: str) -> Number:
    known = [[v for v in instant if v is not None] for instant in instants]
    values = [float(over(instant)) for instant in known if instant]
    if not values:
        return Number.unknown("the GPU does not tell")
    return Number.known(fmean(values), n=len(values), reason=words)


@dataclass
class Watch:
    """Looks at the GPUs every half second, as long as the block lasts."""

    looker: Looker | None
    why_not: str
    _looks: list[tuple[float, list[Look]]] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        """Begin."""
        self._looks = []
        if self.looker is not None:
            self._task = asyncio.create_task(self._keep_looking(self.looker))
        return self

    async def __aexit__(self, *_: object) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _keep_looking(self, looker: Looker) -> None:
        while True:
            try:
                found = await looker.look()
            except Exception as error:  # noqa: BLE001 - a GPU that does not tell is not the bench's end
                self.why_not = f"the GPU cannot be asked: {explain(error)}"
                return
            self._looks.append((perf_counter(), found))
            await asyncio.sleep(_EVERY_S)

    def between(self, begin: float, end: float) -> Measured:
        """What was seen between two instants of `time.perf_counter`."""
        seen = [looks for at, looks in self._looks if begin <= at <= end]
        return summarised(seen, self.why_not)


class Nvml:
    """The driver's own library, where the package `pynvml` (nvidia-ml-py) is installed."""

    def __init__(self) -> None:
        """Raises where there is no package or no driver."""
        import importlib

        self._nvml: Any = importlib.import_module("pynvml")
        self._nvml.nvmlInit()
        count = self._nvml.nvmlDeviceGetCount()
        self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]

    async def look(self) -> list[Look]:
        """All GPUs; a call takes well under a millisecond each."""
        return await asyncio.to_thread(self._look)

    def _look(self) -> list[Look]:
        nvml = self._nvml
        return [
            Look(
                str(i),
                _or_none(lambda h=handle: nvml.nvmlDeviceGetUtilizationRates(h).gpu / 100),
                _or_none(lambda h=handle: nvml.nvmlDeviceGetPowerUsage(h) / 1000),
                _or_none(lambda h=handle: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),
                _or_none(lambda h=handle: nvml.nvmlDeviceGetMemoryInfo(h).used / 2**20),
            )
            for i, handle in enumerate(self._handles)
        ]


def _or_none(read: Any) -> float | None:
    try:
        return float(read())
    except Exception:  # noqa: BLE001 - NVML's own error, "not supported" mostly
        return None


class Smi:
    """The program, where the package is not installed."""

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


_DCGM = re.compile(r"^DCGM_FI_DEV_(GPU_UTIL|POWER_USAGE|SM_CLOCK|FB_USED)\{(.*)\} (\S+)", re.M)
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
        )
        for gpu, values in found.items()
    ]


def here() -> tuple[Looker | None, str]:
    """What can be asked about this machine's GPUs, and why nothing can."""
    try:
        return Nvml(), ""
    except Exception:  # noqa: BLE001 - no package, no driver, no GPU
        if shutil.which("nvidia-smi"):
            return Smi(), ""
    return None, "no NVIDIA GPU can be asked here (no pynvml, no nvidia-smi)"


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
