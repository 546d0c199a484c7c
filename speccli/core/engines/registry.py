"""Which adapter reads a body: decided by the names in it."""

from __future__ import annotations

from speccli.core.engines.base import Adapter, Role
from speccli.core.engines.sglang import SGLANG
from speccli.core.engines.vllm import VLLM

ADAPTERS: tuple[Adapter, ...] = (VLLM, SGLANG)

BY_NAME: dict[str, tuple[Adapter, Role]] = {
    name: (adapter, role) for adapter in ADAPTERS for name, role in adapter.roles.items()
}
"""Every sample name any adapter reads."""

PROCESS_START = "process_start_time_seconds"
"""Exposed by the process collector; absent in prometheus_client's multiprocess mode."""

SIMULATED = "specctl_simulated"
"""What specctl's own simulator puts on its page, so that nothing simulated passes for measured."""

WANTED: frozenset[str] = frozenset({*BY_NAME, PROCESS_START, SIMULATED})


def adapter_named(kind: str) -> Adapter:
    """The adapter of an `engine_kind`.

    Raises:
        KeyError: no such engine.
    """
    return next(adapter for adapter in ADAPTERS if adapter.kind == kind)
