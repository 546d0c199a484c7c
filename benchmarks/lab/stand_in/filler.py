"""Matrices of the large model: the small model's entries, and filler that does not disturb them.

Filler is random and of normal size wherever a kernel sees it: zeros would draw less power and let
clocks rise. It is kept from the small model's part by factors of 2^-quiet, which vanish in
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from stand_in.shapes import Place

QUIET_INPUT = 2.0**-9
"""Weight of quiet inputs in filler rows. They are a network of their own, and SwiGLU is quadratic:
the less it hears itself the surer it stays small, however many layers there are."""
NEVER = 65536.0
"""What the anchor is multiplied with in rows of tokens that do not exist."""


class Filler:
    """Makes one model's matrices, in the order in which they are asked for."""

    def __init__(self, at: Place, device: str, dtype: torch.dtype) -> None:
        self.at, self.device, self.dtype = at, torch.device(device), dtype
        self.width, self.small, self.used = at.shape.hidden, at.small, at.used
        self.hush = 2.0**-at.quiet
        self.random = torch.Generator(device=self.device).manual_seed(at.seed)

    @property
    def anchor(self) -> int | None:
        """A quiet place that holds a constant, by which tokens that do not exist are told off."""
        return self.width - 1 if self.width > self.used else None

    def noise(self, rows: int, columns: int, deviation: float = 1.0) -> torch.Tensor:
        """Normal numbers."""
        made = torch.empty(rows, columns, dtype=self.dtype, device=self.device)
        return made.normal_(0.0, deviation, generator=self.random)

    def here(self, weight: torch.Tensor) -> torch.Tensor:
        """A small weight, exact, on the device."""
        return weight.to(self.device, torch.float32)

    def norm(self, weight: torch.Tensor, *, loud: bool = True) -> torch.Tensor:
        """A norm's weights; quiet places come out at normal size where `loud`."""
        given = self.here(weight) * self.at.norm
        level = given.abs().mean() * (1 / self.hush if loud else 1.0)
        made = torch.full((self.width,), float(level), device=self.device)
        made[: self.used] = given.repeat(self.used // self.small)
        return made.to(self.dtype)

    def reads(
        self,
        weight: torch.Tensor,
        rows: int,
        real: torch.Tensor | None,
        *,
        silent: torch.Tensor | None = None,
        scale: float = 1.0,
    ) -> torch.Tensor:
        """A matrix that reads normed streams, as many as lie side by side in the small weight.

        `real`: where the small rows go, None: nowhere. `silent`: rows that come out as nothing.
        """
        streams = weight.shape[1] // self.small
        deviation = float(weight.float().std()) * scale
        made = self.noise(rows, streams * self.width, deviation)
        for s in range(streams):
            made[:, s * self.width + self.used : (s + 1) * self.width] *= QUIET_INPUT
        if silent is not None and len(silent):
            made[silent] *= self.hush
        if real is not None:
            made[real] = self._real_rows(made[real], self.here(weight) * scale, streams)
        return made

    def _real_rows(self, rows: torch.Tensor, wanted: torch.Tensor, streams: int) -> torch.Tensor:
        rows = rows * self.hush
        for s in range(streams):
            start = s * self.width
            part = wanted[:, s * self.small : (s + 1) * self.small]
            rounded = part.to(self.dtype)
            rows[:, start : start + self.small] = rounded
            lost = part - rounded.float()
            if self.at.copy and bool(lost.any()):  # what rounding took is read from the copy
                second = slice(start + self.small, start + 2 * self.small)
                rows[:, second] = (lost / self.at.copy).to(self.dtype)
        return rows

    def writes(
        self, weight: torch.Tensor, columns: int, real: torch.Tensor, *, alive: bool
    ) -> torch.Tensor:
        """A matrix that adds to the stream; not `alive`: of a layer that the small model lacks."""
        deviation = float(weight.float().std())
        made = self.noise(self.width, columns, deviation)
        made[self.used :] *= self.hush * math.sqrt(len(real) / columns) / 4
        made[: self.used] *= self.hush
        if alive:
            small = self.here(weight)
            for start, factor in self._streams():
                made[start : start + self.small].index_copy_(
                    1, real, (small * factor).to(self.dtype)
                )
        if self.anchor is not None:
            made[self.anchor] = 0
        return made

    def _streams(self) -> Sequence[tuple[int, float]]:
        second = [(self.small, self.at.copy)] if self.at.copy else []
        return [(0, 1.0), *second]

    def joins(self, weight: torch.Tensor) -> torch.Tensor:
        """A matrix from streams side by side, not normed, to one stream (`fc` of a head)."""
        streams = weight.shape[1] // self.small
        small, deviation = self.here(weight), float(weight.float().std())
        made = self.noise(self.width, streams * self.width, deviation)
        made[: self.used] *= self.hush
        for s in range(streams):
            start = s * self.width
            made[self.used :, start : start + self.used] *= self.hush
            made[self.used :, start + self.used : start + self.width] *= QUIET_INPUT
            for row, factor in self._streams():
                part = small[:, s * self.small : (s + 1) * self.small] * factor
                made[row : row + self.small, start : start + self.small] = part.to(self.dtype)
        if self.anchor is not None:
            made[self.anchor] = 0
            made[self.anchor, streams * self.width - 1] = 1
        return made

    def embeds(self, weight: torch.Tensor, vocabulary: int) -> torch.Tensor:
        """Input embeddings; tokens that do not exist get noise."""
        small = self.here(weight)
        deviation = float(small.std())
        made = self.noise(vocabulary, self.width, deviation)
        made[:, self.used :] *= self.hush
        for start, factor in self._streams():
            part = (small * factor).to(self.dtype)
            made[: len(small), start : start + self.small] = part
        if self.anchor is not None:
            made[:, self.anchor] = deviation * self.hush
        return made

    def scores(self, weight: torch.Tensor, vocabulary: int) -> torch.Tensor:
        """An output layer; tokens that do not exist score far below any other."""
        small = self.here(weight)
        made = self.noise(vocabulary, self.width, float(small.std()) * self.hush)
        made[: len(small), : self.small] = small.to(self.dtype)
        if self.anchor is not None:
            made[: len(small), self.anchor] = 0
            made[len(small) :, self.anchor] = -NEVER
        elif vocabulary > len(small):
            raise ValueError("no quiet place: the vocabulary cannot be larger")
        return made

    def indices(self, numbers: Sequence[int] | Any) -> torch.Tensor:
        """Places, on the device."""
        return torch.as_tensor(numbers, dtype=torch.long, device=self.device)
