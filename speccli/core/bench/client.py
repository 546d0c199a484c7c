"""One streamed request, read cheaply: no JSON but that of the last event.

Tokens are the server's own count (`usage` in the last event), never chunks: under speculation a
chunk holds several tokens. An event ends with an empty line, which JSON cannot contain, so
counting those counts events, however the network cuts them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from speccli.core.sources.scrape import explain

if TYPE_CHECKING:
    import aiohttp

_TOKEN = re.compile(rb'"(?:content|text|reasoning|reasoning_content)" ?: ?"(?=[^"])')
"""The beginning of a text that is not empty; quotes inside of a text have a backslash before."""
_PIECES = re.compile(rb'"(?:content|text|reasoning|reasoning_content)" ?: ?"((?:[^"\\]|\\.)*)"')
_SAID = re.compile(rb'"(?:content|text)" ?: ?"((?:[^"\\]|\\.)*)"')
_CUT_OFF = re.compile(rb'"finish_reason" ?: ?"length"')
_LONGEST_TOKEN = 32
"""Bytes that such a beginning has at most."""
_LAST_EVENTS = 3
"""How many events from the end the usage is looked for in."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, ready to be sent."""

    prompt: str
    """The prompt's id."""
    body: bytes
    structured: bool = False
    """Whether the answer is held to a JSON schema."""


@dataclass(slots=True)
class Answer:
    """What came of one request. Times are of `time.perf_counter`, seconds."""

    prompt: str
    due: float
    """When it should have been sent: latencies count from here, a late client included."""
    sent: float = 0.0
    first: float = 0.0
    """When the first token came; 0 if none did."""
    end: float = 0.0
    """When the last token came."""
    arrivals: array[float] = field(default_factory=lambda: array("d"))
    """When each chunk that held tokens came."""
    output_tokens: int = 0
    input_tokens: int = 0
    speculation: Mapping[str, Any] | None = None
    """vLLM's `metrics.speculative_decoding`, where the server gives it."""
    text_sha: str = ""
    text: str | None = None
    error: str | None = None
    """Why it is no answer, in few words; None when it is one."""
    parsed: bool | None = None
    """Whether its text is JSON; None where no schema held it."""
    cut_off: bool = False
    """Whether it ended at the token limit; told of structured ones only."""
    lost: bool = False
    """Whether the server could not be reached, or went away."""

    @property
    def ok(self) -> bool:
        """Whether it was answered in full."""
        return self.error is None

    @property
    def ttft(self) -> float:
        """From when it was due to the first token."""
        return self.first - self.due

    @property
    def e2e(self) -> float:
        """From when it was due to the last token."""
        return self.end - self.due

    @property
    def tpot(self) -> float | None:
        """(e2e - TTFT) / (tokens - 1); None for a single token."""
        return (
            (self.end - self.first) / (self.output_tokens - 1) if self.output_tokens > 1 else None
        )

    def tokens_until(self, time_: float) -> float:
        """How many of its tokens had come by then.

        The first chunk has one token; each later one an equal share of the rest. That is exact but
        for the chunks around `time_`, of which the engine does not tell the tokens.
        """
        if not self.ok or time_ < self.first:
            return 0.0
        if time_ >= self.end:
            return float(self.output_tokens)
        later = len(self.arrivals) - 1
        if later < 1:
            return float(self.output_tokens)
        came = sum(at <= time_ for at in self.arrivals) - 1
        return 1 + (self.output_tokens - 1) * came / later


