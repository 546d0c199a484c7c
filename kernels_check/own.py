"""The reference kernel of csrc/verify.cu, or one of its mutants, and the buffers of its steps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from kernels_check.cases import GREEDY, Case
from kernels_check.engines import Place, as_it_is, spread

MOST_ROWS = 16
"""Rows of a request that the kernel takes: K + 1."""
MOST_TOKENS = 1 << 20
"""Of a vocabulary that the kernel takes."""
SLACK = 1e-5
"""How far float32 may be from a threshold, as a share of the mass that it lies in."""


class Own:
    """The reference kernel. Drafts certain of their token (greedy drafting, n-gram)."""

    def __init__(
        self, mutant: int = 0, *, bf16: bool = False, macros: Mapping[str, int] | None = None
    ) -> None:
        """`macros`: other values for the constants at the top of the source."""
        self.name = f"own-{mutant}" if mutant else "own"
        self.bf16 = bf16
        self.macros = {"ELEM": int(bf16), "MUTANT": mutant, "VECTORS": 8, "WARPS": 8}
        if bf16:
            self.macros["VECTORS"] = 4
        self.macros |= macros or {}
        self.overlap = bool(self.macros.get("OVERLAP", 0))
        self.place: Place = as_it_is
        self.seeded, self.block = True, False
        self._kernels: dict[int, Callable[..., None]] = {}

    @property
    def chunk(self) -> int:
        """Elements of a row that a warp reads."""
        return 32 * self.macros["VECTORS"] * (8 if self.bf16 else 4)

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.macros["WARPS"]

    def kernel(self, chunks: int) -> Callable[..., None]:
        """Launch it (grid, threads, arguments); compiled for rows of up to `chunks` chunks."""
        per_lane = max(8, -(-chunks // 32))
        if per_lane not in self._kernels:
            from kernels_check.cuda.driver import Module

            module = Module("verify.cu", {**self.macros, "PER_LANE": per_lane})
            function = module.function("verify")

            def launch(grid: tuple[int, int], arguments: list[Any]) -> None:
                module.launch(function, grid, 32 * self.warps, arguments, overlap=self.overlap)

            self._kernels[per_lane] = launch
        return self._kernels[per_lane]

    def _generator(self, seed: int) -> Any:
        import torch

        return torch.Generator(device="cuda").manual_seed(seed + 17)

    def uniforms(self, lengths: list[int], seed: int) -> list[list[float]]:
        """From a seeded generator; float32, as the kernel takes them."""
        import torch

        u = torch.rand(sum(lengths), generator=self._generator(seed), device="cuda")
        return spread(u, lengths)

    def sample_uniforms(self, batch: int, seed: int) -> Any:
        """[batch, 2] for the recovered or bonus token: which chunk, which token of it."""
        import torch

        return torch.rand((batch, 2), generator=self._generator(seed + 1), device="cuda")

    def run(self, case: Case, seed: int) -> Any:
        """One launch."""
        import torch

        logits = case.logits.bfloat16() if self.bf16 else case.logits
        step = OwnStep(self, logits, case.lengths, case.tokens, case.accept_u, case.k)
        step.greedy.copy_(torch.tensor([mode == GREEDY for mode in case.modes]).int())
        step.sample_u.copy_(self.sample_uniforms(len(case.lengths), seed))
        for name in OwnStep.TENSORS:
            setattr(step, name, self.place(name, getattr(step, name)))
        step.launch()
        torch.cuda.synchronize()
        return step.out

    def drawn(self, case: Case, seed: int, request: int, position: int, weights: Any) -> Any:
        """The tokens whose intervals of the two cumulative distributions hold the uniforms.

        Or near. A chunk's tokens follow each other lane by lane, as the warp holds them.
        """
        import torch

        u_chunk, u_token = self.sample_uniforms(len(case.lengths), seed)[request].tolist()
        vectors, width = self.macros["VECTORS"], 8 if self.bf16 else 4
        chunks = -(-len(weights) // self.chunk)
        padded = torch.zeros(chunks * self.chunk, dtype=weights.dtype, device=weights.device)
        padded[: len(weights)] = weights
        w = padded.view(chunks, vectors, 32, width).transpose(1, 2).reshape(chunks, -1)
        mass = w.sum(1)
        chosen = _holds(mass, u_chunk)[:, None] & _holds(w, u_token)
        back = chosen.view(chunks, 32, vectors, width).transpose(1, 2).reshape(-1)
        return back[: len(weights)]


def _holds(mass: Any, u: float) -> Any:
    """Which intervals of the cumulative sums (along the last axis) hold `u`, or nearly."""
    upto = mass.cumsum(-1)
    total = upto[..., -1:]
    return (upto >= (u - SLACK) * total) & (upto - mass <= (u + SLACK) * total)


class _Arguments(ctypes.Structure):
    """`Args` of csrc/verify.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "logits", "cu_rows", "request_of", "draft_ids", "accept_u", "sample_u", "greedy",
            "out", "parts", "drafted", "tickets",
        )),
        ("stride", ctypes.c_longlong),
        ("vocab", ctypes.c_int),
        ("out_stride", ctypes.c_int),
        ("chunks", ctypes.c_int),
        ("aligned", ctypes.c_int),
    )  # fmt: skip


