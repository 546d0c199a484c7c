"""Tensors whose one side is the end of the world: one element beyond it faults for certain."""

from __future__ import annotations

import ctypes
import math
from enum import IntEnum
from typing import Any

from kernels_check.cuda import build
from kernels_check.cuda.driver import LIBRARY


class Side(IntEnum):
    """Which side of a buffer has nothing behind it."""

    LEFT = 0
    RIGHT = 1


class Guarded(ctypes.Structure):
    """What the allocator made; the fields of the struct in csrc/guard.cpp."""

    _fields_ = (
        ("pointer", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("reserved_bytes", ctypes.c_size_t),
        ("mapped_bytes", ctypes.c_size_t),
        ("handle", ctypes.c_ulonglong),
    )


class Allocator:
    """Guarded buffers of one device, through the driver's virtual memory."""

    def __init__(self, library: str = LIBRARY, device: int = 0) -> None:
        """`library`: the driver (or something that answers like it)."""
        self._host = ctypes.CDLL(str(build.host_library()))
        self._host.kc_message.restype = ctypes.c_char_p
        self._host.kc_offset.restype = ctypes.c_size_t
        size = ctypes.c_size_t
        self._host.kc_offset.argtypes = [size, size, size, ctypes.c_int]
        self._host.kc_allocate.argtypes = [
            size,
            size,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.POINTER(Guarded),
        ]
        self._device = device
        self._check(self._host.kc_open(library.encode()))

    def allocate(self, size: int, align: int, side: Side) -> Guarded:
        """`size` bytes, their `side` at the edge of what is mapped."""
        made = Guarded()
        self._check(
            self._host.kc_allocate(size, align, int(side), self._device, ctypes.byref(made))
        )
        return made

    def release(self, made: Guarded) -> None:
        """Unmap it."""
        self._check(self._host.kc_release(ctypes.byref(made)))

    def offset(self, size: int, align: int, mapped: int, side: Side) -> int:
        """Where a buffer begins inside what is mapped."""
        return int(self._host.kc_offset(size, align, mapped, int(side)))

    def copy_of(self, tensor: Any, side: Side) -> Any:
        """The tensor's values in a guarded buffer.

        A contiguous tensor of the same shape and type.
        """
        import torch

        element = tensor.element_size()
        made = self.allocate(max(tensor.numel(), 1) * element, element, side)
        raw = _Interface(made.pointer, max(tensor.numel(), 1), element)
        flat = torch.as_tensor(raw, device=tensor.device).view(tensor.dtype)
        count = math.prod(tensor.shape)
        guarded = flat[:count].view(tensor.shape)
        guarded.copy_(tensor)
        return guarded

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError((self._host.kc_message() or b"").decode())


class _Interface:
    """What torch needs to look at memory that is not its own."""

    def __init__(self, pointer: int, count: int, element: int) -> None:
        kinds = {1: "|i1", 2: "<i2", 4: "<i4", 8: "<i8"}
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": kinds[element],
            "data": (pointer, False),
            "version": 3,
        }
