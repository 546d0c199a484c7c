"""The OpenAI side of a simulated server: requests that queue in its engine and obey its pace."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from speccli.core.sim.config import PREFIX
from speccli.core.sim.engine import SimEngine
from speccli.core.sim.fleet import Replica
from speccli.core.sim.request import QueueFullError, SimRequest

FINGERPRINT: Final = "SIMULATED"
# fmt: off
_WORDS: Final = (
    "a", "simulated", "answer", "is", "made", "of", "words", "that", "no", "model", "ever", "wrote",
)
# fmt: on
_numbers = itertools.count(1)


class RefusedError(Exception):
    """The request cannot be served; carries the HTTP status and vLLM's error type."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def response(self) -> web.Response:
        """Return the error as vLLM words it."""
        error = {"message": str(self), "type": self.kind, "param": None, "code": self.status}
        return web.json_response({"error": error}, status=self.status)


@dataclass(frozen=True, slots=True)
class Ask:
    """A completion request, understood."""

    chat: bool
    model: str
    prompt_tokens: int
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool


def _bad(message: str) -> RefusedError:
    return RefusedError(400, "BadRequestError", message)


def _count_tokens(text: object) -> int:
    if isinstance(text, str):
        return math.ceil(len(text) / 4)
    if isinstance(text, list):
        return sum(_count_tokens(part) if isinstance(part, (str, list)) else 1 for part in text)
    raise _bad("the prompt must be text or a list of token ids")


