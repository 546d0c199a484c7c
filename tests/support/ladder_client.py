"""Clients that never stop: what they got, phase by phase, whatever happens to the server."""

from __future__ import annotations

import http.client
import json
import math
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and what came of it."""

    phase: str
    at: float
    """When it was sent, by the client's clock."""
    seconds: float
    """To the end of its answer, or of the attempt."""
    prompt: int
    failure: str = ""
    """Empty: it was answered in full."""
    tokens: int = 0
    text: str = ""
    logprobs: Any = None
    first_s: float | None = None
    """To the first piece of the answer; None where it came as a whole."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A phase."""

    phase: str
    seconds: float
    requests: int
    failed: int
    availability: float | None
    """Answered of all, 0..1; None where none was sent."""
    away_s: float
    """The longest time in which no answer came."""
    p50_s: float | None
    p99_s: float | None
    """Of answered requests, by nearest rank."""
    tokens_per_s: float
    failures: dict[str, int] = field(default_factory=dict)
    """How often each was the reason."""


@dataclass
class Client:
    """So many keep-alive connections, each sending prompt after prompt; `with` begins and ends it.

    A request belongs to the phase in which it was sent. A connection that the server closed while
    it was idle is made anew, as clients do; one that breaks under a request has failed it.
    """

    url: str
    """Without a path."""
    prompts: Sequence[str]
    concurrency: int = 2
    max_tokens: int = 32
    model: str | None = None
    """None: the first that the server names, asked at the beginning."""
    stream: bool = False
    body: dict[str, Any] = field(default_factory=dict)
    """More of each request."""
    timeout_s: float = 120.0
    pause_s: float = 0.2
    """After a failure: a server that is away is not asked as fast as a loop can."""
    first_phase: str = "begin"
    clock: Callable[[], float] = time.monotonic
    sent: list[Sent] = field(default_factory=list)
    phases: list[tuple[str, float]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._turn, self._lock = 0, threading.Lock()
        if self.model is None:
            self.model = self._first_model()
        self.phase(self.first_phase)
        self._threads = [
            threading.Thread(target=self._go_on, daemon=True) for _ in range(self.concurrency)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.phases.append(("", self.clock()))

    def phase(self, name: str) -> None:
        """From now on requests are of this phase."""
        self.phases.append((name, self.clock()))

    def answered(self, phase: str | None = None) -> int:
        """How many answers came, of all phases or of one."""
        return sum(not s.failure and phase in {None, s.phase} for s in list(self.sent))

    @property
    def failed(self) -> list[Sent]:
        """Those that got no whole answer."""
        return [each for each in list(self.sent) if each.failure]

    def figures(self) -> list[Figures]:
        """Each phase that requests were sent in, in order; a name may come twice, as one."""
        ends = [*self.phases[1:], ("", self.clock())]
        spans: dict[str, list[tuple[float, float]]] = {}
        for (name, begin), (_, end) in zip(self.phases, ends, strict=True):
            if name:
                spans.setdefault(name, []).append((begin, end))
        return [_figures(name, spans[name], list(self.sent)) for name in spans]

    def _first_model(self) -> str:
        connection = self._connection()
        connection.request("GET", "/v1/models")
        told = json.loads(connection.getresponse().read())
        connection.close()
        return str(told["data"][0]["id"])

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=self.timeout_s)

    def _go_on(self) -> None:
        connection = self._connection()
        while not self._over.is_set():
            with self._lock:
                prompt = self._turn % len(self.prompts)
                self._turn += 1
            sent = self._one(connection, prompt)
            self.sent.append(sent)
            if sent.failure:
                connection.close()
                self._over.wait(self.pause_s)
        connection.close()

    def _one(self, connection: http.client.HTTPConnection, prompt: int) -> Sent:
        phase, began = self.phases[-1][0], self.clock()

        def sent(**more: Any) -> Sent:
            return Sent(phase, began, self.clock() - began, prompt, **more)

        asked = {
            "model": self.model,
            "prompt": self.prompts[prompt],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            **({"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}),
            **self.body,
        }
        try:
            if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
                connection.close()  # nothing was asked, so this is its end
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(asked), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                answer.read()
                return sent(failure=f"HTTP {answer.status}")
            return sent(**(self._pieces(answer, began) if self.stream else _whole(answer.read())))
        except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError) as error:
            return sent(failure=f"{type(error).__name__} {error}".strip())

    def _pieces(self, answer: http.client.HTTPResponse, began: float) -> dict[str, Any]:
        first, text, tokens, whole = None, "", 0, False
        for line in answer:
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                whole = True
            elif data:
                first = first or self.clock() - began
                told = json.loads(data)
                text += "".join(str(choice["text"]) for choice in told["choices"])
                tokens = int((told.get("usage") or {}).get("completion_tokens", tokens))
        if not whole:
            return {"failure": "a stream was cut short"}
        return {"text": text, "tokens": tokens, "first_s": first}


def _whole(body: bytes) -> dict[str, Any]:
    told = json.loads(body)
    choice = told["choices"][0]
    tokens = int(told["usage"]["completion_tokens"])
    return {"text": choice["text"], "tokens": tokens, "logprobs": choice.get("logprobs")}


def _figures(name: str, spans: Sequence[tuple[float, float]], every: Sequence[Sent]) -> Figures:
    own = [each for each in every if each.phase == name]
    good = [each for each in own if not each.failure]
    seconds = sum(end - begin for begin, end in spans)
    took = sorted(each.seconds for each in good)
    answers = sorted(each.at + each.seconds for each in every if not each.failure)
    marks = [[begin, *(at for at in answers if begin < at < end), end] for begin, end in spans]
    gaps = [b - a for each in marks for a, b in zip(each, each[1:], strict=False)]
    return Figures(
        phase=name,
        seconds=seconds,
        requests=len(own),
        failed=len(own) - len(good),
        availability=len(good) / len(own) if own else None,
        away_s=max(gaps, default=0.0),
        p50_s=_rank(took, 0.50),
        p99_s=_rank(took, 0.99),
        tokens_per_s=sum(each.tokens for each in good) / seconds if seconds else 0.0,
        failures=dict(Counter(each.failure for each in own if each.failure)),
    )


def _rank(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    return values[max(0, math.ceil(len(values) * share) - 1)]


def table(figures: Sequence[Figures]) -> str:
    """The phases as a table of Markdown."""
    lines = [
        "| phase | s | requests | failed | availability | longest without an answer, s "
        "| p50, s | p99, s | tok/s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in figures:
        share = "unknown" if each.availability is None else f"{100 * each.availability:.2f} %"
        p50, p99 = ("unknown" if v is None else f"{v:.2f}" for v in (each.p50_s, each.p99_s))
        lines.append(
            f"| {each.phase} | {each.seconds:.0f} | {each.requests} | {each.failed} | {share} "
            f"| {each.away_s:.1f} | {p50} | {p99} | {each.tokens_per_s:.1f} |"
        )
    return "\n".join(lines)


def plain(figures: Sequence[Figures]) -> list[dict[str, Any]]:
    """For a file."""
    return [asdict(each) for each in figures]