class OwnStep:
    """The buffers of one step of the reference kernel, ready to be launched again and again."""

    TENSORS = ("logits", "cu_rows", "request_of", "draft_ids", "accept_u", "sample_u", "greedy",
               "out", "parts", "drafted", "tickets")  # fmt: skip

    def __init__(
        self,
        own: Own,
        logits: Any,
        lengths: list[int],
        tokens: list[list[int]],
        accept_u: list[list[float]],
        k: int,
    ) -> None:
        """Lay out a step; `greedy` and `sample_u` are zero until written."""
        import torch

        if k + 1 > MOST_ROWS or logits.shape[-1] > MOST_TOKENS:
            raise ValueError(f"K {k}, {logits.shape[-1]} tokens: more than the kernel takes")
        self.own, self.k = own, k
        batch, self.rows = len(lengths), sum(lengths) + len(lengths)
        per_row = torch.tensor(lengths) + 1
        self.logits = logits
        self.cu_rows = torch.tensor([0, *per_row.cumsum(0).tolist()], dtype=torch.int32).cuda()
        self.request_of = torch.repeat_interleave(torch.arange(batch), per_row).int().cuda()
        # A value a row: the last row of a request drafts nothing.
        flat_ids = [token for row in tokens for token in (*row, -1)]
        flat_u = [u for row in accept_u for u in (*row, 0.0)]
        self.draft_ids = torch.tensor(flat_ids, dtype=torch.int32).cuda()
        self.accept_u = torch.tensor(flat_u, dtype=torch.float32).cuda()
        self.sample_u = torch.zeros((batch, 2), device="cuda")
        self.greedy = torch.zeros(batch, dtype=torch.int32, device="cuda")
        self.out = torch.full((batch, k + 1), -2, dtype=torch.int32, device="cuda")
        self.chunks = -(-logits.shape[-1] // own.chunk)
        self.parts = torch.full((self.rows, self.chunks), -1, dtype=torch.int64, device="cuda")
        self.drafted = torch.full((self.rows,), -1, dtype=torch.int64, device="cuda")
        self.tickets = torch.zeros(batch, dtype=torch.int32, device="cuda")
        self._launch = own.kernel(self.chunks)

    def launch(self) -> None:
        """One launch on the current stream."""
        from kernels_check.cuda.driver import pointer

        held = {name: getattr(self, name) for name in self.TENSORS}
        arguments = _Arguments(**{name: pointer(tensor) for name, tensor in held.items()})
        size = self.logits.element_size()
        arguments.stride = self.logits.stride(0)
        arguments.vocab, arguments.out_stride = self.logits.shape[-1], self.k + 1
        arguments.chunks = self.chunks
        arguments.aligned = int(
            self.logits.data_ptr() % 16 == 0 and self.logits.stride(0) * size % 16 == 0
        )
        self._launch((-(-self.chunks // self.own.warps), self.rows), [arguments])
