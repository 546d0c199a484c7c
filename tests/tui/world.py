"""A small fleet for the screen: exact counts, a clock moved by hand, a source fed by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any

from textual.pilot import Pilot

from speccli.core.cost import Pricing
from speccli.core.poll import Poller
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Event, Snapshot
from speccli.core.stats.window import Settings, Window
from tests.core.pages import Engine, page
from tui.app import TopApp
from tui.palette import Palette

START = 1_795_975_219.0
"""2026-11-29 18:00:19 UTC."""
FULL = (0.75, 0.55, 0.40)
"""Acceptance by position of a healthy engine."""


@dataclass
class Server:
    """One server and what befalls it."""

    url: str
    engine: Engine = field(default_factory=lambda: Engine(k=3, model="llama-70b"))
    by_position: Sequence[float] = FULL
    busy: bool = True
    error: str | None = None
    status: int = 200
    started: float = START - 3600
    batch: int = 8
    waiting: int = 0
    first: int = 4
    """Requests that begin, and end, in a second."""
    queue_s: float = 0.02
    sglang: float | None = None
    """It is an SGLang, whose acceptance length is this gauge."""

    def second(self) -> None:
        """One second of traffic: ten steps."""
        if not self.busy:
            self.engine.running = self.engine.waiting = 0.0
            return
        engine, drafts = self.engine, 100 * self.batch // 8
        engine.running, engine.waiting, engine.kv = float(self.batch), float(self.waiting), 0.25
        engine.steps += drafts // self.batch
        engine.drafts += drafts if engine.k else 0
        kept = [round(drafts * share) for share in self.by_position[: engine.k]]
        engine.accepted = [a + b for a, b in zip(engine.accepted, kept, strict=True)]
        engine.generation += drafts + sum(kept) + self.first
        engine.prompt += 2000
        engine.finished["stop"] += self.first
        engine.hist["itl"].observe(0.02, drafts)
        engine.hist["ttft"].observe(0.09, self.first)
        engine.hist["tpot"].observe(0.012, self.first)
        engine.hist["e2e"].observe(2.2, self.first)
        engine.hist["queue"].observe(self.queue_s, self.first)

    def restart(self, at: float) -> None:
        """A new process: counts begin again."""
        self.engine, self.started = Engine(k=self.engine.k, model=self.engine.model), at

    def scrape(self, at: float) -> Scrape:
        """What asking it gives."""
        if self.error is not None:
            return Scrape(at, self.url, error=self.error)
        info = {"version": "0.32.0", "method": "eagle3" if self.engine.k else "none"}
        body = page(self.engine, started=self.started) if self.status == 200 else b"no"
        if self.sglang is not None:
            info, body = {"version": "0.5.23", "method": "eagle"}, self._sglang_page()
        return Scrape(at, self.url, self.status, body, info=info)

    def _sglang_page(self) -> bytes:
        engine, labels = self.engine, f'model_name="{self.engine.model}"'
        gauges = {
            "num_running_reqs": engine.running,
            "num_queue_reqs": engine.waiting,
            "token_usage": engine.kv,
            "spec_accept_length": self.sglang,
            "spec_num_draft_tokens": 4,
        }
        lines = [f"sglang:{name}{{{labels}}} {value}" for name, value in gauges.items()]
        for name, value in (("generation", engine.generation), ("prompt", engine.prompt)):
            lines.append(f"sglang:{name}_tokens_total{{{labels}}} {value}")
        for part, name in (
            ("ttft", "time_to_first_token_seconds"),
            ("e2e", "e2e_request_latency_seconds"),
            ("queue", "queue_time_seconds"),
        ):
            lines += engine.hist[part].lines(f"sglang:{name}", labels)
        return ("\n".join([*lines, f"process_start_time_seconds {self.started}"]) + "\n").encode()


class World:
    """Servers, time, and the window over them."""

    def __init__(self, count: int = 3, *, window_s: float = 60.0, price: float | None = 2.5):
        self.at = START
        self.servers = [Server(f"http://10.0.0.{i + 4}:8000") for i in range(count)]
        pricing = Pricing(price, 1, 2.4 if price else None)
        self.window = Window(Settings(window_s=window_s, pricing=pricing))

    def clock(self) -> float:
        """Now."""
        return self.at

    def round(self) -> list[Scrape]:
        """A second passes, and every server is asked."""
        self.at += 1
        for server in self.servers:
            server.second()
        return [server.scrape(self.at) for server in self.servers]

    def run(self, seconds: int) -> Snapshot:
        """Rounds, and the snapshot after the last one."""
        for _ in range(seconds):
            self.window.push(self.round())
        return self.window.snapshot(self.at)


@dataclass(frozen=True)
class Found:
    """A finding."""

    code: str
    severity: str
    subject: str
    evidence: str = "0.31 < 0.40, n 3,000"
    cause: str = "the draft no longer matches the target"
    action: str = "compare the revisions of draft and target"
    since: float | None = None


PWN = "\x1b]0;pwn\x07\x9b2J\u202e"
"""What sets a terminal's title, clears it, and turns text round."""