class Client:
    """Sends requests to one server."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        deadline_s: float,
        keep_texts: bool = False,
    ) -> None:
        """`url`: of the completions endpoint. `deadline_s`: for one whole answer."""
        self._session = session
        self._url = url
        self._deadline_s = deadline_s
        self._keep_texts = keep_texts

    async def ask(self, ask: Ask, due: float | None = None) -> Answer:
        """One request, from its sending to its last byte. Never raises but when cancelled."""
        answer = Answer(ask.prompt, 0.0)
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._stream(ask, answer, due)
        except TimeoutError:
            answer.error = f"no whole answer within {self._deadline_s:g} s"
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            answer.error, answer.lost = explain(error), True
        return answer

    async def _stream(self, ask: Ask, answer: Answer, due: float | None) -> None:
        answer.sent = perf_counter()
        answer.due = answer.sent if due is None else due
        async with self._session.post(
            self._url, data=ask.body, headers=_JSON, allow_redirects=False
        ) as response:
            if response.status != 200:
                answer.error = _refusal(response.status, await response.read())
                return
            stream = _Stream()
            async for data in response.content.iter_any():
                stream.feed(data, perf_counter())
        stream.finish(answer, keep_text=self._keep_texts)
        if ask.structured and answer.ok:
            stream.judge(answer)


_JSON = {"Content-Type": "application/json"}


class _Stream:
    """The bytes of one answer, and when they came."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._times = array("d")
        self._events = array("L")
        """How many events ended with each part."""
        self._carry = b""
        """The end of a part that may hold half an empty line."""
        self._begun = b""
        """The end of a part that may hold the beginning of a text."""
        self._first = 0.0
        self._before = 0
        """Events that ended before the one with the first token."""

    def feed(self, data: bytes, now: float) -> None:
        """Some bytes."""
        self._parts.append(data)
        if not self._first:
            self._look_for_the_first(data, now)
        if data.endswith(b"\n\n") and not self._carry:
            ended = data.count(b"\n\n")
        else:
            ended = self._count(data)
        self._times.append(now)
        self._events.append(ended)

    def _look_for_the_first(self, data: bytes, now: float) -> None:
        whole = self._begun + data
        found = _TOKEN.search(whole)
        if found is not None:
            ended = _ends(self._carry + data[: max(0, found.start() - len(self._begun))])
            self._first, self._before = now, sum(self._events) + ended
        self._begun = whole[-_LONGEST_TOKEN:]

    def _count(self, data: bytes) -> int:
        whole = self._carry + data
        end = max((whole.rfind(mark) + len(mark) for mark in _MARKS if mark in whole), default=0)
        self._carry = whole[end:][-2:]
        return _ends(whole)

    def finish(self, answer: Answer, *, keep_text: bool) -> None:
        """Fill in the answer; what is missing makes it an error."""
        raw = b"".join(self._parts)
        last, trailing = _last_event(raw)
        if last is None:
            answer.error = "the stream has no usage in it" if raw else "an empty answer"
            return
        if "error" in last:
            answer.error = f"error in the stream: {_words(last['error'])}"
            return
        usage = last["usage"]
        answer.output_tokens = int(usage.get("completion_tokens") or 0)
        answer.input_tokens = int(usage.get("prompt_tokens") or 0)
        metrics = last.get("metrics")
        if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
            answer.speculation = metrics["speculative_decoding"]
        if not answer.output_tokens:
            answer.error = "an answer without a token"
            return
        self._place(answer, trailing)
        pieces = b"".join(_PIECES.findall(raw))
        answer.text_sha = hashlib.sha256(pieces).hexdigest()[:16]
        if keep_text:
            answer.text = _unescaped(pieces)

    def judge(self, answer: Answer) -> None:
        """Whether the text, what the model thought apart, is the JSON that was asked for."""
        raw = b"".join(self._parts)
        answer.cut_off = _CUT_OFF.search(raw) is not None
        try:
            json.loads(_unescaped(b"".join(_SAID.findall(raw))))
            answer.parsed = True
        except (ValueError, RecursionError):
            answer.parsed = False

    def _place(self, answer: Answer, trailing: int) -> None:
        """When tokens came: with every event but the first and last ones that hold none."""
        last = sum(self._events) - trailing
        before = self._before if self._first else max(0, min(1, last - 1))
        seen, arrivals = 0, answer.arrivals
        for now, ended in zip(self._times, self._events, strict=True):
            held = min(seen + ended, last) - max(seen, before)
            seen += ended
            for _ in range(held):
                arrivals.append(now)
        if not arrivals:  # one event that came in one part with the usage
            arrivals.append(self._first or self._times[-1])
        answer.first = self._first or arrivals[0]
        answer.end = max(arrivals[-1], answer.first)


_MARKS = (b"\n\n", b"\n\r\n")


def _ends(data: bytes) -> int:
    """Empty lines, which end an event each."""
    return sum(data.count(mark) for mark in _MARKS)


def _last_event(raw: bytes) -> tuple[dict[str, Any] | None, int]:
    """The event with the usage (or an error), and how many events at the end hold no token."""
    lines = [line for line in raw[-_TAIL:].splitlines() if line.startswith(b"data:")]
    trailing = 0
    for line in reversed(lines[-_LAST_EVENTS:]):
        text = line[5:].strip()
        if text == b"[DONE]":
            trailing += 1
            continue
        try:
            event = json.loads(text)
        except ValueError:
            return None, trailing
        if not isinstance(event, dict):
            return None, trailing
        if isinstance(event.get("usage"), dict):
            # Some servers put it into the last event that has tokens.
            return event, trailing + (not event.get("choices"))
        if "error" in event:
            return event, trailing
        trailing += 1
    return None, trailing


_TAIL = 1 << 18
"""The last event may hold a list with an entry a step."""


def _unescaped(pieces: bytes) -> str:
    try:
        return str(json.loads(b'"' + pieces + b'"'))
    except ValueError:
        return pieces.decode("utf-8", "replace")


def _refusal(status: int, body: bytes) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        said = body.decode("utf-8", "replace")
    if isinstance(said, dict):
        said = said.get("error", said.get("detail", said))
    return f"HTTP {status}: {_words(said)}"


def _words(said: Any) -> str:
    if isinstance(said, dict):
        said = said.get("message", said)
    return " ".join(str(said).split())[:160]
