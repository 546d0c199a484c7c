"""The implementations that are judged.

The engine's two samplers, and the reference kernel of csrc.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kernels_check.cases import GREEDY, Case
from kernels_check.model import missing
from kernels_check.reference import philox

LOOSE = 2e-5
"""Relative slack of a comparison between float32 scores."""


Place = Callable[[str, Any], Any]
"""Where an input lies: given its name and its values, a tensor of the same values."""


def as_it_is(name: str, tensor: Any) -> Any:
    """Inputs lie where torch put them."""
    del name
    return tensor


def spread(flat: Any, lengths: list[int]) -> list[list[float]]:
    """A flat tensor of one value a drafted token, request by request."""
    values, made, at = flat.tolist(), [], 0
    for n in lengths:
        made.append(values[at : at + n])
        at += n
    return made


def unknown(lengths: list[int]) -> list[list[float]]:
    """Uniforms that nobody will ask for: where only the distribution is judged."""
    return [[0.0] * n for n in lengths]


class VllmV1:
    """The rejection sampler of vLLM's V1 model runner (V2's fallback, and P-EAGLE's)."""

    name = "vllm-v1"

    def __init__(self, device: str = "cuda") -> None:
        """Find it in this image."""
        try:
            from vllm.v1.sample import rejection_sampler
        except ImportError as error:
            raise missing("vLLM's V1 rejection sampler", error) from error
        self.module, self.device = rejection_sampler, device
        self.place: Place = as_it_is
        self.seeded = True

    def _generators(self, lengths: list[int], seed: int) -> dict[int, Any]:
        import torch

        if not self.seeded:
            torch.cuda.manual_seed(seed)
            return {}
        return {
            i: torch.Generator(device=self.device).manual_seed(seed * 1000 + i)
            for i in range(len(lengths))
        }

    def uniforms(self, lengths: list[int], seed: int) -> list[list[float]]:
        """What its seeded generators give first."""
        import torch

        if not self.seeded:
            return unknown(lengths)
        made: list[list[float]] = []
        for i, generator in self._generators(lengths, seed).items():
            u = torch.empty(lengths[i], dtype=torch.float64, device=self.device)
            made.append(u.uniform_(generator=generator).tolist() if lengths[i] else [])
        return made

    def run(self, case: Case, seed: int) -> Any:
        """Its whole path after the logits processors.

        The bonus token is handed to it, as in vLLM.
        """
        import torch

        device = self.device
        lengths = torch.tensor(case.lengths, device=device)
        rows = torch.arange(case.logits.shape[0], device=device)
        last = (lengths + 1).cumsum(0) - 1
        target = rows[~torch.isin(rows, last)]
        bonus = self.bonus(case, case.logits[last])
        temperature = torch.tensor([float(mode != GREEDY) for mode in case.modes], device=device)
        meta = SimpleNamespace(
            all_greedy=all(mode == GREEDY for mode in case.modes),
            all_random=all(mode != GREEDY for mode in case.modes),
            temperature=self.place("temperature", temperature),
            generators=self._generators(case.lengths, seed),
        )
        probs = None if case.draft_logits is None else torch.softmax(case.draft_logits, -1)
        if probs is not None:
            probs = probs[: len(target)].contiguous()
        place = self.place
        ids = torch.tensor(case.flat_tokens, dtype=torch.int32, device=device)
        return self.module.rejection_sample(
            place("draft_token_ids", ids),
            case.lengths,
            case.k,
            place("cu_num_draft_tokens", lengths.cumsum(0).to(torch.int32)),
            None if probs is None else place("draft_probs", probs),
            place("target_logits", case.logits[target].clone()),
            place("bonus_token_ids", bonus.to(torch.int32)),
            meta,
        )

    def bonus(self, case: Case, logits: Any) -> Any:
        """The bonus tokens handed in: the largest logit's, whatever the mode."""
        return logits.argmax(-1, keepdim=True)

    def drawn(self, case: Case, seed: int, request: int, position: int, weights: Any) -> Any:
        """The winners of its exponential race, redrawn from the same generator."""
        import torch

        if position == case.lengths[request]:
            return weights >= weights.max() * (1 - LOOSE)
        generator = self._generators(case.lengths, seed)[request]
        u = torch.empty(case.lengths[request], dtype=torch.float64, device=self.device)
        u.uniform_(generator=generator)
        noise = torch.empty(case.vocab, dtype=torch.float32, device=self.device)
        noise.exponential_(generator=generator)
        score = weights / noise.double()
        return score >= score.max() * (1 - LOOSE)


