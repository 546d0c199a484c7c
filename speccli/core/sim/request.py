"""One request on its way through a simulated engine."""

from __future__ import annotations

import math
from collections.abc import Callable

Listener = Callable[[float, int, bool], None]
"""Told of each step of a request: the instant, the new tokens, whether it was the last."""


class QueueFullError(Exception):
    """The engine turned a request away at admission."""


class SimRequest:
    """One request on its way through the engine."""

    __slots__ = (
        "accepted",
        "arrived_at",
        "cached",
        "first_at",
        "last_at",
        "left",
        "listener",
        "max_tokens",
        "output",
        "preemptions",
        "prompt",
        "reason",
        "scheduled_at",
        "todo",
    )

    def __init__(
        self, arrived_at: float, prompt: int, output: int, max_tokens: int, reason: str, cached: int
    ) -> None:
        self.arrived_at = arrived_at
        self.prompt = prompt
        self.output = output
        self.max_tokens = max_tokens
        self.reason = reason
        self.cached = cached
        self.left = output
        self.todo = prompt - cached
        self.scheduled_at = math.nan
        self.first_at = math.nan
        self.last_at = math.nan
        self.preemptions = 0
        self.listener: Listener | None = None
        self.accepted: list[int] = []
        """Accepted tokens of each step with a draft; kept for requests somebody listens to."""

    @property
    def context(self) -> int:
        """Tokens it holds in the KV cache once its prompt is computed."""
        return self.prompt + self.output - self.left
