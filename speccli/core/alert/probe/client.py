"""A small OpenAI client: every outcome is a value, an engine that dies included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from speccli.core.sources.scrape import Access, explain

if TYPE_CHECKING:
    import aiohttp

_DYING_S = 8.0
"""vLLM's own watchdog takes 5 s to end a server whose engine died."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one request."""

    status: int | None = None
    """None: no answer."""
    body: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    """Why there is none, or what the server said is wrong."""

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return self.status == 200

    @property
    def choice(self) -> Mapping[str, Any]:
        """The first choice; empty where there is none."""
        choices = self.body.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else {}
        return first if isinstance(first, dict) else {}

    @property
    def text(self) -> str:
        """What was written."""
        message = self.choice.get("message")
        text = message.get("content") if isinstance(message, dict) else self.choice.get("text")
        return text if isinstance(text, str) else ""

    @property
    def tokens(self) -> int:
        """Tokens generated, as the server counts them."""
        usage = self.body.get("usage")
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        return count if isinstance(count, int) else 0

    @property
    def said(self) -> str:
        """`HTTP 400 min_p is not supported`, or why there is no answer."""
        return f"HTTP {self.status} {self.error or ''}".strip() if self.status else str(self.error)


class Client:
    """One server."""

    def __init__(
        self, base_url: str, access: Access, *, deadline_s: float, basic: str | None = None
    ) -> None:
        """`deadline_s`: for one answer; `basic`: an Authorization header that the URL brought."""
        self.url = base_url.rstrip("/")
        self.model = ""
        self.simulated = False
        self._access = access
        self._deadline_s = deadline_s
        self._basic = basic
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open connections."""
        import aiohttp

        headers = {}
        token = self._access.bearer()
        if self._basic or token:
            headers["Authorization"] = self._basic or f"Bearer {token}"
        tls = self.url.startswith("https")
        connector = aiohttp.TCPConnector(ssl=self._access.ssl_context() if tls else True, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close them."""
        if self._session is not None:
            await self._session.close()

    async def meet(self) -> Reply:
        """Ask for the model's name."""
        reply = await self._ask("GET", "/v1/models", None)
        data = reply.body.get("data")
        first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        self.model = str(first.get("id") or "")
        self.simulated = first.get("owned_by") == "specctl-simulator"
        if reply.ok and not self.model:
            return Reply(reply.status, {}, "no model in /v1/models: is it an OpenAI server?")
        return reply

    async def chat(self, text: str, max_tokens: int, **more: Any) -> Reply:
        """One turn; as plain completion where the model has no chat template."""
        reply = await self.converse([{"role": "user", "content": text}], max_tokens, **more)
        if reply.status == 400 and "template" in (reply.error or ""):
            return await self.complete(text, max_tokens, **more)
        return reply

    async def converse(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int, **more: Any
    ) -> Reply:
        """The answer to a conversation, through the model's chat template."""
        what = {"model": self.model, "max_tokens": max_tokens, **more}
        return await self._ask("POST", "/v1/chat/completions", what | {"messages": [*messages]})

    async def complete(self, prompt: str, max_tokens: int, **more: Any) -> Reply:
        """A plain completion."""
        what = {"model": self.model, "max_tokens": max_tokens, "prompt": prompt, **more}
        return await self._ask("POST", "/v1/completions", what)

    async def died(self, *, may_be_dying: bool) -> str | None:
        """Why its engine is dead; None while it lives. A dying one takes some seconds to show."""
        for left in range(int(_DYING_S) if may_be_dying else 0, -1, -1):
            reply = await self._ask("GET", "/health", None, text=True)
            if not reply.ok and reply.status != 404:
                return reply.said
            if left:
                await asyncio.sleep(1.0)
        return None

    async def _ask(
        self, verb: str, path: str, body: Mapping[str, Any] | None, *, text: bool = False
    ) -> Reply:
        assert self._session is not None
        try:
            async with (
                asyncio.timeout(self._deadline_s),
                self._session.request(verb, self.url + path, json=body) as answer,
            ):
                raw = await answer.read()
                status = answer.status
        except TimeoutError:
            return Reply(error=f"no answer within {self._deadline_s:g} s")
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            return Reply(error=explain(error))
        if text:
            return Reply(status)
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return Reply(status if status != 200 else 502, {}, "the answer is not a JSON object")
        return Reply(status, value, None if status == 200 else _message(value))


def _message(value: Mapping[str, Any]) -> str:
    error = value.get("error", value)
    told = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(told or value.get("detail") or "").split())[:200]
