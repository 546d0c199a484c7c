"""The chip's own word on its health: clocks, throttling, ECC, temperature, power, Xid events."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Any

THROTTLE = {
    0x2: "application clocks setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
HARMFUL = 0x8 | 0x20 | 0x40 | 0x80
"""A power cap under load is how these chips run; these are not."""
XID_EVENT = 0x8


@dataclass(frozen=True)
class Reading:
    """One look at the chip. None: this chip or driver does not say."""

    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle: int | None
    ecc_uncorrected: int | None
    memory_used: int | None

    def as_json(self) -> dict[str, Any]:
        """Its fields, throttle reasons in words."""
        made = dict(self.__dict__)
        made["throttle"] = None if self.throttle is None else reasons(self.throttle)
        return made


def reasons(bits: int) -> list[str]:
    """Throttle reasons in words."""
    return [text for bit, text in THROTTLE.items() if bits & bit]


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


class Nvml:
    """NVML of the first device; `OSError` where the library is not there."""

    def __init__(self, index: int = 0) -> None:
        """Open it."""
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        if code := self._library.nvmlInit_v2():
            raise OSError(f"NVML error {code}")
        self._device = ctypes.c_void_p()
        if code := self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self._device)):
            raise OSError(f"NVML error {code}")

    def facts(self) -> dict[str, str | None]:
        """Name, UUID, driver."""
        return {
            "name": self._text("nvmlDeviceGetName", self._device),
            "uuid": self._text("nvmlDeviceGetUUID", self._device),
            "driver": self._text("nvmlSystemGetDriverVersion"),
        }

    def read(self) -> Reading:
        """Look once."""
        memory = _Memory()
        code = self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory))
        power = self._number("nvmlDeviceGetPowerUsage")
        return Reading(
            sm_mhz=self._number("nvmlDeviceGetClockInfo", 1),
            memory_mhz=self._number("nvmlDeviceGetClockInfo", 2),
            temperature_c=self._number("nvmlDeviceGetTemperature", 0),
            power_w=None if power is None else power / 1000,
            throttle=self._number("nvmlDeviceGetCurrentClocksThrottleReasons", wide=True),
            ecc_uncorrected=self._number("nvmlDeviceGetTotalEccErrors", 1, 0, wide=True),
            memory_used=None if code else memory.used,
        )

    def xids(self, seconds: float) -> list[int] | None:
        """Xid errors that arrive within `seconds`; None where the driver reports none at all."""
        events = ctypes.c_void_p()
        if self._library.nvmlEventSetCreate(ctypes.byref(events)):
            return None
        if self._library.nvmlDeviceRegisterEvents(
            self._device, ctypes.c_ulonglong(XID_EVENT), events
        ):
            return None
        found: list[int] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            event = _Event()
            wait = ctypes.c_uint(max(1, int(left * 1000)))
            if self._library.nvmlEventSetWait_v2(events, ctypes.byref(event), wait) == 0:
                found.append(int(event.data))
        self._library.nvmlEventSetFree(events)
        return found

    def _text(self, name: str, *arguments: Any) -> str | None:
        held = ctypes.create_string_buffer(128)
        code = getattr(self._library, name)(*arguments, held, 128)
        return None if code else held.value.decode(errors="replace")

    def _number(self, name: str, *arguments: int, wide: bool = False) -> int | None:
        held = ctypes.c_ulonglong(0) if wide else ctypes.c_uint(0)
        function = getattr(self._library, name, None)
        if function is None:
            return None
        code = function(self._device, *arguments, ctypes.byref(held))
        return None if code else int(held.value)
