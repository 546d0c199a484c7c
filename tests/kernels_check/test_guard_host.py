"""The host half of the guard pages, built here and run against a driver that is not there."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_check.cuda import build
from kernels_check.cuda.guard import Allocator, Side
from kernels_check.model import NotHere

UNIT = 2 << 20
pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("driver") / "libfake.so"
    source = Path(__file__).with_name("fake_driver.cpp")
    subprocess.run(["c++", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


@pytest.fixture(scope="module")
def allocator(driver: Path) -> Allocator:
    return Allocator(str(driver))


def asked(driver: Path, name: str) -> int:
    return ctypes.c_ulonglong.in_dll(ctypes.CDLL(str(driver)), name).value


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("size", [4, 4000, UNIT, UNIT + 4])
def test_the_guarded_side_touches_the_edge(
    allocator: Allocator, driver: Path, side: Side, size: int
) -> None:
    made = allocator.allocate(size, 4, side)
    middle = asked(driver, "fake_middle")
    assert made.reserved_bytes == made.mapped_bytes + 2 * UNIT
    assert middle == made.reserved + UNIT
    if side is Side.LEFT:
        assert made.pointer == middle
    else:
        assert made.pointer + size == middle + made.mapped_bytes
    allocator.release(made)
    assert asked(driver, "fake_unmapped") == made.mapped_bytes
    assert asked(driver, "fake_given_back") == made.reserved_bytes


@given(st.integers(1, 2**24), st.sampled_from([1, 2, 4, 8]), st.sampled_from(list(Side)))
def test_a_buffer_lies_inside_and_leaves_less_than_an_element(
    size: int, align: int, side: Side
) -> None:
    allocator = Allocator.__new__(Allocator)
    host = ctypes.CDLL(str(build.host_library()))
    host.kc_offset.restype = ctypes.c_size_t
    host.kc_offset.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    allocator._host = host
    mapped = -(-size // UNIT) * UNIT
    offset = allocator.offset(size, align, mapped, side)
    assert offset % align == 0
    assert offset + size <= mapped
    if side is Side.RIGHT:
        assert mapped - (offset + size) < align


def test_what_the_driver_refuses_is_said(allocator: Allocator, driver: Path) -> None:
    held = ctypes.c_int.in_dll(ctypes.CDLL(str(driver)), "fake_fail_at")
    held.value = 1
    try:
        with pytest.raises(RuntimeError, match="create: CUDA error 2"):
            allocator.allocate(4, 4, Side.LEFT)
    finally:
        held.value = 0


def test_no_driver_is_an_error_in_words() -> None:
    with pytest.raises(RuntimeError, match=r"cannot open libnothing\.so"):
        Allocator("libnothing.so")


def test_without_a_compiler_the_check_is_skipped_and_not_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHere, match=r"no C\+\+ compiler"):
        build.host_library()
