"""The reference kernel itself, compiled for the host, against float64 from the papers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels_check.reference import sampling

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "kernels_check" / "csrc" / "verify.cu"
NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
POINTERS = ("logits", "cu_rows", "request_of", "draft_ids", "accept_u", "sample_u", "greedy",
            "out", "parts", "drafted", "tickets")  # fmt: skip


class Arguments(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        ("stride", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("vocab", "out_stride", "chunks", "aligned")),
    )


@dataclass
class Case:
    lengths: list[int]
    vocab: int
    logits: Any
    tokens: list[list[int]]
    accept_u: list[list[float]]
    sample_u: Any
    greedy: Any
    k: int

    def first(self, request: int) -> int:
        return sum(self.lengths[:request]) + request


def build(place: Path, **macros: int) -> ctypes.CDLL:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    made = place / ("-".join(f"{k}{v}" for k, v in macros.items()) + ".so")
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    flags = [
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        "-Wno-unknown-pragmas",
        f'-DSOURCE="{SOURCE}"',
    ]
    subprocess.run([compiler, *flags, *defines, "-o", made, HERE / "emulated.cpp"], check=True)
    return ctypes.CDLL(str(made))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(scope="module")
def kernel(place: Path) -> ctypes.CDLL:
    return build(place, ELEM=0, WARPS=2, VECTORS=1)


def case(seed: int, vocab: int, k: int, batch: int) -> Case:
    rng = np.random.default_rng(seed)
    lengths = [k, 0, 1, max(k - 1, 0), k][:batch] + [int(n) for n in rng.integers(0, k + 1, batch)]
    lengths = lengths[:batch]
    rows = sum(lengths) + batch
    logits = (rng.normal(size=(rows, vocab)) * 2.5).astype(np.float32)
    logits[:, 3] = logits[:, vocab - 2]  # ties
    made = Case(lengths, vocab, logits, [], [], rng.random((batch, 2)).astype(np.float32),
                np.array([i % 3 == 0 for i in range(batch)], np.int32), k)  # fmt: skip
    for request, n in enumerate(lengths):
        tokens = [int(t) for t in rng.integers(0, vocab, n)]
        for i in range(n):
            row = logits[made.first(request) + i]
            if rng.random() < 0.6:  # likely, so that chains are long
                if rng.random() < 0.3:
                    tokens[i] = (0, vocab - 1)[int(rng.integers(2))]
                row[tokens[i]] = row.max() + (1 if made.greedy[request] else 3)
            elif rng.random() < 0.2:
                tokens[i] = -1
        made.tokens.append(tokens)
        made.accept_u.append([float(u) for u in rng.random(n).astype(np.float32)])
    return made


def launch(
    kernel: ctypes.CDLL, given: Case, *, times: int = 1, warps: int = 2, bf16: bool = False
) -> Any:
    batch, rows = len(given.lengths), len(given.logits)
    chunks = -(-given.vocab // kernel.chunk_elements())
    held: dict[str, Any] = {
        "logits": (given.logits.view(np.uint32) >> 16).astype(np.uint16) if bf16 else given.logits,
        "cu_rows": np.array([given.first(r) for r in range(batch + 1)], np.int32),
        "request_of": np.repeat(np.arange(batch), np.array(given.lengths) + 1).astype(np.int32),
        "draft_ids": np.array([t for row in given.tokens for t in (*row, -1)], np.int32),
        "accept_u": np.array([u for row in given.accept_u for u in (*row, 0.0)], np.float32),
        "sample_u": given.sample_u,
        "greedy": given.greedy,
        "out": np.full((batch + 1, given.k + 1), -9, np.int32),
        "parts": np.full((rows, chunks), NOTHING),
        "drafted": np.full(rows, NOTHING),
        "tickets": np.zeros(batch, np.uint32),
    }
    arguments = Arguments(**{name: a.ctypes.data for name, a in held.items()})
    arguments.out = held["out"][1:].ctypes.data  # a row of its own on the left
    arguments.stride, arguments.vocab = given.vocab, given.vocab
    arguments.out_stride, arguments.chunks = given.k + 1, chunks
    arguments.aligned = int(held["logits"].ctypes.data % 16 == 0 and given.vocab % 4 == 0)
    blocks = -(-chunks // warps)
    for _ in range(times):
        assert kernel.run(ctypes.byref(arguments), blocks, rows) == 0
    assert (held["tickets"] == times << 20).all()
    assert (held["out"][0] == -9).all()
    return held["out"][1:]


def right(given: Case, out: Any, chunk: int, width: int = 4) -> bool:
    """Every emitted token is what the definition says, ties of float32 allowed for."""
    for request, n in enumerate(given.lengths):
        first = given.first(request)
        rows, tokens = given.logits[first : first + n + 1].astype(np.float64), given.tokens[request]
        got = [int(t) for t in out[request] if t >= 0]
        if given.greedy[request]:
            wanted = sampling.verify_greedy(rows, tokens)
            if got != wanted:
                return False
            continue
        target = np.stack([sampling.softmax(row) for row in rows])
        left: list[Any] = []

        def keep(position: int, weights: Any, left: list[Any] = left) -> int:
            left.append(weights)
            return -7

        step = sampling.Step(target, None, tokens, given.accept_u[request])
        wanted = sampling.verify(step, keep)
        if got[:-1] != wanted[:-1] or len(got) != len(wanted):
            return False
        if not drawn(left[0], given.sample_u[request], chunk, width)[got[-1]]:
            return False
    return True


def drawn(weights: Any, u: Any, chunk: int, width: int) -> Any:
    """The tokens that the two uniforms may mean: first the chunk, then the token in it."""
    chunks = -(-len(weights) // chunk)
    padded = np.zeros(chunks * chunk)
    padded[: len(weights)] = weights
    order = np.arange(chunk).reshape(-1, 32, width).transpose(1, 0, 2).ravel()
    w = padded.reshape(chunks, chunk)[:, order]
    chosen = holds(w.sum(1), u[0])[:, None] & holds(w, u[1])
    back = np.zeros((chunks, chunk), bool)
    back[:, order] = chosen
    return back.ravel()[: len(weights)]


def holds(mass: Any, u: float) -> Any:
    upto = mass.cumsum(-1)
    total = upto[..., -1:]
    return (upto >= (u - 1e-5) * total) & (upto - mass <= (u + 1e-5) * total)


SIZES = [(256, 3, 4), (517, 1, 5), (1003, 5, 3), (2048, 15, 3)]


@pytest.mark.parametrize(("vocab", "k", "batch"), SIZES)
def test_what_the_kernel_emits_is_what_the_definition_says(
    kernel: ctypes.CDLL, vocab: int, k: int, batch: int
) -> None:
    for seed in range(3):
        given = case(seed, vocab, k, batch)
        assert right(given, launch(kernel, given), kernel.chunk_elements()), seed


def test_a_second_launch_over_the_same_buffers_emits_the_same(kernel: ctypes.CDLL) -> None:
    given = case(5, 517, 3, 4)
    assert (launch(kernel, given, times=3) == launch(kernel, given)).all()


@pytest.mark.slow
def test_other_shapes_of_the_work_emit_what_the_definition_says(place: Path) -> None:
    """More warps than chunks, several vectors a lane, more rows than warps."""
    other = build(place, ELEM=0, WARPS=4, VECTORS=4)
    given = case(6, 1500, 7, 3)
    assert right(given, launch(other, given, warps=4), other.chunk_elements())


@pytest.mark.slow
def test_bfloat16_logits_are_read_as_what_they_are(place: Path) -> None:
    narrow = build(place, ELEM=1, WARPS=2, VECTORS=1)
    for vocab in (517, 1024):
        given = case(8, vocab, 5, 4)
        given.logits = (given.logits.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        out = launch(narrow, given, bf16=True)
        assert right(given, out, narrow.chunk_elements(), width=8)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [1, 2, 4])
def test_a_mutant_is_not_taken_for_right(place: Path, mutant: int) -> None:
    broken = build(place, ELEM=0, WARPS=2, VECTORS=1, MUTANT=mutant)
    cases = [case(seed, 517, 5, 6) for seed in range(4)]
    assert not all(right(given, launch(broken, given), broken.chunk_elements()) for given in cases)


def test_rows_of_nothing_and_of_nan_give_a_token_that_exists(kernel: ctypes.CDLL) -> None:
    given = case(7, 517, 3, 4)
    given.logits[given.first(0)] = -np.inf
    given.logits[given.first(2)] = np.nan
    given.greedy[:] = 0
    out = launch(kernel, given)
    for request in range(4):
        emitted = [t for t in out[request] if t != -1]
        assert emitted
        assert all(0 <= t < 517 for t in emitted)
