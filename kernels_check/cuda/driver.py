"""The CUDA driver, as far as it is needed: is there a device, load a kernel, launch it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

from kernels_check.cuda import build

LIBRARY = "libcuda.so.1"
PROGRAMMATIC_SERIALIZATION = 6


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`: its number, and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Launch(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("x", "y", "z", "threads_x", "threads_y", "threads_z")),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def device_count() -> int:
    """CUDA devices here; asked in a process of its own, so that this one can still be forked."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, str(_count()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return int(text or "0")


def _count() -> int:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


class Module:
    """A source of ours, compiled for the current device and loaded into torch's context."""

    def __init__(self, source: str, macros: Mapping[str, int] | None = None) -> None:
        """Compile (or take from the cache) and load."""
        import torch

        torch.cuda.init()
        torch.zeros(1, device="cuda")
        major, minor = torch.cuda.get_device_capability()
        self._driver = ctypes.CDLL(LIBRARY)
        self._handle = ctypes.c_void_p()
        binary = build.cubin(source, f"sm_{major}{minor}", macros or {})
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._handle), binary), source)

    def function(self, name: str) -> ctypes.c_void_p:
        """One of its kernels."""
        found = ctypes.c_void_p()
        code = self._driver.cuModuleGetFunction(ctypes.byref(found), self._handle, name.encode())
        self._check(code, name)
        return found

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        block: int,
        arguments: Sequence[Any],
        *,
        overlap: bool = False,
    ) -> None:
        """Launch on torch's current stream; `arguments` are ctypes values or structures.

        `overlap`: its blocks may be placed while the kernel before it ends. It must wait for that
        one's results itself (`griddepcontrol.wait`).
        """
        import torch

        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.addressof(argument) for argument in arguments)
        )
        x, y, z = (*grid, 1, 1)[:3]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        attribute = _Attribute(PROGRAMMATIC_SERIALIZATION, 0, (ctypes.c_int * 16)(1))
        how = _Launch(x, y, z, block, 1, 1, 0, stream, ctypes.pointer(attribute), int(overlap))
        code = self._driver.cuLaunchKernelEx(ctypes.byref(how), function, pointers, None)
        self._check(code, "launch")

    def _check(self, code: int, what: str) -> None:
        if code:
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(name))
            text = name.value.decode() if name.value else str(code)
            raise RuntimeError(f"{what}: {text}")


def pointer(tensor: Any) -> ctypes.c_void_p:
    """A tensor's address, as a kernel argument."""
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else 0)
