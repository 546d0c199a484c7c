"""What one server answers to a close look: name, TLS, four scrapes on connections of their own.

Facts only; `server` says what they mean. Nothing raises, and nothing outlives its deadline.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from speccli.core.metrics.counters import Counters
from speccli.core.metrics.reader import Reader
from speccli.core.sources.base import Scrape
from speccli.core.sources.body import BodyBuffer
from speccli.core.sources.certificate import expiry
from speccli.core.sources.scrape import Access, ScrapeSource
from speccli.core.sources.targets import Target
from speccli.core.stats.snapshot import EngineSnapshot
from speccli.core.stats.window import Settings, Window

T = TypeVar("T")
_AGAIN = 3
"""More scrapes after the first, each on a new connection: a load balancer may send it elsewhere."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a TLS handshake went."""

    accepted: bool
    reason: str | None = None
    """Why the certificate was not accepted, or why there was no handshake."""
    expires: datetime | None = None
    """When the certificate ends; None where it could not be had or read."""


@dataclass(frozen=True, slots=True)
class Look:
    """One more scrape, as the clock and the wire saw it."""

    seconds: float
    """From the request to the last byte, connection included."""
    size: int
    """Bytes of the body."""
    skew_s: float | None
    """The server's clock minus this one's, by its Date header; None where it sends none."""
    skew_error_s: float
    """How far off `skew_s` may be: Date has whole seconds, and the answer takes time."""
    engines: tuple[Counters, ...] = ()


@dataclass(slots=True)
class Visit:
    """What is known of a server; fields that were not reached keep their defaults."""

    target: Target
    deadline_s: float
    insecure: bool = False
    addresses: tuple[str, ...] = ()
    unresolved: str | None = None
    """Why its name gave no address."""
    tls: Tls | None = None
    """None over plain http."""
    scrape: Scrape | None = None
    engines: tuple[EngineSnapshot, ...] = ()
    """As `status` would show them after one scrape."""
    counters: tuple[Counters, ...] = ()
    looks: list[Look] = field(default_factory=list)
    finished: bool = False
    """False where the deadline cut the visit short."""


async def visit(
    target: Target, access: Access, *, deadline_s: float, method: str | None = None
) -> Visit:
    """Look closely at one server; `deadline_s` for each step of it."""
    seen = Visit(target, deadline_s, insecure=access.insecure)
    try:
        seen.addresses, seen.unresolved = await resolve(target.host, target.port, deadline_s)
        if seen.addresses:
            await _converse(seen, access, method)
        seen.finished = True
    except asyncio.CancelledError:  # the deadline of the whole: what is known so far still counts
        return seen
    return seen


async def _converse(seen: Visit, access: Access, method: str | None) -> None:
    target = seen.target
    if target.name.startswith("https"):
        seen.tls = await shake_hands(target.host, target.port, access, seen.deadline_s)
        if not seen.tls.accepted:
            return
    source = ScrapeSource([target], deadline_s=seen.deadline_s, access=access)
    try:
        (seen.scrape,) = await source.scrapes()
    finally:
        await source.aclose()
    window = Window(Settings(method=method))
    window.push([seen.scrape])
    seen.engines = window.snapshot().engines
    if seen.scrape.error is not None or seen.scrape.status != 200:
        return
    reader = Reader()
    seen.counters = reader.read(target.name, seen.scrape.body, seen.scrape.at).engines
    for _ in range(_AGAIN):
        look = await _look(target, access, seen.deadline_s, reader)
        if look is not None:
            seen.looks.append(look)


async def _look(target: Target, access: Access, deadline_s: float, reader: Reader) -> Look | None:
    """One scrape on a connection of its own; None where it failed."""
    import aiohttp

    bearer = access.bearer()
    headers = {"Accept-Encoding": "identity"}
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    auth = aiohttp.BasicAuth(target.user, target.password or "") if target.user else None
    tls = access.ssl_context() if target.name.startswith("https") else True
    began, wall = time.monotonic(), time.time()
    try:
        async with (
            asyncio.timeout(deadline_s),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None),
            ) as session,
            session.get(target.metrics_url, headers=headers, auth=auth) as response,
        ):
            answered = time.monotonic() - began
            buffer = BodyBuffer()
            async for chunk in response.content.iter_any():
                buffer.feed(chunk)
                if buffer.stopped:
                    break
            date = response.headers.get("Date")
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None
    seconds = time.monotonic() - began
    body, _ = buffer.finish()
    skew, error = skew_of(date, wall, answered)
    reading = reader.read(target.name, body, wall + seconds)
    return Look(seconds, buffer.size, skew, error, reading.engines)


def skew_of(date: str | None, sent: float, answered_s: float) -> tuple[float | None, float]:
    """The server's clock minus ours, and the error of that, seconds.

    The header was written at some moment between the request and the answer, and cut to a whole
    second.
    """
    error = 0.5 + answered_s / 2
    try:
        told = parsedate_to_datetime(date or "")
    except (TypeError, ValueError):
        return None, error
    if told.tzinfo is None:
        told = told.replace(tzinfo=UTC)
    return told.timestamp() + 0.5 - (sent + answered_s / 2), error


async def resolve(host: str, port: int, deadline_s: float) -> tuple[tuple[str, ...], str | None]:
    """Addresses of a name, or why there are none. A resolver that hangs is left behind."""

    def ask() -> tuple[str, ...]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))

    try:
        async with asyncio.timeout(deadline_s):
            return await in_daemon(ask), None
    except TimeoutError:
        return (), f"the resolver has not answered within {deadline_s:g} s"
    except socket.gaierror as error:
        return (), f"name not found: {error.strerror or error}"
    except (OSError, UnicodeError) as error:
        return (), f"name not found: {error}"


async def shake_hands(host: str, port: int, access: Access, deadline_s: float) -> Tls:
    """A TLS handshake as scrapes do it, and the certificate's end whether accepted or not."""
    context = access.ssl_context()
    try:
        certificate = await _certificate(host, port, context, deadline_s)
    except ssl.SSLCertVerificationError as error:
        anyway = ssl.create_default_context()
        anyway.check_hostname, anyway.verify_mode = False, ssl.CERT_NONE
        reason = error.verify_message or str(error.reason)
        try:
            certificate = await _certificate(host, port, anyway, deadline_s)
        except (OSError, TimeoutError):
            certificate = None
        return Tls(False, reason, expiry(certificate))
    except TimeoutError:
        return Tls(False, f"no handshake within {deadline_s:g} s")
    except ssl.SSLError as error:
        return Tls(False, f"no TLS here ({error.reason or error})")
    except OSError as error:
        return Tls(False, "connect refused" if error.errno == 111 else str(error.strerror or error))
    return Tls(True, expires=expiry(certificate))


async def _certificate(
    host: str, port: int, context: ssl.SSLContext, deadline_s: float
) -> bytes | None:
    async with asyncio.timeout(deadline_s):
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
        session: ssl.SSLObject = writer.get_extra_info("ssl_object")
        certificate = session.getpeercert(binary_form=True)
        writer.transport.abort()
        return certificate


async def in_daemon(call: Callable[[], T]) -> T:
    """`call` in a thread that neither the loop nor the process waits for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(outcome: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            outcome(value)

    def work() -> None:
        try:
            told: tuple[Callable[[Any], None], Any] = (future.set_result, call())
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            told = (future.set_exception, error)
        try:
            loop.call_soon_threadsafe(tell, *told)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="specctl-doctor", daemon=True).start()
    return await future
