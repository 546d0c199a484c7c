"""Direct scraping: every engine's own page, one kept-alive connection and one deadline each."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import random
import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from speccli.core.engines.registry import PROCESS_START
from speccli.core.errors import SourceError
from speccli.core.sources import tls
from speccli.core.sources.access import Access, Token
from speccli.core.sources.base import Scrape
from speccli.core.sources.body import BodyBuffer
from speccli.core.sources.flight import Flight
from speccli.core.sources.identify import identify
from speccli.core.sources.redact import redact
from speccli.core.sources.redirects import REDIRECTS, same_server, server_of
from speccli.core.sources.targets import Target

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Access", "ScrapeSource", "explain"]

_MAX_REDIRECTS = 3
_MAX_BACKOFF_S = 15.0
_IDENTIFY_EVERY_S = 300.0
_IDENTIFY_AGAIN_S = 30.0
"""After which a server that told nothing of itself is asked again."""
_SPREAD_FROM = 16
"""Fleets larger than this have their scrapes spread over the interval."""
_PROCESSES = 16
"""Processes behind one address whose start times are remembered."""
_PATIENCE = 0.8
"""Share of the interval that a round waits for its answers; the rest is to count them in."""


@dataclass(slots=True)
class _State:
    """What is remembered of a target between rounds."""

    url: str
    failures: int = 0
    retry_at: float = 0.0
    identify_at: float = 0.0
    processes: deque[bytes] = field(default_factory=lambda: deque(maxlen=_PROCESSES))
    """Start times of the processes that answered, as their pages have them."""


class ScrapeSource:
    """Scrapes `/metrics` of every target at once."""

    simulated = False

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        interval_s: float = 1.0,
        deadline_s: float = 5.0,
        access: Access | None = None,
        identify_engines: bool = True,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`deadline_s`: wall clock for one target's answer, redirects and body included."""
        self.targets = tuple(targets)
        self.interval_s = interval_s
        self._deadline_s = deadline_s
        self._access = access or Access()
        self._identify = identify_engines
        self._clock = clock
        self._jitter = jitter
        self._states = {target.name: _State(target.metrics_url) for target in targets}
        self._session: aiohttp.ClientSession | None = None
        self._rounds = 0
        self._token = Token(self._access)
        self._bearer: str | None = None
        self._flight = Flight()
        self._how: dict[str, Any] = {}
        """More arguments for each request (a proxy)."""

    async def scrapes(self) -> list[Scrape]:
        """One round with every answer, however long the slowest takes (up to the deadline).

        Targets that keep failing are asked less and less often, up to every 15 s.
        """
        self._ask()
        return await self._flight.all()

    async def soon(self) -> list[Scrape]:
        """One round that ends in time for the next: an answer that is late comes with a later one.

        So a target that hangs holds up nobody else, and is asked one thing at a time.
        """
        asked = self._ask()
        return await self._flight.within(_PATIENCE * self.interval_s, asked)

    @property
    def awaited(self) -> tuple[str, ...]:
        """Targets that were asked and of which nothing was handed over yet."""
        return self._flight.awaited

    async def unheard(self) -> list[Scrape]:
        """What has come in, once every target has answered or failed for the first time."""
        return await self._flight.of_awaited()

    def _ask(self) -> list[str]:
        """Ask every target whose time has come and that owes no answer; their names."""
        session = self._open()
        self._bearer = self._token.now()
        due = [
            target
            for target in self.targets
            if target.name not in self._flight and self._is_over(self._states[target.name].retry_at)
        ]
        spread = 0.5 * self.interval_s if len(due) > _SPREAD_FROM and self._rounds else 0.0
        self._rounds += 1
        for target in due:
            self._flight.ask(target.name, self._one(session, target, spread))
        return [target.name for target in due]

    def watch_over(self, targets: Sequence[Target]) -> None:
        """Scrape these from now on; what is known of those that stay is kept."""
        self.targets = tuple(targets)
        wanted = {target.name: target for target in targets}
        for gone in [name for name in self._states if name not in wanted]:
            del self._states[gone]
            self._flight.forget(gone)
        for name, target in wanted.items():
            self._states.setdefault(name, _State(target.metrics_url))

    def ask_now(self, name: str) -> None:
        """Ask a target in the next round, however often it has failed."""
        if (state := self._states.get(name)) is not None:
            state.retry_at = 0.0

    async def aclose(self) -> None:
        """Close the connections."""
        await self._flight.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            connector = aiohttp.TCPConnector(
                limit=0,
                limit_per_host=0,
                ssl=self._tls(),
                ttl_dns_cache=30,
                keepalive_timeout=max(15.0, 3 * self.interval_s),
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Compression saves bytes at the price of CPU on the engine's own event loop.
                headers={"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"},
                max_line_size=1 << 16,
                auto_decompress=True,
            )
        return self._session

    def _tls(self) -> ssl.SSLContext | bool:
        needs_tls = any(t.metrics_url.startswith("https") for t in self.targets)
        return self._access.ssl_context() if needs_tls or self._access.tls else True

    def _is_over(self, time_: float) -> bool:
        """Whether a time has come; one further away than any pause was set by another clock."""
        return not 0 < time_ - self._clock() <= 2 * _IDENTIFY_EVERY_S

    async def _one(self, session: aiohttp.ClientSession, target: Target, spread: float) -> Scrape:
        state = self._states[target.name]
        if spread:
            await asyncio.sleep(spread * self._jitter())
        headers = self._headers(target)
        try:
            async with asyncio.timeout(self._deadline_s):
                scrape = await self._asked(session, target, state.url, headers)
        except TimeoutError:
            scrape = await self._late(target)
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            scrape = await self._unasked(target, error, state.url)
        if scrape.status == 400 and b"HTTPS" in scrape.body[:1000]:  # nginx, Go
            scrape = self._error(target, tls.SPEAKS_TLS)
        self._remember(state, target, scrape)
        if scrape.status == 200 and self._identify and self._is_over(state.identify_at):
            # After the page and on its connection: an engine is asked one thing at a time.
            info = await identify(
                session, target, headers, deadline_s=self._deadline_s, how=self._how
            )
            again = _IDENTIFY_EVERY_S if info else _IDENTIFY_AGAIN_S
            state.identify_at = self._clock() + again
            scrape = replace(scrape, info=info | self._deployed_as(target))
        return scrape

    def _deployed_as(self, target: Target) -> dict[str, str]:  # noqa: ARG002
        """What who deployed it wrote down of it, as facts."""
        return {}

    def _headers(self, target: Target) -> dict[str, str]:
        """How it is told who asks."""
        if target.user is not None:  # what a URL brings is meant for that URL
            named = f"{target.user}:{target.password or ''}".encode()
            return {"Authorization": f"Basic {base64.b64encode(named).decode()}"}
        return {"Authorization": f"Bearer {self._bearer}"} if self._bearer else {}

    async def _asked(
        self, session: aiohttp.ClientSession, target: Target, url: str, headers: dict[str, str]
    ) -> Scrape:
        """One answer; whatever the client raises goes to `_unasked`."""
        return await self._get(session, target, url, headers)

    async def _unasked(self, target: Target, error: Exception, url: str) -> Scrape:
        """What it means that there was no answer."""
        return self._error(target, await _looked_into(error, url))

    async def _late(self, target: Target) -> Scrape:
        """What it means that there was none in time."""
        return self._error(target, f"no answer within {self._deadline_s:g} s")

    def _remember(self, state: _State, target: Target, scrape: Scrape) -> None:
        started = _process_start(scrape.body)
        if started is not None and started not in state.processes:
            if state.processes:
                state.identify_at = 0.0  # another process: it may draft in another way
            state.processes.append(started)
        if scrape.status != 200:
            state.url, state.identify_at = target.metrics_url, 0.0
        if scrape.error is None:
            state.failures, state.retry_at = 0, 0.0
            return
        state.failures += 1
        if state.failures > 1:
            pause = min(_MAX_BACKOFF_S, self.interval_s * 2.0 ** min(state.failures - 1, 10))
            state.retry_at = self._clock() + pause * (0.75 + 0.5 * self._jitter())

    async def _get(
        self, session: aiohttp.ClientSession, target: Target, url: str, headers: dict[str, str]
    ) -> Scrape:
        status = 0
        for _ in range(_MAX_REDIRECTS + 1):
            asking = session.get(url, headers=headers, allow_redirects=False, **self._how)
            async with asking as response:
                status = response.status
                if status not in REDIRECTS:
                    if status == 200:
                        self._learn(target, url)
                    return await self._body(target, response)
                location = response.headers.get("Location")
            if not location:
                return Scrape(self._clock(), target.name, status, note="a redirect to nowhere")
            onward = urljoin(url, location)
            if not same_server(url, onward):
                return Scrape(
                    self._clock(),
                    target.name,
                    status,
                    note=f"redirects to {server_of(onward)}, perhaps a login",
                )
            url = onward
        return Scrape(self._clock(), target.name, status, note="it redirects in a circle")

    def _learn(self, target: Target, url: str) -> None:
        if (state := self._states.get(target.name)) is not None:
            state.url = url

    async def _body(self, target: Target, response: aiohttp.ClientResponse) -> Scrape:
        import aiohttp

        buffer, truncated = BodyBuffer(), False
        try:
            async for chunk in response.content.iter_any():
                buffer.feed(chunk)
                if buffer.stopped:
                    break
        except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError):
            truncated = True
        body, note = buffer.finish()
        return Scrape(
            self._clock(),
            target.name,
            response.status,
            body,
            truncated=truncated or buffer.stopped,
            note=note,
        )

    def _error(self, target: Target, why: str) -> Scrape:
        return Scrape(self._clock(), target.name, error=why)


