"""One server under test: what it is, what its counters grew by, and whether they are ours alone."""

from __future__ import annotations

import asyncio
import base64
import json
from array import array
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from speccli.core.bench import facts
from speccli.core.bench.client import Client
from speccli.core.errors import NotAuthorisedError, SourceError, UnreachableError
from speccli.core.metrics.counters import Counters
from speccli.core.metrics.reader import Reader
from speccli.core.sources.access import Access
from speccli.core.sources.body import BodyBuffer
from speccli.core.sources.identify import identify
from speccli.core.sources.scrape import explain
from speccli.core.sources.targets import Target
from speccli.core.stats.increase import Increase, Pool
from speccli.core.stats.measures import Subject

if TYPE_CHECKING:
    import aiohttp

_ASK_S = 10.0
_SETTLE_S = 3.0
"""How long the counters may take to show what has been answered."""
_LOOK_S = 0.1
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says it is; None where it does not tell."""

    model: str
    simulated: bool
    max_model_len: int | None
    kind: str | None
    version: str | None
    method: str | None
    k: int | None
    draft: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """The counters of a server at one instant."""

    engines: Mapping[str, Counters]
    reason: str | None = None
    """Why there are none."""

    @property
    def busy(self) -> float:
        """Requests running or waiting, as far as the gauges tell."""
        return sum(
            engine.gauges.get("running", 0.0) + engine.gauges.get("waiting", 0.0)
            for engine in self.engines.values()
        )


@dataclass(frozen=True, slots=True)
class Growth:
    """What a server's counters grew by; `reason` where that cannot be told."""

    subject: Subject | None
    reason: str | None = None

    def sum(self, slot: str) -> float | None:
        """A counter's growth over all engines; None where it is not exposed."""
        sums = None if self.subject is None else self.subject.pool.sums(slot)
        return None if sums is None else sums[0]