def _text_of(content: object) -> str:
    """Of a message: text, or parts of which some are text."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def understand(body: object, *, chat: bool, model: str) -> Ask:
    """Read a request body.

    Raises:
        RefusedError: With what vLLM would answer.
    """
    if not isinstance(body, dict):
        raise _bad("the body must be a JSON object")
    wanted = body.get("model", model)
    if wanted not in (model, model.removeprefix(PREFIX)):
        raise RefusedError(404, "NotFoundError", f"The model `{wanted}` does not exist.")
    if body.get("n", 1) != 1:
        raise _bad("the simulator answers n=1 only")
    if chat:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise _bad("messages must be a list with at least one message")
        said = [_text_of(part.get("content")) for part in messages if isinstance(part, dict)]
        prompt = sum(_count_tokens(text) + 4 for text in said)
    else:
        prompt = _count_tokens(body.get("prompt", ""))
    limit = body.get("max_completion_tokens", body.get("max_tokens", None if chat else 16))
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise _bad(f"max_tokens must be at least 1, got {limit}")
    options = body.get("stream_options") or {}
    return Ask(
        chat=chat,
        model=model,
        prompt_tokens=max(1, prompt),
        max_tokens=limit,
        ignore_eos=bool(body.get("ignore_eos", False)),
        stream=bool(body.get("stream", False)),
        include_usage=bool(isinstance(options, dict) and options.get("include_usage")),
    )


def spec_metrics(request: SimRequest, engine: SimEngine) -> dict[str, Any] | None:
    """Return the per-request block about speculation, when the engine is set to give it."""
    mode, k = engine.config.per_request_metrics, engine.config.k
    if mode is None or not k:
        return None
    steps = request.accepted
    accepted, drafted = sum(steps), len(steps) * k
    block: dict[str, Any] = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else 0.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [steps.count(length) for length in range(k + 1)],
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
    }
    if mode == "detailed":
        block |= {"per_step_accepted": list(steps), "per_step_drafted": [k] * len(steps)}
    return {"speculative_decoding": block}


class _Answer:
    """The words of one answer, in the shape of either endpoint."""

    def __init__(self, ask: Ask) -> None:
        number = next(_numbers)
        self._ask = ask
        self._head = {
            "id": f"{'chatcmpl' if ask.chat else 'cmpl'}-simulated-{number}",
            "created": int(time.time()),
            "model": ask.model,
            "system_fingerprint": FINGERPRINT,
        }
        self.tokens = 0

    def words(self, new: int) -> str:
        start, self.tokens = self.tokens, self.tokens + new
        return "".join(f" {_WORDS[at % len(_WORDS)]}" for at in range(start, start + new))

    def usage(self) -> dict[str, int]:
        prompt = self._ask.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.tokens,
            "total_tokens": prompt + self.tokens,
        }

    def chunk(self, text: str | None, reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
        if not self._ask.chat:
            choice["text"] = text or ""
            return {**self._head, "object": "text_completion", "choices": [choice]}
        choice["delta"] = (
            {"role": "assistant", "content": ""} if text is None else {"content": text}
        )
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def last_chunk(self, metrics: dict[str, Any] | None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._ask.chat else "text_completion"
        body = {**self._head, "object": kind, "choices": [], "usage": self.usage()}
        return body if metrics is None else {**body, "metrics": metrics}

    def whole(self, text: str, reason: str, metrics: dict[str, Any] | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
        if self._ask.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        kind = "chat.completion" if self._ask.chat else "text_completion"
        body = {**self._head, "object": kind, "choices": [choice], "usage": self.usage()}
        return body if metrics is None else {**body, "metrics": metrics}


class Desk:
    """Takes requests to a server's engines and keeps those engines moving while any is there."""

    def __init__(self, replica: Replica, time_scale: float) -> None:
        self._replica = replica
        self._scale = time_scale
        self._turn = itertools.count()
        self._pumps: dict[int, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Stop moving engines."""
        for pump in self._pumps.values():
            pump.cancel()
        await asyncio.gather(*self._pumps.values(), return_exceptions=True)

    async def answer(self, http: web.Request, *, chat: bool) -> web.StreamResponse:
        """Serve one completion request from the queue to its last token."""
        config = self._replica.config
        try:
            ask = understand(await http.json(), chat=chat, model=config.model)
            engine = self._choose()
            steps: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()
            request = self._submit(engine, ask, steps)
        except json.JSONDecodeError as error:
            return _bad(f"the body is not JSON: {error}").response()
        except RefusedError as error:
            return error.response()
        try:
            if ask.stream:
                return await self._stream(http, ask, engine, request, steps)
            return await self._whole(ask, engine, request, steps)
        finally:
            engine.abort(request)

    def _choose(self) -> SimEngine:
        engines = self._replica.engines
        engine = engines[next(self._turn) % len(engines)]
        if not isinstance(engine, SimEngine):
            raise RefusedError(
                501,
                "NotImplementedError",
                "a fluid engine follows no requests: build with fluid=False",
            )
        return engine

    def _submit(
        self, engine: SimEngine, ask: Ask, steps: asyncio.Queue[tuple[int, bool]]
    ) -> SimRequest:
        engine.advance()
        config = engine.config
        room = config.max_model_len - ask.prompt_tokens
        asked = room if ask.max_tokens is None else ask.max_tokens
        natural = max(1, round(engine.rng.gauss(1.0, 0.3) * config.traffic.output_mean))
        output = asked if ask.ignore_eos else min(asked, natural)
        try:
            request = engine.submit(
                ask.prompt_tokens,
                output,
                max_tokens=asked,
                reason="length" if output == asked else "stop",
                listener=lambda _at, new, last: steps.put_nowait((new, last)),
            )
        except QueueFullError:
            raise RefusedError(503, "ServiceUnavailableError", "the queue is full") from None
        except ValueError as error:
            raise _bad(str(error)) from None
        pump = self._pumps.get(id(engine))
        if pump is None or pump.done():
            self._pumps[id(engine)] = asyncio.create_task(self._move(engine))
        return request

    async def _move(self, engine: SimEngine) -> None:
        """Advance an engine at each end of a step while somebody listens."""
        while engine.listeners:
            engine.advance()
            ahead = (engine.next_event_at - engine.clock()) / self._scale
            await asyncio.sleep(min(max(ahead, 0.0), 0.1))

    async def _whole(
        self,
        ask: Ask,
        engine: SimEngine,
        request: SimRequest,
        steps: asyncio.Queue[tuple[int, bool]],
    ) -> web.Response:
        answer, text, last = _Answer(ask), "", False
        while not last:
            new, last = await steps.get()
            text += answer.words(new)
        if request.reason == "error":
            return RefusedError(500, "InternalServerError", "the engine is gone").response()
        body = answer.whole(text, request.reason, spec_metrics(request, engine))
        return web.json_response(body)

    async def _stream(
        self,
        http: web.Request,
        ask: Ask,
        engine: SimEngine,
        request: SimRequest,
        steps: asyncio.Queue[tuple[int, bool]],
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        answer, last = _Answer(ask), False

        async def send(event: dict[str, Any]) -> None:
            await response.write(f"data: {json.dumps(event)}\n\n".encode())

        began = False
        while not last:
            new, last = await steps.get()
            if ask.chat and not began:  # vLLM too has nothing to say before the first token
                await send(answer.chunk(None, None))
                began = True
            await send(answer.chunk(answer.words(new), request.reason if last else None))
        if ask.include_usage:
            await send(answer.last_chunk(spec_metrics(request, engine)))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response
