"""Pages and counters for tests: a vLLM process that obeys the counting laws, and its page."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from speccli.core.metrics.counters import INF, Counters, layout_of
from speccli.core.sources.base import Scrape

STARTED = 1_790_000_000.0
"""A start time that is a Unix time."""
TARGET = "http://engine.test:8000"

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0)
REASONS = ("stop", "length", "abort")
_FAMILIES = {
    "ttft": ("time_to_first_token", TTFT),
    "itl": ("inter_token_latency", ITL),
    "tpot": ("request_time_per_output_token", ITL),
    "e2e": ("e2e_request_latency", REQUEST),
    "queue": ("request_queue_time", REQUEST),
}


@dataclass
class Hist:
    """A classic histogram."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float, n: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += n
        self.sum += value * n

    @property
    def n(self) -> int:
        return sum(self.counts)

    def lines(self, name: str, labels: str) -> Iterable[str]:
        below = 0
        for bound, count in zip((*self.bounds, INF), self.counts, strict=True):
            below += count
            le = "+Inf" if bound == INF else repr(bound)
            yield f'{name}_bucket{{{labels},le="{le}"}} {float(below)}'
        yield f"{name}_count{{{labels}}} {float(below)}"
        yield f"{name}_sum{{{labels}}} {self.sum}"


@dataclass
class Engine:
    """One scheduler process's counts, advanced step by step as vLLM counts them."""

    k: int = 3
    acceptance: float = 0.7
    engine: str = "0"
    model: str = "m"
    drafts: int = 0
    accepted: list[int] = field(default_factory=list)
    generation: int = 0
    prompt: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    preemptions: int = 0
    steps: int = 0
    running: float = 0.0
    waiting: float = 0.0
    kv: float = 0.0
    hist: dict[str, Hist] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.accepted = self.accepted or [0] * self.k
        self.hist = self.hist or {name: Hist(bounds) for name, (_, bounds) in _FAMILIES.items()}

    @property
    def draft_tokens(self) -> int:
        return self.k * self.drafts

    def serve(self, rng: random.Random, steps: int, batch: int) -> None:
        """`steps` engine steps over `batch` requests, some of which begin and end."""
        for _ in range(steps):
            self.steps += 1
            seconds = 0.008 * (1 + batch / 16) * rng.lognormvariate(0, 0.3)
            for _ in range(batch):
                kept = 0
                while kept < self.k and rng.random() < self.acceptance:
                    self.accepted[kept] += 1
                    kept += 1
                self.drafts += self.k > 0
                self.generation += 1 + kept
            self._observe("itl", seconds, batch)
            if rng.random() < 0.2:
                self.generation += 1
                self.prompt += rng.randrange(10, 500)
                self._observe("ttft", rng.lognormvariate(-2, 1))
            if rng.random() < 0.2:
                self.finished[rng.choice(REASONS)] += 1
                self._observe("tpot", seconds / 2)
                self._observe("e2e", rng.lognormvariate(1, 1))
                self._observe("queue", rng.lognormvariate(-3, 2))
        self.running, self.waiting, self.kv = float(batch), float(rng.randrange(3)), rng.random()

    def _observe(self, name: str, value: float, n: int = 1) -> None:
        if name in self.hist:
            self.hist[name].observe(value, n)

    def families(self) -> Iterable[tuple[str, str, list[str]]]:
        """Name, type and sample lines of each family."""
        labels = f'engine="{self.engine}",model_name="{self.model}"'
        for name, value in (
            ("num_requests_running", self.running),
            ("num_requests_waiting", self.waiting),
            ("kv_cache_usage_perc", self.kv),
        ):
            yield f"vllm:{name}", "gauge", [f"vllm:{name}{{{labels}}} {value}"]
        counters: list[tuple[str, Mapping[str, int]]] = [
            ("prompt_tokens", {labels: self.prompt}),
            ("generation_tokens", {labels: self.generation}),
            ("num_preemptions", {labels: self.preemptions}),
            (
                "request_success",
                {f'{labels},finished_reason="{r}"': n for r, n in self.finished.items()},
            ),
        ]
        if self.k:
            counters += [
                ("spec_decode_num_drafts", {labels: self.drafts}),
                ("spec_decode_num_draft_tokens", {labels: self.draft_tokens}),
                ("spec_decode_num_accepted_tokens", {labels: sum(self.accepted)}),
                (
                    "spec_decode_num_accepted_tokens_per_pos",
                    {f'{labels},position="{i}"': n for i, n in enumerate(self.accepted)},
                ),
            ]
        for name, series in counters:
            lines = [f"vllm:{name}_total{{{at}}} {float(n)}" for at, n in series.items()]
            yield f"vllm:{name}", "counter", lines
            created = [f"vllm:{name}_created{{{at}}} 1.79e+09" for at in series]
            yield f"vllm:{name}_created", "gauge", created
        for name, hist in self.hist.items():
            family = f"vllm:{_FAMILIES[name][0]}_seconds"
            yield family, "histogram", list(hist.lines(family, labels))
        steps = Hist((1.0, 8.0, 512.0), [0, self.steps, 0, 0], 4.0 * self.steps)
        family = "vllm:iteration_tokens_total"
        yield family, "histogram", list(steps.lines(family, labels))


