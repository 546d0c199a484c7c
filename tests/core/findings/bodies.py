"""Pages of engines as text, and snapshots made of them the way live data takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speccli.core.findings import CODES, Finding, Thresholds, evaluate
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window

AT = 1_795_975_000.0
"""When the recordings begin, Unix seconds."""
A, B, C = "http://a:8000", "http://b:8000", "http://c:8000"
SPEC = "vllm:spec_decode_num"


@dataclass(frozen=True)
class Engine:
    """One engine's part of a page; a field that is None is not exported."""

    engine: str = "0"
    gen: float | None = None
    dt: float | None = None
    acc: float | None = None
    dr: float | None = None
    pos: Sequence[float] = ()
    running: float | None = None
    waiting: float | None = None
    version: str | None = None
    model: str = "m"
    counts: Mapping[str, float] = field(default_factory=dict)
    """Other samples, by the whole name."""
    histograms: Mapping[str, tuple[Sequence[tuple[str, float]], float]] = field(
        default_factory=dict
    )
    """By family name: cumulative buckets, and the sum."""

    def lines(self) -> list[str]:
        version = f',version="{self.version}"' if self.version else ""
        labels = f'engine="{self.engine}",model_name="{self.model}"{version}'
        samples = {
            "vllm:generation_tokens_total": self.gen,
            f"{SPEC}_draft_tokens_total": self.dt,
            f"{SPEC}_accepted_tokens_total": self.acc,
            f"{SPEC}_drafts_total": self.dr,
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": self.waiting,
            **self.counts,
        }
        lines = [f"{name}{{{labels}}} {v}" for name, v in samples.items() if v is not None]
        for i, value in enumerate(self.pos):
            name = f"{SPEC}_accepted_tokens_per_pos_total"
            lines.append(f'{name}{{{labels},position="{i}"}} {value}')
        for name, (buckets, total) in self.histograms.items():
            lines += [f'{name}_bucket{{{labels},le="{le}"}} {count}' for le, count in buckets]
            lines += [f"{name}_sum{{{labels}}} {total}"]
            lines += [f"{name}_count{{{labels}}} {buckets[-1][1]}"]
        return lines


def page(*engines: Engine, started: float | None = AT - 3600) -> bytes:
    """A server's page."""
    lines = [line for engine in engines for line in engine.lines()]
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    return ("\n".join(lines) + "\n").encode()


def answer(at: float, target: str, *engines: Engine, **more: Any) -> Scrape:
    """A server that answers, `at` seconds after the beginning."""
    started = more.pop("started", AT - 3600)
    return Scrape(AT + at, target, 200, page(*engines, started=started), **more)


def silence(at: float, target: str, error: str = "connect refused") -> Scrape:
    """A server that does not."""
    return Scrape(AT + at, target, error=error)


def snapshot(*rounds: Sequence[Scrape], now: float | None = None, **settings: Any) -> Snapshot:
    """What a window makes of these rounds."""
    window = Window(Settings(**settings))
    for scrapes in rounds:
        window.push(scrapes)
    return window.snapshot(None if now is None else AT + now)


def judge(*rounds: Sequence[Scrape], now: float | None = None, **more: Any) -> list[Finding]:
    """What the rules make of them; keywords are of Thresholds, or else of the window."""
    names = Thresholds.__dataclass_fields__
    thresholds = Thresholds(**{k: v for k, v in more.items() if k in names})
    settings = {k: v for k, v in more.items() if k not in names}
    return list(evaluate(snapshot(*rounds, now=now, **settings), thresholds))


def over_a_minute(first: Engine, last: Engine, target: str = A, **more: Any) -> list[Finding]:
    """One server, one engine, two scrapes 60 s apart."""
    return judge([answer(0, target, first)], [answer(60, target, last)], **more)


def codes(findings: Sequence[Finding]) -> list[str]:
    """Their codes, in their order."""
    assert all(finding.code in CODES for finding in findings)
    return [finding.code for finding in findings]


def only(findings: Sequence[Finding], code: str) -> Finding:
    """The one finding of a code."""
    found = [finding for finding in findings if finding.code == code]
    assert len(found) == 1, codes(findings)
    return found[0]


def zero(k: int = 5, **more: Any) -> Engine:
    """A speculating engine that has just begun."""
    return Engine(gen=0, dt=0, acc=0, dr=0, pos=[0] * k, **more)


def good(n: float = 1000, **more: Any) -> Engine:
    """An engine that drafted 3 tokens `n` times, accepted as Qwen3-8B's EAGLE-3 does."""
    at = [0.65 * n, 0.40 * n, 0.20 * n]
    return Engine(gen=n + sum(at), dt=3 * n, acc=sum(at), dr=n, pos=at, **more)


def begun(engine: Engine) -> Engine:
    """The same engine before it counted anything."""

    def none_yet(value: float | None) -> float | None:
        return None if value is None else 0

    return replace(
        engine,
        gen=none_yet(engine.gen),
        dt=none_yet(engine.dt),
        acc=none_yet(engine.acc),
        dr=none_yet(engine.dr),
        pos=[0] * len(engine.pos),
        counts=dict.fromkeys(engine.counts, 0),
        histograms={
            name: ([(le, 0) for le, _ in buckets], 0.0)
            for name, (buckets, _) in engine.histograms.items()
        },
    )
