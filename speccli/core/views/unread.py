"""That no engine could be read, in a line."""

from __future__ import annotations

from collections.abc import Sequence

from speccli.core.sources.base import NO_ENGINES
from speccli.core.stats.snapshot import EngineSnapshot

_NAMED = 3


def unread(engines: Sequence[EngineSnapshot], *, recorded: bool) -> tuple[str, str]:
    """That nothing could be read, why, and what to do."""
    why = "; ".join(f"{e.target}: {e.reason}" for e in engines[:_NAMED])
    if len(engines) > _NAMED:
        why += f"; and {len(engines) - _NAMED} more"
    if recorded:
        return f"no engine in the recording ({why or 'it has no scrapes'})", "record a longer time"
    if any(NO_ENGINES in (engine.reason or "") for engine in engines):
        return why, "ask without --selector; look at Prometheus's own page of targets"
    return (
        f"no engine could be read ({why or 'no targets'})",
        "check the address, the port-forward and the credentials; `specctl doctor` looks closer",
    )