class Server:
    """A server, and the connections to it."""

    def __init__(
        self,
        target: Target,
        access: Access,
        *,
        api: str = "chat",
        deadline_s: float = 600.0,
        keep_texts: bool = False,
    ) -> None:
        """`deadline_s`: for one whole answer."""
        self.target = target
        self._access = access
        self._url = target.name + PATHS[api]
        self._deadline_s = deadline_s
        self._keep_texts = keep_texts
        self._reader = Reader()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open connections."""
        import aiohttp

        headers = {"Accept-Encoding": "identity"}
        token = self._access.bearer()
        if self.target.user is not None:
            named = f"{self.target.user}:{self.target.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(named).decode()}"
        elif token:
            headers["Authorization"] = f"Bearer {token}"
        tls = self.target.name.startswith("https")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ssl=self._access.ssl_context() if tls else True,
                keepalive_timeout=4.0,  # uvicorn closes after 5 s
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            read_bufsize=1 << 18,
        )
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

    @property
    def client(self) -> Client:
        """What sends requests to it."""
        return Client(
            self._open, self._url, deadline_s=self._deadline_s, keep_texts=self._keep_texts
        )

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def meet(self) -> Identity:
        """Ask what it is.

        Raises:
            SourceError: it does not answer, lets nobody in, or serves no model.
        """
        card = await self._card()
        told = await identify(self._open, self.target, {})
        page = await self.page()
        kinds = {engine.kind for engine in page.engines.values()}
        versions = {engine.version for engine in page.engines.values()} - {None}
        length = card.get("max_model_len")
        return Identity(
            model=str(card["id"]),
            simulated=card.get("owned_by") == "specctl-simulator",
            max_model_len=length if isinstance(length, int) and length > 0 else None,
            kind=kinds.pop() if len(kinds) == 1 else None,
            version=told.get("version") or (versions.pop() if len(versions) == 1 else None),
            method=told.get("method"),
            k=told.get("k"),
            draft=told.get("draft"),
        )

    async def cache_config(self) -> list[str]:
        """The lines of its metrics that tell how its KV cache is laid out; none where it cannot."""
        try:
            async with (
                asyncio.timeout(_ASK_S),
                self._open.get(self.target.metrics_url) as answer,
            ):
                lines = (await answer.text()).splitlines() if answer.status == 200 else []
        except Exception:  # noqa: BLE001 - page() says why
            return []
        return [line for line in lines if line.startswith(facts.CONFIG)]

    async def _card(self) -> Mapping[str, Any]:
        status, body = await self._get("/v1/models")
        if status in {401, 403}:
            raise NotAuthorisedError(
                f"{self.target.name} answers {status}", hint="give --token-file FILE"
            )
        try:
            card = json.loads(body)["data"][0]
            if status == 200 and isinstance(card["id"], str):
                return dict(card)
        except (ValueError, LookupError, TypeError):
            pass
        raise SourceError(
            f"{self.target.name}/v1/models answers {status} and names no model",
            hint="give the address of an OpenAI-compatible server, http://host:8000",
        )

    async def _get(self, path: str) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(_ASK_S),
                self._open.get(self.target.name + path, allow_redirects=False) as answer,
            ):
                return answer.status, await answer.read()
        except TimeoutError as error:
            raise UnreachableError(
                f"no answer from {self.target.name} within {_ASK_S:g} s", hint="is it up?"
            ) from error
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            raise UnreachableError(
                f"no answer from {self.target.name}: {explain(error)}", hint="is it up?"
            ) from error

    async def gone(self) -> str | None:
        """Why it cannot be asked any more; None while it can."""
        try:
            status, _ = await self._get("/health")
        except SourceError as error:
            return error.message
        return f"{self.target.name}/health answers {status}" if status >= 500 else None

    async def page(self) -> Page:
        """Its counters now."""
        buffer = BodyBuffer()
        try:
            async with (
                asyncio.timeout(_ASK_S),
                self._open.get(self.target.metrics_url) as answer,
            ):
                if answer.status != 200:
                    return Page({}, f"/metrics answers {answer.status}")
                async for chunk in answer.content.iter_any():
                    buffer.feed(chunk)
                    if buffer.stopped:
                        break
        except TimeoutError:
            return Page({}, "/metrics does not answer")
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            return Page({}, f"/metrics: {explain(error)}")
        body, _ = buffer.finish()
        reading = self._reader.read(self.target.name, body, 0.0)
        if not reading.engines:
            return Page({}, f"/metrics: {reading.reason or 'no engine in it'}")
        return Page({engine.engine: engine for engine in reading.engines})

    async def settled(
        self,
        before: Page,
        tokens: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> Page:
        """Its counters once they show the `tokens` that were answered since `before`.

        An engine counts a step a moment before or after it sends it; one that never shows them all
        is not the one that answered.
        """
        page = await self.page()
        for _ in range(int(_SETTLE_S / _LOOK_S)):
            grown = grown_by(before, page).sum("generation_tokens")
            if grown is None or (grown >= tokens and not page.busy):
                break
            await sleep(_LOOK_S)
            page = await self.page()
        return page


def grown_by(before: Page, after: Page) -> Growth:
    """The growth between two pages of one process."""
    if before.reason or after.reason:
        return Growth(None, before.reason or after.reason)
    if before.engines.keys() != after.engines.keys():
        return Growth(None, "engines came or went: several servers behind one address?")
    increases = []
    for name, old in before.engines.items():
        new = after.engines[name]
        if old.started != new.started:
            return Growth(None, "the process changed: a restart, or several behind one address")
        if not old.layout.same_as(new.layout):
            return Growth(None, "its metrics changed: a restart, or several behind one address")
        values = array("d", (b - a for a, b in zip(old.values, new.values, strict=True)))
        if any(values[i] < 0 for i in new.layout.heads):
            return Growth(None, "counters fell: a restart, or several servers behind one address")
        increases.append(Increase(new.layout, values, None))
    engines = tuple(after.engines.values())
    speculating = any("drafts" in engine.layout.names for engine in engines)
    kind = engines[0].kind
    gauges = [engine.gauges for engine in engines]
    return Growth(Subject(Pool(increases), gauges, kind, speculating=speculating))
