"""Kernels compiled where they run (NVRTC), host code with the machine's compiler; both cached.

Nothing compiled is part of the package: an engine image carries NVRTC with torch, and a C++
compiler for Triton.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernels_check.model import NotHere

SOURCES = Path(__file__).resolve().parent.parent / "csrc"


def cache() -> Path:
    """Where what was compiled is kept: XDG_CACHE_HOME, else ~/.cache, else a temporary folder."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    place = Path(base) / "specctl" / "kernels"
    try:
        place.mkdir(parents=True, exist_ok=True)
        return place
    except OSError:
        return Path(tempfile.mkdtemp(prefix="kernels-check-"))


def host_library(source: str = "guard.cpp") -> Path:
    """Compile host C++ into a shared library, warnings as errors."""
    compiler = next(
        (found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None
    )
    if compiler is None:
        raise NotHere("no C++ compiler in this image")
    path = SOURCES / source
    made = cache() / f"{path.stem}-{_digest(path.read_bytes())}.so"
    if not made.exists():
        partial = made.with_suffix(f".{os.getpid()}")
        command = [compiler, "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", str(partial), str(path), "-ldl"], check=True)
        partial.rename(made)
    return made


def cubin(source: str, architecture: str, macros: Mapping[str, int]) -> bytes:
    """Compile a CUDA source of ours for `architecture` (sm_90, say)."""
    text = (SOURCES / source).read_bytes()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--extra-device-vectorization"]
    options += [f"-D{name}={value}" for name, value in sorted(macros.items())]
    key = _digest(text, *(option.encode() for option in options))
    kept = cache() / f"{Path(source).stem}-{key}.cubin"
    if kept.exists():
        return kept.read_bytes()
    binary = _nvrtc(text, source, options)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_bytes(binary)
    partial.rename(kept)
    return binary


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


@functools.cache
def nvrtc() -> ctypes.CDLL:
    """NVRTC, as torch's packages bring it, or the system's."""
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise NotHere("NVRTC is not in this image")


def _candidates() -> list[str]:
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for root in list(spec.submodule_search_locations or []) if spec else []:
        for library in sorted(Path(root).glob("*/lib/libnvrtc.so.*")):
            for builtins in library.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            found.append(str(library))
    return [*found, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]


def _nvrtc(text: bytes, name: str, options: list[str]) -> bytes:
    library = nvrtc()
    program = ctypes.c_void_p()
    _ok(library.nvrtcCreateProgram(ctypes.byref(program), text, name.encode(), 0, None, None))
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    code = library.nvrtcCompileProgram(program, len(options), given)
    if code:
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC could not compile {name}: {log.value.decode(errors='replace')}")
    size = ctypes.c_size_t()
    _ok(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    binary = ctypes.create_string_buffer(size.value)
    _ok(library.nvrtcGetCUBIN(program, binary))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def _ok(code: int) -> None:
    if code:
        raise RuntimeError(f"NVRTC error {code}")