def page(
    *engines: Engine, started: float | None = STARTED, extra: Sequence[str] = (), eol: str = "\n"
) -> bytes:
    """What a server with these engines answers at /metrics."""
    grouped: dict[str, tuple[str, list[str]]] = {}
    for engine in engines:
        for name, kind, lines in engine.families():
            grouped.setdefault(name, (kind, []))[1].extend(lines)
    lines = [
        "# HELP python_gc_objects_collected_total Objects collected during gc",
        "# TYPE python_gc_objects_collected_total counter",
        'python_gc_objects_collected_total{generation="0"} 7432.0',
    ]
    if started is not None:
        lines += [
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {started}",
        ]
    for name, (kind, samples) in grouped.items():
        lines += [f"# HELP {name} Words about {name}.", f"# TYPE {name} {kind}", *samples]
    return (eol.join([*lines, *extra]) + eol).encode()


def scrape(at: float, body: bytes | str, target: str = TARGET, **rest: object) -> Scrape:
    """An answer with status 200."""
    raw = body.encode() if isinstance(body, str) else body
    return Scrape(at, target, 200, raw, **rest)  # type: ignore[arg-type]


def spec_page(
    *,
    drafts: float,
    drafted: float,
    accepted: float,
    positions: Sequence[float] = (),
    engine: str = "0",
    created: bool = False,
    more: Sequence[str] = (),
) -> str:
    """The speculation counters alone."""
    labels = f'engine="{engine}",model_name="m"'
    name = "vllm:spec_decode_num_"
    lines = [
        f"{name}drafts_total{{{labels}}} {drafts}",
        f"{name}draft_tokens_total{{{labels}}} {drafted}",
        f"{name}accepted_tokens_total{{{labels}}} {accepted}",
    ]
    lines += [
        f'{name}accepted_tokens_per_pos_total{{{labels},position="{i}"}} {n}'
        for i, n in enumerate(positions)
    ]
    if created:
        fields = ("drafts", "draft_tokens", "accepted_tokens")
        lines += [f"{name}{field}_created{{{labels}}} 1.79e9" for field in fields]
    return "\n".join([*lines, *more]) + "\n"


def counters(
    at: float,
    slots: Mapping[str, float],
    hists: Mapping[str, tuple[Sequence[float], Sequence[float], float]] | None = None,
    *,
    started: float | None = None,
    gauges: Mapping[str, float] | None = None,
    partial: str | None = None,
    several: bool = False,
    engine: str = "0",
) -> Counters:
    """One sample; `hists`: field → bounds without +Inf, cumulative counts with it, sum."""
    order = tuple(sorted(slots))
    ladders = []
    values = [float(slots[name]) for name in order]
    for name in sorted(hists or {}):
        bounds, cumulative, total = (hists or {})[name]
        ladders.append((name, (*map(float, bounds), INF), True))
        values += [*map(float, cumulative), float(total)]
    return Counters(
        target=TARGET,
        engine=engine,
        kind="vllm",
        at=at,
        layout=layout_of(order, tuple(ladders)),
        values=array("d", values),
        gauges=dict(gauges or {}),
        started=started,
        partial=partial,
        several_api_servers=several,
    )