class VllmV2:
    """The rejection sampler of vLLM's V2 model runner."""

    name = "vllm-v2"

    def __init__(self, device: str = "cuda", *, block: bool = False) -> None:
        """Find it in this image."""
        try:
            from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils
        except ImportError as error:
            raise missing("vLLM's V2 rejection sampler", error) from error
        self.module, self.device, self.block = rejection_sampler_utils, device, block
        self.place: Place = as_it_is
        self.seeded = True

    @staticmethod
    def _seed(request: int, seed: int) -> int:
        return (seed * 7919 + request * 104729 + 1) & 0x7FFFFFFF

    @staticmethod
    def _position(request: int, i: int) -> int:
        return 100 + 37 * request + i

    def uniforms(self, lengths: list[int], seed: int) -> list[list[float]]:
        """Philox keyed by the request's seed at each position, as its kernel draws them."""
        import torch

        if not self.seeded:
            return unknown(lengths)
        made = []
        for request, n in enumerate(lengths):
            at = torch.arange(n) + self._position(request, 0)
            word = philox.philox(self._seed(request, seed), at)[0]
            u = philox.uniform(word).clamp(min=philox.UNIT) if n else at.double()
            made.append(u.tolist())
        return made

    def run(self, case: Case, seed: int) -> Any:
        """Its whole path from processed logits.

        Request states lie in another order than the batch.
        """
        import torch

        device, batch = self.device, len(case.lengths)
        slots = [(batch - 1 - request) for request in range(batch)]
        flat: dict[str, list[int]] = {"drafted": [], "slot": [], "local": [], "at": []}
        for request, n in enumerate(case.lengths):
            flat["drafted"] += [0, *case.tokens[request]]
            flat["slot"] += [slots[request]] * (n + 1)
            flat["local"] += list(range(n + 1))
            flat["at"] += [self._position(request, i) for i in range(n + 1)]
        starts = [0]
        for n in case.lengths:
            starts.append(starts[-1] + n + 1)
        warm, seeds = [0.0] * batch, [0] * batch
        for request, slot in enumerate(slots):
            warm[slot] = float(case.modes[request] != GREEDY)
            seeds[slot] = self._seed(request, seed)
        temperature = torch.tensor(warm, device=device)

        def ints(name: str, values: list[int], dtype: Any = torch.int32) -> Any:
            return self.place(name, torch.tensor(values, dtype=dtype, device=device))

        sampled, count = self.module.rejection_sample(
            self.place("target_logits", case.logits),
            self._draft(case, slots),
            ints("draft_sampled", flat["drafted"], torch.int64),
            ints("cu_num_logits", starts),
            ints("pos", flat["at"], torch.int64),
            ints("idx_mapping", slots),
            ints("expanded_idx_mapping", flat["slot"]),
            ints("expanded_local_pos", flat["local"]),
            self.place("temperature", temperature),
            ints("seed", seeds, torch.int64),
            case.k,
            use_block_verification=self.block,
        )
        there = torch.arange(case.k + 1, device=device)[None, :] < count[:, None]
        return torch.where(there, sampled, torch.full_like(sampled, -1))

    def _draft(self, case: Case, slots: list[int]) -> Any:
        if case.draft_logits is None:
            return None
        import torch

        made = torch.zeros((len(slots), case.k, case.vocab), device=self.device)
        slot = [slots[request] for request, n in enumerate(case.lengths) for _ in range(n)]
        local = [i for n in case.lengths for i in range(n)]
        made[slot, local] = case.draft_logits[: len(slot)]
        return self.place("draft_logits", made)

    def drawn(self, case: Case, seed: int, request: int, position: int, weights: Any) -> Any:
        """The largest of log-weight plus Gumbel noise, from the same Philox stream."""
        import torch

        at = torch.tensor([self._position(request, position)])
        key = int(philox.philox(self._seed(request, seed), at)[0][0])
        every = torch.arange(case.vocab, device=weights.device)
        u = philox.uniform(philox.philox(key, every)[0]).clamp(min=philox.UNIT)
        noise = -torch.log(-torch.log1p(-u.double()))
        score = torch.log(weights) + noise
        return score >= score.max() - 2e-4


