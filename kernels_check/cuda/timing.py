"""How long device work takes.

Replayed from a graph, cold (other data each time) or hot (the same).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

COLD_BYTES = 3
"""Cold work goes round through at least this many times the L2 cache."""


def captured(work: Sequence[Callable[[], Any]]) -> Any:
    """A CUDA graph of the calls, after they have run once outside it."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in work:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in work:
            call()
    return graph


def replays(graph: Any, *, calls: int, budget_s: float = 0.04, repeats: int = 5) -> list[float]:
    """Seconds of one of the graph's `calls`, in each of `repeats` timed series of replays."""
    import torch

    graph.replay()
    once = _timed(graph, 1)
    count = max(1, int(budget_s / repeats / max(once, 1e-6)))
    torch.cuda.synchronize()
    return [_timed(graph, count) / count / calls for _ in range(repeats)]


def _timed(graph: Any, count: int) -> float:
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def samples(work: Sequence[Callable[[], Any]], budget_s: float = 0.04) -> list[float]:
    """Seconds of one call when the calls follow each other round and round, measured five times."""
    graph = captured(work)
    taken = replays(graph, calls=len(work), budget_s=budget_s)
    graph.reset()
    return taken


def seconds(work: Sequence[Callable[[], Any]], budget_s: float = 0.04) -> float:
    """The median of `samples`."""
    return statistics.median(samples(work, budget_s))


def sets_for(size: int) -> int:
    """How many sets of `size` bytes make the L2 cache forget the first before it comes round."""
    import torch

    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return int(max(2, -(-COLD_BYTES * cache // max(size, 1)) + 1))


def direct_seconds(call: Callable[[], Any], count: int = 10, repeats: int = 5) -> float:
    """Seconds of one call launched again and again without a graph: for work that is long."""
    import torch

    call()
    taken = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        taken.append(float(begin.elapsed_time(end)) / 1000 / count)
    return statistics.median(taken)
