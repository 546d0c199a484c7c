"""What a million tokens costs on hardware that is paid by the hour."""

from __future__ import annotations

from dataclasses import dataclass

from speccli.core.values import LEAST, Number


@dataclass(frozen=True, slots=True)
class Pricing:
    """What the hardware under an engine costs."""

    gpu_hour_usd: float | None = None
    """Price of one GPU for an hour; None: not given, so no cost can be told."""
    gpus_per_engine: int = 1
    """GPUs one engine occupies (tensor × pipeline parallel)."""
    without_speculation_usd: float | None = None
    """Measured cost per 1M output tokens of the same pool without speculation; None: unknown."""

    def per_million(self, engines: int, tokens_per_s: float | None) -> Number:
        """USD per 1M tokens for `engines` engines that yield `tokens_per_s` together.

        Cost falls as 1 / rate; idle engines are paid for.
        """
        if self.gpu_hour_usd is None:
            return Number.unknown("no GPU price given (--gpu-hour-usd)")
        if tokens_per_s is None:
            return Number.unknown("token rate unknown")
        if engines < 1:
            return Number.unknown("how many engines are paid for is unknown")
        if tokens_per_s < LEAST:
            return Number.unknown("no tokens in the window")
        per_hour = engines * self.gpus_per_engine * self.gpu_hour_usd
        return Number.known(per_hour / (tokens_per_s * 3600) * 1e6)