def _process_start(body: bytes) -> bytes | None:
    """When the process behind a page began, as the page writes it."""
    at = body.find(_NAME)  # a page may have megabytes: no expression is tried at each line of it
    while at >= 0:
        match = _STARTED.match(body, at)
        if match and body[at - 1 : at] in {b"", b"\n"}:
            return match.group(1)
        at = body.find(_NAME, at + 1)
    return None


_NAME = PROCESS_START.encode()
_STARTED = re.compile(_NAME + rb"(?:\{[^\n]{0,2000}\})? {1,8}([0-9.eE+-]{1,40})")


async def _looked_into(error: Exception, url: str) -> str:
    """`explain`, and where TLS may be what went wrong, one more look at the far end."""
    import aiohttp

    garbled = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientResponseError)
    reset = isinstance(error, OSError) and error.errno in _CUT
    doubtful = url.startswith("http:") and (garbled or reset)
    if doubtful and await asyncio.to_thread(tls.speaks_tls, url):
        return tls.SPEAKS_TLS
    why = explain(error)
    if why.startswith(tls.NOT_ACCEPTED) and await asyncio.to_thread(tls.is_expired, url):
        return f"certificate has expired, and is {why.removeprefix('certificate ')}"
    return why


_CUT = frozenset({errno.ECONNRESET, errno.EPIPE})


def explain(error: BaseException) -> str:
    """A connection error in a few words."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        inner = next(
            (
                e
                for e in tls.chain(error)
                if isinstance(e, ssl.SSLError) and not isinstance(e, aiohttp.ClientError)
            ),
            None,
        )
        return tls.handshake(inner) if inner is not None else f"TLS failed: {error.os_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError | UnicodeError):
        return "name not found"
    if isinstance(error, aiohttp.ClientConnectorError):
        return _connection(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "connection closed without an answer"
    if isinstance(error, aiohttp.InvalidURL):
        return "the address is not a URL that can be asked"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"not an HTTP answer: {error.message.splitlines()[0][:80] if error.message else ''}"
    if isinstance(error, OSError):
        return _connection(error)
    words = redact(str(error)).splitlines()
    return f"{type(error).__name__}: {words[0][:120]}" if words else type(error).__name__


def _connection(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "connect refused"
    if error.errno in _CUT:
        return "connection reset"
    return f"connect failed: {os.strerror(error.errno) if error.errno else error}"


def _certificate(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return tls.refusal(error)
    return f"certificate not accepted: {error}"