class Own:
    """The reference kernel of csrc/verify.cu, or one of its mutants.

    Drafts certain of their token.
    """

    def __init__(self, mutant: int = 0, *, bf16: bool = False, slices: int = 0) -> None:
        """Compile and load it."""
        from kernels_check.cuda.driver import Module

        self.name = f"own-{mutant}" if mutant else "own"
        self.module = Module("verify.cu", {"ELEM": int(bf16), "MUTANT": mutant})
        self.kernel = self.module.function("verify")
        self.bf16, self.slices = bf16, slices
        self.place: Place = as_it_is
        self.seeded = True

    def _generator(self, seed: int) -> Any:
        import torch

        return torch.Generator(device="cuda").manual_seed(seed + 17)

    def uniforms(self, lengths: list[int], seed: int) -> list[list[float]]:
        """From a seeded generator; float32, as the kernel takes them."""
        import torch

        u = torch.rand(sum(lengths), generator=self._generator(seed), device="cuda")
        return spread(u, lengths)

    def sample_uniforms(self, batch: int, seed: int) -> Any:
        """One a request, for the recovered or bonus token."""
        import torch

        return torch.rand(batch, generator=self._generator(seed + 1), device="cuda")

    def run(self, case: Case, seed: int) -> Any:
        """One launch."""
        import torch

        logits = case.logits.bfloat16() if self.bf16 else case.logits
        u = torch.tensor([x for row in case.accept_u for x in row] or [0.0], device="cuda")
        step = OwnStep(self, logits, case.lengths, case.flat_tokens, u, case.k)
        step.greedy.copy_(torch.tensor([mode == GREEDY for mode in case.modes]).byte())
        step.sample_u.copy_(self.sample_uniforms(len(case.lengths), seed))
        for name in OwnStep.TENSORS:
            setattr(step, name, self.place(name, getattr(step, name)))
        step.launch()
        torch.cuda.synchronize()
        return step.out

    def drawn(self, case: Case, seed: int, request: int, position: int, weights: Any) -> Any:
        """The tokens whose interval of the cumulative distribution the uniform falls into.

        Or near.
        """
        u = float(self.sample_uniforms(len(case.lengths), seed)[request])
        upto = weights.cumsum(-1)
        slack = 3e-6 * upto[-1]
        target = u * upto[-1]
        return (upto >= target - slack) & (upto - weights <= target + slack)


class _Arguments(ctypes.Structure):
    """`Args` of csrc/verify.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "logits", "cu_rows", "request_of", "draft_ids", "accept_u", "sample_u", "greedy",
            "out", "part_m", "part_s", "part_at", "finished",
        )),
        ("stride", ctypes.c_longlong),
        ("vocab", ctypes.c_int),
        ("out_stride", ctypes.c_int),
        ("slices", ctypes.c_int),
        ("aligned", ctypes.c_int),
    )  # fmt: skip


WARPS = 8
BLOCKS_RESIDENT = 5
BLOCK_COST = 3000
"""What starting and ending a block costs, in elements it could have read meanwhile."""


class OwnStep:
    """The buffers of one step of the reference kernel, ready to be launched again and again."""

    TENSORS = ("logits", "cu_rows", "request_of", "draft_ids", "accept_u", "sample_u", "greedy",
               "out", "part_m", "part_s", "part_at", "finished")  # fmt: skip

    def __init__(
        self, own: Own, logits: Any, lengths: list[int], tokens: list[int], accept_u: Any, k: int
    ) -> None:
        """Lay out a step; `greedy` and `sample_u` are zero until written."""
        import torch

        self.own, self.k = own, k
        batch, rows = len(lengths), sum(lengths) + len(lengths)
        per_row = torch.tensor(lengths) + 1
        self.logits = logits
        self.cu_rows = torch.tensor([0, *per_row.cumsum(0).tolist()], dtype=torch.int32).cuda()
        self.request_of = torch.repeat_interleave(torch.arange(batch), per_row).int().cuda()
        self.draft_ids = torch.tensor(tokens or [0], dtype=torch.int32).cuda()
        self.accept_u = accept_u.float().contiguous()
        self.sample_u = torch.zeros(batch, device="cuda")
        self.greedy = torch.zeros(batch, dtype=torch.uint8, device="cuda")
        self.out = torch.full((batch, k + 1), -2, dtype=torch.int32, device="cuda")
        self.slices = own.slices or self.best_slices(rows, logits.shape[-1])
        parts = rows * self.slices * WARPS
        self.part_m = torch.full((parts,), torch.nan, device="cuda")
        self.part_s = torch.full((parts,), torch.nan, device="cuda")
        self.part_at = torch.full((parts,), -1, dtype=torch.int32, device="cuda")
        self.finished = torch.zeros(batch, dtype=torch.int32, device="cuda")
        self.rows = rows

    @staticmethod
    def best_slices(rows: int, vocab: int) -> int:
        """Blocks a row.

        So that whole rounds of resident blocks have little of a round left over.
        """
        import torch

        resident = torch.cuda.get_device_properties(0).multi_processor_count * BLOCKS_RESIDENT

        def length(slices: int) -> float:
            return float(-(-rows * slices // resident) * (vocab / slices + BLOCK_COST))

        most = max(1, min(vocab // 2048, 48))
        return min(range(1, most + 1), key=length)

    def launch(self) -> None:
        """One launch on the current stream."""
        from kernels_check.cuda.driver import pointer

        held = {name: getattr(self, name) for name in self.TENSORS}
        arguments = _Arguments(**{name: pointer(tensor) for name, tensor in held.items()})
        size = self.logits.element_size()
        arguments.stride = self.logits.stride(0)
        arguments.vocab, arguments.out_stride = self.logits.shape[-1], self.k + 1
        arguments.slices = self.slices
        arguments.aligned = int(
            self.logits.data_ptr() % 16 == 0 and self.logits.stride(0) * size % 16 == 0
        )
        self.own.module.launch(self.own.kernel, (self.slices, self.rows), 256, [arguments])
