"""Broken pages, by the million, through reader, window and measures.

A session is a small fleet over some rounds: processes that obey vLLM's counting laws, restart, come
and go, hide behind one URL; and pages that are cut, garbled, repeated, mixed up or no pages at all.
After every round all that a snapshot says must be possible. A session is made from its seed alone,
so `python -m tests.fuzz.fuzz --seed N --bodies 1` plays it again.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from speccli.core.cost import Pricing
from speccli.core.metrics.reader import Reader
from speccli.core.sources.base import Scrape
from speccli.core.stats.histogram import latency
from speccli.core.stats.measures import Metrics
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window
from speccli.core.values import Latency, Number
from tests.core.pages import ITL, STARTED, TTFT, Engine, Hist, page

VALUES = (
    *("NaN", "+Inf", "-Inf", "0", "-1", "1", "-0.0", "1e3", "1e15", "1e16", "1e308", "-1e308"),
    *("9007199254740992", "9" * 400, "1e-320", "", "x", "1_000", "0x1", "infinity", "1 2", "5 6 7"),
)
JUNK = (
    b"\x00",
    b"\xff",
    b"\n",
    b"\r",
    b'"',
    b"{",
    b"}",
    b"\\",
    b" ",
    b"\t",
    b"#",
    b"<",
    b",",
    b"e9",
)
PAGES = (b"", b"\n", b"<!DOCTYPE html><html>", b"\xef\xbb\xbf", b"{}", b"up 1\n", b"\x00" * 50)
LADDERS = (ITL[:3], ITL[:6], TTFT[:4], (0.0, 1.0), ())


class Impossible(AssertionError):
    """A snapshot says what cannot be."""


# ---- processes ----


@dataclass
class Server:
    """A process and its engines."""

    rng: random.Random
    started: float
    engines: list[Engine] = field(default_factory=list)
    drafted: int = 0
    """Drafts over all processes this server has been."""

    def __post_init__(self) -> None:
        self.boot(self.started)

    def boot(self, at: float) -> None:
        """A new process: counts from zero, perhaps another K."""
        rng, self.started = self.rng, at
        k = rng.choice([0, 1, 2, 3, 3, 5])
        names = [name for name in ("ttft", "itl", "queue", "e2e") if rng.random() < 0.9]
        ladder = rng.choice(LADDERS)
        self.engines = [
            Engine(
                k=k,
                acceptance=rng.choice([0.0, 0.3, 0.7, 1.0]),
                engine=str(i),
                hist={name: Hist(ladder) for name in names},
            )
            for i in range(rng.choice([1, 1, 1, 2]))
        ]

    def serve(self) -> None:
        """Some work."""
        for engine in self.engines:
            before = engine.drafts
            engine.serve(self.rng, self.rng.choice([0, 1, 2, 5]), self.rng.choice([1, 2, 4]))
            self.drafted += engine.drafts - before


# ---- mutations ----


def _line(rng: random.Random, body: bytes, change: Callable[[bytes], list[bytes]]) -> bytes:
    lines = body.split(b"\n")
    i = rng.randrange(len(lines))
    return b"\n".join([*lines[:i], *change(lines[i]), *lines[i + 1 :]])


def _value(rng: random.Random, body: bytes) -> bytes:
    value = rng.choice(VALUES).encode()
    return _line(rng, body, lambda line: [line.rpartition(b" ")[0] + b" " + value])


def _drift(rng: random.Random, body: bytes) -> bytes:
    number = f"{rng.choice([1, 10, 1e6]) * rng.random():g}".encode()
    return _line(rng, body, lambda line: [line.rpartition(b" ")[0] + b" " + number])


def _double(rng: random.Random, body: bytes) -> bytes:
    return _line(rng, body, lambda line: [line, line])


def _drop(rng: random.Random, body: bytes) -> bytes:
    return _line(rng, body, lambda line: [])


def _replace(rng: random.Random, body: bytes) -> bytes:
    other = rng.choice(body.split(b"\n"))
    return _line(rng, body, lambda line: [other])


def _shuffle(rng: random.Random, body: bytes) -> bytes:
    lines = body.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _byte(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + rng.choice(JUNK) + body[at + rng.randrange(3) :]


def _hole(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + body[at + rng.randrange(1, 400) :]


def _cut(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def _stamp(rng: random.Random, body: bytes) -> bytes:
    return body.replace(b"\n", f" {rng.randrange(10**13)}\n".encode())


def _label(rng: random.Random, body: bytes) -> bytes:
    old, new = rng.choice(
        [
            (b'"0"', b'"1"'),
            (b'"m"', b'"n"'),
            (b"engine", b"pid"),
            (b"le=", b"el="),
            (b"+Inf", b"NaN"),
        ]
    )
    return body.replace(old, new, rng.choice([1, 5, -1]))


def _again(rng: random.Random, body: bytes) -> bytes:
    return body + body


def _crlf(rng: random.Random, body: bytes) -> bytes:
    return body.replace(b"\n", b"\r\n")


def _bom(rng: random.Random, body: bytes) -> bytes:
    return b"\xef\xbb\xbf" + body


def _no_page(rng: random.Random, body: bytes) -> bytes:
    return rng.choice([*PAGES, rng.randbytes(rng.randrange(200))])


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(_value, _value, _drift, _drift, _double, _drop, _replace, _shuffle, _byte, _byte, _hole),
    *(_cut, _cut, _stamp, _label, _again, _crlf, _bom, _no_page),
)


# ---- what must hold ----


def check_number(name: str, number: Number) -> None:
    """A number is finite and not negative, or unknown with a reason."""
    value = number.value
    if value is None:
        good = number.state == "unknown" and bool(number.reason)
    else:
        good = number.state != "unknown" and 0 <= value < math.inf
    if not good:
        raise Impossible(f"{name}: {number}")


def check_latency(name: str, found: Latency) -> None:
    """Quantiles are buckets, in order."""
    check_number(f"{name}.mean", found.mean)
    low = 0.0
    for q in (found.p50, found.p95, found.p99):
        if q.state == "unknown":
            good = bool(q.reason)
        else:
            bucket = q.high is None or q.low < q.high or q.high == 0
            good = bucket and low <= q.low < math.inf
            low = q.low
        if not good:
            raise Impossible(f"{name}: {found}")


def check_metrics(metrics: Metrics) -> None:
    """All that may be read off one engine or the fleet."""
    for name in _FIELDS:
        value = getattr(metrics, name)
        if isinstance(value, Number):
            check_number(name, value)
        elif isinstance(value, Latency):
            check_latency(name, value)
        else:
            for number in value:
                check_number(name, number)
    for number in (metrics.acceptance_rate, *metrics.acceptance_by_position):
        if number.value is not None and number.value > 1:
            raise Impossible(f"a ratio of {number}")
    length = metrics.acceptance_length.value
    if length is not None and length < 1:
        raise Impossible(f"an acceptance length of {length}")


_FIELDS = tuple(item.name for item in fields(Metrics))


def check_snapshot(snapshot: Snapshot) -> None:
    """No ratio outside [0, 1], no negative increase, nothing unknown without a reason."""
    check_metrics(snapshot.fleet)
    for engine in snapshot.engines:
        check_metrics(engine.metrics)
        if engine.state != "ok" and not engine.reason:
            raise Impossible(f"{engine.name} is {engine.state} without a reason")
        increase = engine.increase
        if increase is None:
            continue
        if min(increase.values, default=0.0) < 0:
            raise Impossible(f"{engine.name} shrank: {increase}")
        if increase.seconds is not None and increase.seconds <= 0:
            raise Impossible(f"{engine.name} grew in {increase.seconds} s")
    for row in snapshot.by_batch:
        check_latency(f"batch {row.batch}", latency(row.itl, "none"))
        check_latency(f"batch {row.batch}", latency(row.ttft, "none"))
    for point in snapshot.trail[-1:]:
        if point.accepted_tokens > point.draft_tokens:
            raise Impossible(f"more accepted than drafted: {point}")
        grown = (point.draft_tokens, point.accepted_tokens, point.drafts, point.generation_tokens)
        if min(*grown, point.first_tokens, point.decode_steps) < 0:
            raise Impossible(f"a trail that shrinks: {point}")


# ---- sessions ----

TARGETS = ("http://a:8000", "http://b:8000", "http://c:8000")


@dataclass
class Tally:
    """What a run did."""

    bodies: int = 0
    sessions: int = 0
    octets: int = 0
    states: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)

    def look(self, snapshot: Snapshot) -> None:
        """Count what the run has come to see, so that an empty run cannot pass for a good one."""
        for engine in snapshot.engines:
            word = (engine.reason or "").split(":")[0]
            self.states[f"{engine.state} {word}" if word.isupper() else engine.state] += 1
            rate = engine.metrics.acceptance_rate
            self.numbers["a rate" if rate.value is not None else "no rate"] += 1
            self.numbers["resets"] += engine.resets > 0


def session(seed: int, tally: Tally) -> None:
    """One fleet from its beginning to its end.

    Raises:
        Impossible: with what was said.
    """
    rng = random.Random(seed)
    honest = rng.random() < 0.25  # pages are cut, and say so; processes tell their start
    told = honest or rng.random() < 0.7
    settings = Settings(
        window_s=rng.choice([None, 5.0, 30.0]),
        span_s=rng.choice([None, 60.0]),
        pricing=Pricing(rng.choice([None, 0.0, 2.5])),
    )
    window = Window(settings)
    now = STARTED + 10_000.0
    servers = {
        t: Server(rng, now - rng.choice([1, 500])) for t in TARGETS[: rng.choice([1, 1, 2, 3])]
    }
    twin = Server(rng, now - 400.0)
    noise = rng.choice([0.0, 0.1, 0.3, 0.8])
    for _ in range(rng.randrange(3, 16)):
        now += rng.choice([0.5, 1.0, 1.0, 5.0, 70.0])
        scrapes: list[Scrape] = []
        for target, server in servers.items():
            if rng.random() < 0.05:
                server.boot(now - rng.random() * 0.4)
            server.serve()
            source = server
            if not honest and rng.random() < 0.03:
                source = twin
            scrapes.append(_scrape(rng, target, source, now, noise, honest=honest, told=told))
        tally.bodies += len(scrapes)
        tally.octets += sum(len(scrape.body) for scrape in scrapes)
        window.push(scrapes)
        snapshot = window.snapshot(now + rng.choice([0.0, 0.0, 10.0]))
        check_snapshot(snapshot)
        tally.look(snapshot)
        if honest:
            _check_honest(snapshot, servers)
        elif rng.random() < 0.02:
            _check_memory(window, scrapes)
    tally.sessions += 1


def _scrape(
    rng: random.Random,
    target: str,
    server: Server,
    now: float,
    noise: float,
    *,
    honest: bool,
    told: bool,
) -> Scrape:
    at = now - rng.choice([0.0, 0.0, 0.0, 0.2, 40.0 if rng.random() < 0.1 else 0.1])
    if rng.random() < 0.02:
        return Scrape(at, target, error="connect refused")
    engines = server.engines
    if not honest and rng.random() < 0.02:
        engines = engines[1:]
    body = page(*engines, started=server.started if told and rng.random() < 0.99 else None)
    status = rng.choice([401, 307, 500, 404]) if rng.random() < 0.01 else 200
    if honest:
        if rng.random() < noise:
            return Scrape(at, target, status, _cut(rng, body), truncated=True)
        return Scrape(at, target, status, body)
    while rng.random() < noise:
        body = rng.choice(MUTATIONS)(rng, body)
    return Scrape(at, target, status, body, truncated=rng.random() < 0.1)


def _check_honest(snapshot: Snapshot, servers: dict[str, Server]) -> None:
    """Where pages are only cut and processes only restart, no draft is counted that was not."""
    for target, server in servers.items():
        grown = 0.0
        for engine in snapshot.engines:
            increase = engine.increase
            if engine.target == target and increase is not None and not increase.since_start:
                i = increase.layout.index.get("drafts")
                grown += increase.values[i] if i is not None else 0.0
        if grown > server.drafted:
            raise Impossible(f"{grown} drafts counted, {server.drafted} made")


def _check_memory(window: Window, scrapes: list[Scrape]) -> None:
    """What the reader remembers of earlier pages changes nothing."""
    for scrape in scrapes:
        args = (scrape.target, scrape.body, scrape.at)
        fast = window._reader.read(*args, truncated=scrape.truncated)
        exact = Reader().read(*args, truncated=scrape.truncated)
        if (fast.word, fast.reason) != (exact.word, exact.reason):
            raise Impossible(f"{fast} is not {exact}")
        ours, theirs = (
            sorted(
                (c.engine, c.layout.counters, list(c.values), sorted(c.gauges.items())) for c in r
            )
            for r in (fast.engines, exact.engines)
        )
        if ours != theirs:
            raise Impossible(f"{ours} is not {theirs}")


def seeds(first: int) -> Iterator[int]:
    """Seeds from `first` on."""
    while True:
        yield first
        first += 1


def run(first: int, *, bodies: int | None, seconds: float | None, every_s: float = 30.0) -> Tally:
    """Sessions until enough bodies were read or enough time has gone.

    Raises:
        Impossible: with the seed that leads to it.
    """
    tally = Tally()
    began = said = time.monotonic()
    for seed in seeds(first):
        try:
            session(seed, tally)
        except Exception as error:
            raise Impossible(f"seed {seed}: {type(error).__name__}: {error}") from error
        now = time.monotonic()
        if now - said > every_s:
            said = now
            report(tally, now - began)
        if bodies is not None and tally.bodies >= bodies:
            break
        if seconds is not None and now - began >= seconds:
            break
    return tally


def report(tally: Tally, seconds: float) -> None:
    """One line of figures."""
    _say(
        f"{tally.bodies:,} bodies in {tally.sessions:,} sessions, {tally.octets / 1e6:,.0f} MB, "
        f"{seconds:,.0f} s, {tally.bodies / max(seconds, 1e-9):,.0f} bodies/s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--bodies", type=int, help="stop after so many pages")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=1, help="the first session's seed")
    args = parser.parse_args()
    seconds = None if args.minutes is None else 60 * args.minutes
    bodies = 10_000 if args.bodies is None and seconds is None else args.bodies
    began = time.monotonic()
    try:
        tally = run(args.seed, bodies=bodies, seconds=seconds)
    except Impossible as error:
        sys.stderr.write(f"fuzz: {error}\n")
        raise
    report(tally, time.monotonic() - began)
    for title, seen in (("engines seen", tally.states), ("of them", tally.numbers)):
        _say(f"{title}: " + ", ".join(f"{n:,} {what}" for what, n in seen.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