def hostile(snapshot: Snapshot) -> Snapshot:
    """The snapshot, PWN in every text that comes from a server, a page or a recording."""
    engines = []
    for engine in snapshot.engines:
        said: dict[str, Any] = {n: f"{getattr(engine, n) or ''}{PWN}" for n in FOREIGN}
        said["sources"] = {field: f"{name}{PWN}" for field, name in engine.sources.items()}
        engines.append(replace(engine, **said))
    events = (Event(snapshot.at, f"a{PWN}", f"b{PWN}", "warning"),)
    return replace(snapshot, engines=tuple(engines), events=events, note=PWN, unbinned=PWN)


FOREIGN = ("target", "engine", "model", "version", "method", "draft", "reason")


def pwned(code: str = "LOW_ACCEPTANCE", severity: str = "critical", subject: str = "a") -> Found:
    """A finding that quotes a server."""
    return Found(code, severity, f"{subject}{PWN}", f"e{PWN}", f"c{PWN}", f"d{PWN}")


class ScriptedSource:
    """A source the test feeds by hand, so nothing happens until the test says so."""

    interval_s = 1.0
    simulated = False

    def __init__(self) -> None:
        self.targets = ("http://10.0.0.4:8000",)
        self.closed = False
        self.asked = 0
        self._queue: asyncio.Queue[list[Scrape] | Exception | None] = asyncio.Queue()

    def emit(self, item: list[Scrape] | Exception | None) -> None:
        """What the next round gives."""
        self._queue.put_nowait(item)

    async def scrapes(self) -> list[Scrape] | None:
        """Wait for the test."""
        self.asked += 1
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise item
        return item

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed = True


async def no_sleep(_seconds: float, _wake: asyncio.Event) -> None:
    """The pause between two rounds, which the source makes by itself here."""
    await asyncio.sleep(0)


def wired(world: World, source: ScriptedSource, **rest: object) -> TopApp:
    """An app on a scripted source."""
    poller = Poller(source, world.window, clock=world.clock, sleep=no_sleep, now=world.clock)
    return plain_app(world, poller, sleep=no_sleep, **rest)


def plain_app(world: World, poller: Poller | None = None, **rest: object) -> TopApp:
    """An app with the world's clock, one palette and UTC."""
    return TopApp(
        poller,
        clock=world.clock,
        tz=UTC,
        palette=Palette("256"),
        **rest,  # type: ignore[arg-type]
    )


async def until(
    pilot: Pilot[None], condition: Callable[[], bool], patience_s: float = 60.0
) -> None:
    """Wait for a condition, never for a duration."""
    ends = time.monotonic() + patience_s
    while not condition():
        shown = text_of(pilot.app)
        assert time.monotonic() < ends, f"the screen never reached the expected state:\n{shown}"
        await pilot.pause()


def text_of(app: object) -> str:
    """What stands on the screen in front."""
    assert isinstance(app, TopApp)
    from speccli.core.views.text import plain
    from tui.widgets.lines import Lines

    rows = [plain(each).rstrip() for w in app.screen.query(Lines) for each in w.lines]
    return "\n".join(rows)
