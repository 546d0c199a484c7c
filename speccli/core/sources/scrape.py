"""Direct scraping: every engine's own page, one kept-alive connection and one deadline each."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from speccli.core.errors import UsageError
from speccli.core.sources.base import Scrape
from speccli.core.sources.body import BodyBuffer
from speccli.core.sources.identify import identify
from speccli.core.sources.targets import Target

if TYPE_CHECKING:
    import aiohttp

_MAX_REDIRECTS = 3
_MAX_BACKOFF_S = 15.0
_IDENTIFY_EVERY_S = 300.0
_SPREAD_FROM = 16
"""Fleets larger than this have their scrapes spread over the interval."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to be let in."""

    token: str | None = None
    """Bearer token."""
    token_file: Path | None = None
    """File the token is read from, again at every round (mounted tokens rotate)."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    """Client certificate (PEM), with its key in it or in `key_file`."""
    key_file: Path | None = None
    insecure: bool = False
    """Accept any server certificate."""

    def bearer(self) -> str | None:
        """The token to send now.

        Raises:
            UsageError: the token file cannot be read.
        """
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text().strip()
        except OSError as error:
            raise UsageError(
                f"token file {self.token_file}: {error.strerror}", hint="check --token-file"
            ) from error

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings.

        Raises:
            UsageError: a certificate file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            which = self.cert_file or self.ca_file
            raise UsageError(
                f"certificate file {which}: {error.strerror or error}",
                hint="--ca, --cert and --key take PEM files",
            ) from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(slots=True)
class _State:
    """What is remembered of a target between rounds."""

    url: str
    failures: int = 0
    retry_at: float = 0.0
    identified_at: float | None = None


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

    async def scrapes(self) -> list[Scrape]:
        """One round; targets that keep failing are asked less and less often, up to every 15 s."""
        session = self._open()
        bearer = self._access.bearer()
        now = self._clock()
        due = [t for t in self.targets if self._states[t.name].retry_at <= now]
        spread = 0.5 * self.interval_s if len(due) > _SPREAD_FROM and self._rounds else 0.0
        self._rounds += 1
        return await asyncio.gather(*(self._one(session, t, bearer, spread) for t in due))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            needs_tls = any(t.metrics_url.startswith("https") for t in self.targets)
            connector = aiohttp.TCPConnector(
                limit=0,
                limit_per_host=0,
                ssl=self._access.ssl_context() if needs_tls else True,
                ttl_dns_cache=30,
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

    async def _one(
        self, session: aiohttp.ClientSession, target: Target, bearer: str | None, spread: float
    ) -> Scrape:
        state = self._states[target.name]
        if spread:
            await asyncio.sleep(spread * self._jitter())
        try:
            async with asyncio.timeout(self._deadline_s):
                scrape = await self._get(session, target, state, bearer)
        except TimeoutError:
            scrape = self._error(target, f"no answer within {self._deadline_s:g} s")
        except Exception as error:  # noqa: BLE001 - the client's many errors, one word each
            scrape = self._error(target, explain(error))
        self._remember(state, scrape)
        return scrape

    def _remember(self, state: _State, scrape: Scrape) -> None:
        if scrape.error is None:
            state.failures, state.retry_at = 0, 0.0
            return
        state.failures += 1
        state.identified_at = None
        if state.failures > 1:
            pause = min(_MAX_BACKOFF_S, self.interval_s * 2.0 ** min(state.failures - 1, 10))
            state.retry_at = self._clock() + pause * (0.75 + 0.5 * self._jitter())

    async def _get(
        self, session: aiohttp.ClientSession, target: Target, state: _State, bearer: str | None
    ) -> Scrape:
        import aiohttp

        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        auth = aiohttp.BasicAuth(target.user, target.password or "") if target.user else None
        stale_info = self._identify and (
            state.identified_at is None or self._clock() - state.identified_at > _IDENTIFY_EVERY_S
        )
        about = asyncio.create_task(identify(session, target, headers)) if stale_info else None
        url, buffer, truncated = state.url, BodyBuffer(), False
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                async with session.get(
                    url, headers=headers, auth=auth, allow_redirects=False
                ) as response:
                    if response.status in {301, 302, 303, 307, 308}:
                        onward = urljoin(url, response.headers.get("Location", ""))
                        if urlsplit(onward).netloc != urlsplit(url).netloc or onward == url:
                            return self._elsewhere(target, response.status, onward)
                        url = onward
                        continue
                    status = response.status
                    try:
                        async for chunk in response.content.iter_any():
                            buffer.feed(chunk)
                            if buffer.stopped:
                                break
                    except aiohttp.ClientPayloadError:
                        truncated = True
                    break
            else:
                return Scrape(self._clock(), target.name, 310, note="redirects in a circle")
            if status == 200:
                state.url = url
            body, note = buffer.finish()
            info = await about if about and status == 200 else {}
            if about and info:
                state.identified_at = self._clock()
            return Scrape(
                self._clock(),
                target.name,
                status,
                body,
                truncated=truncated or buffer.stopped,
                note=note,
                info=info,
            )
        finally:
            if about and not about.done():
                about.cancel()

    def _elsewhere(self, target: Target, status: int, onward: str) -> Scrape:
        host = urlsplit(onward).netloc or "nowhere"
        return Scrape(self._clock(), target.name, status, note=f"redirects to {host}")

    def _error(self, target: Target, why: str) -> Scrape:
        return Scrape(self._clock(), target.name, error=why)


def explain(error: BaseException) -> str:
    """A connection error in a few words."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        return f"TLS failed: {_last_words(error)} (is it plain http?)"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "name not found"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect refused" if error.errno == 111 else f"connect failed: {error.strerror}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "connection closed without an answer"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"not an HTTP answer: {error.message}"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    if isinstance(error, UsageError):
        raise error
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _certificate(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message or error.reason} (--ca FILE?)"
    return f"certificate not accepted: {error}"


def _last_words(error: BaseException) -> str:
    return str(error).rsplit("[", 1)[-1].rstrip("]")[:80]
