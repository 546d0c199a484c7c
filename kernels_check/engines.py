"""The implementations that are judged: the engine's two samplers (the reference kernel: own.py)."""

from __future__ import annotations

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
        self.module, self.device, self.block = rejection_sampler, device, False
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

    def __init__(self, device: str = "cuda", *, block: bool = False) -> None:
        """Find it in this image."""
        try:
            from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils
        except ImportError as error:
            raise missing("vLLM's V2 rejection sampler", error) from error
        self.module, self.device, self.block = rejection_sampler_utils, device, block
        self.name = "vllm-v2-block" if block else "vllm-v2"
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
