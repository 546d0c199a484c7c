"""Questions to a Prometheus (Thanos, Mimir: the same API), each answered within a deadline.

prometheus-api-client does the asking. What it leaves out is added round it: a wall clock over the
whole answer, a cap on its size, no retries behind the caller's back, no redirect followed to a
login page, the warnings that say an answer is partial, and one error with one hint for each way in
which a far end can fail. Its imports cost a quarter of a second, so they wait for the first
question.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urljoin, urlsplit

from speccli.core.errors import (
    DeadlineError,
    NotAuthorisedError,
    SourceError,
    SpecctlError,
)
from speccli.core.sources.access import Access, Token
from speccli.core.sources.promapi_errors import explain, from_status
from speccli.core.sources.targets import parse_address

if TYPE_CHECKING:
    import requests

T = TypeVar("T")
Word = Literal["MISSING", "NO_TRAFFIC", "PARTIAL"]

MAX_BYTES = 64 * 2**20
_CONNECT_S = 3.0
_MAX_STUCK = 8
"""Questions past their deadline that may still hang in their threads before no more are asked."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[float, str]]
    """Time in Unix seconds and the value as Prometheus wrote it; one of them in a vector."""

    @property
    def value(self) -> float | None:
        """The newest value; None where it is NaN, which is how PromQL says `of nothing`."""
        number = float(self.samples[-1][1])
        return None if math.isnan(number) else number


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    """What Prometheus itself says is wrong with the answer."""

    @property
    def word(self) -> Word | None:
        """What is to be said of the answer as a whole; None when nothing is."""
        if self.warnings:
            return "PARTIAL"
        if not self.series:
            return "MISSING"
        if all(_is_nan(series.samples[-1][1]) for series in self.series if series.samples):
            return "NO_TRAFFIC"
        return None

    @property
    def note(self) -> str | None:
        """What is to be said of a partial or an empty-handed answer, in one line."""
        if self.warnings:
            return f"PARTIAL: {'; '.join(self.warnings)[:200]}"
        return "NO_TRAFFIC: every value is NaN" if self.word == "NO_TRAFFIC" else None


@dataclass(slots=True)
class _Received:
    """What the transport saw of one question."""

    ends: float
    status: int | None = None
    head: bytes = b""
    payload: Any = None


class PrometheusApi:
    """One Prometheus."""

    def __init__(
        self,
        url: str,
        *,
        access: Access | None = None,
        deadline_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`deadline_s`: wall clock for one answer, whatever the far end does.

        Raises:
            UsageError: not a URL, or certificate files that cannot be used.
        """
        address = parse_address(url, what="--prometheus", hint=_HINT)
        self.url = f"{address.scheme}://{address.at}{_base(address.path)}"
        """The base URL without credentials or query: how it is shown."""
        self.asked = 0
        """Questions asked so far."""
        self.server_time: float | None = None
        """Unix seconds by the server's clock when it last answered; None before."""
        self._answered_at = 0.0
        self._access = access or Access()
        self._token = Token(self._access)
        self._deadline_s = deadline_s
        self._clock = clock
        self._basic = None
        if address.user is not None:
            self._basic = (address.user, address.password or "")
        if address.scheme == "https":
            self._access.ssl_context()
        self._client: Any = None
        self._lock = threading.Lock()
        self._calls = threading.local()
        self._stuck = 0

    async def query(self, expression: str, *, at: float | None = None) -> Answer:
        """An instant query; a range selector gives raw samples.

        Args:
            expression: PromQL.
            at: The instant, Unix seconds by the server's clock; None for the server's present.

        Raises:
            SourceError: no usable answer: unreachable, late, not authorised, refused, not PromQL's.
        """
        params = self._params()
        if at is not None:
            params["time"] = f"{at:.3f}"

        def ask() -> None:
            self._connected().custom_query(expression, params=params)

        return await self._in_daemon(lambda: self._ask(ask, present=at is None))

    async def query_range(
        self, expression: str, *, end: float, span_s: float, step_s: float
    ) -> Answer:
        """The values every `step_s` up to `end`, both ends of the span included.

        A subquery would look at whole multiples of its step by the server's clock instead: the
        newest stretch, up to a step long, would be missing.

        Args:
            expression: PromQL.
            end: Unix seconds by the server's clock, to the second below: what is asked for is past.
            span_s: How far back, whole seconds.
            step_s: How far apart, seconds.

        Raises:
            SourceError: no usable answer, as `query`.
        """
        params = self._params()
        last = datetime.fromtimestamp(math.floor(end), UTC)
        span, step = (last - timedelta(seconds=span_s), last), f"{step_s:g}"

        def ask() -> None:
            self._connected().custom_query_range(expression, *span, step, params=params)

        return await self._in_daemon(lambda: self._ask(ask, present=False))

    def now(self) -> float:
        """The present by the server's clock, Unix seconds; this machine's before any answer."""
        if self.server_time is None:
            return time.time()
        return self.server_time + self._clock() - self._answered_at

    async def aclose(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _params(self) -> dict[str, str]:
        """What goes with every question; whether one may be asked at all is told first."""
        self._token.now()  # a token file that cannot be read is told before anything is sent
        if self._stuck >= _MAX_STUCK:
            raise DeadlineError(
                f"{self.url} still owes {self._stuck} answers", hint="is it overloaded?"
            )
        self.asked += 1
        return {"timeout": f"{max(1, int(self._deadline_s * 800))}ms"}

    async def _in_daemon(self, call: Callable[[], T]) -> T:
        """`call` in a thread that nobody has to wait for."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def tell(set_result: Callable[[Any], None], outcome: Any) -> None:
            if not future.done():
                set_result(outcome)
            else:
                self._stuck -= 1

        def work() -> None:
            told: tuple[Callable[[Any], None], Any]
            try:
                told = (future.set_result, call())
            except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                told = (future.set_exception, error)
            try:
                loop.call_soon_threadsafe(tell, *told)
            except RuntimeError:
                self._stuck -= 1  # the loop is closed: nobody waits any more

        threading.Thread(target=work, name="specctl-prometheus", daemon=True).start()
        try:
            async with asyncio.timeout(self._deadline_s):
                return await future
        except TimeoutError:
            self._stuck += 1
            raise self._late() from None
        except asyncio.CancelledError:
            self._stuck += 1
            raise

    def _late(self) -> DeadlineError:
        return DeadlineError(
            f"{self.url} has not answered within {self._deadline_s:g} s",
            hint="a busy Prometheus? Try --deadline 30s, or a narrower --selector",
        )

    # In the thread ------------------------------------------------------------------------------

    def _ask(self, ask: Callable[[], None], *, present: bool) -> Answer:
        """`present`: the instant asked about is the server's own."""
        received = _Received(self._clock() + self._deadline_s)
        self._calls.received = received
        try:
            ask()
        except SpecctlError:
            raise
        except Exception as error:  # noqa: BLE001 - every error of two libraries, one of ours each
            if received.status is None or 300 <= received.status < 400:
                raise explain(error, self.url, self._deadline_s) from error
            if received.payload is None or received.status != 200:
                raise from_status(
                    self.url, received.status, received.head, received.payload
                ) from error
        return self._decoded(received, present=present)

    def _decoded(self, received: _Received, *, present: bool) -> Answer:
        payload = received.payload
        if not isinstance(payload, dict) or not isinstance(payload.get("data"), dict):
            raise from_status(self.url, received.status or 0, received.head, payload)
        data = payload["data"]
        kind, result = data.get("resultType"), data.get("result")
        if kind not in ("vector", "matrix") or not isinstance(result, list):
            raise SourceError(
                f"{self.url} answers with a {kind or 'nothing'} where series were asked for",
                hint="is something other than Prometheus behind this URL?",
            )
        warnings = tuple(str(w) for w in payload.get("warnings") or ())
        try:
            series = tuple(_series(each, kind) for each in result if "histogram" not in each)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SourceError(
                f"{self.url} answers with series that cannot be read: {error!r}",
                hint="is something other than Prometheus behind this URL?",
            ) from error
        if present and kind == "vector" and series:
            self.server_time, self._answered_at = series[0].samples[0][0], self._clock()
        return Answer(series, warnings)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        from prometheus_api_client import PrometheusConnect
        from urllib3.util.retry import Retry

        from speccli.core.sources.promapi_session import session_for

        session = session_for(self._access, self._token, self._basic)
        session.hooks["response"].append(self._receive)
        return PrometheusConnect(
            url=self.url.rstrip("/"),
            session=session,
            retry=Retry(total=0),
            timeout=(min(_CONNECT_S, self._deadline_s), self._deadline_s),
        )

    def _receive(self, response: requests.Response, *_: Any, **__: Any) -> requests.Response:
        """Read the body under the cap and the deadline; refuse to be sent elsewhere."""
        received: _Received = self._calls.received
        received.status = response.status_code
        if response.is_redirect:
            self._redirected(response)
            return response
        body = bytearray()
        for chunk in response.iter_content(1 << 16):
            body += chunk
            if len(body) > MAX_BYTES:
                response.close()
                raise SourceError(
                    f"{self.url} answers with more than {MAX_BYTES >> 20} MB",
                    hint="narrow the pool with --selector, or shorten --window",
                )
            if self._clock() > received.ends:
                response.close()
                raise self._late()
        received.head = bytes(body[:400])
        try:
            received.payload = json.loads(body)
        except ValueError:
            received.payload = None
        payload = received.payload
        response._content = received.head  # parsed: once is enough
        response._content_consumed = True  # type: ignore[attr-defined]
        if payload is not None:
            response.json = lambda **_: payload  # type: ignore[method-assign]
        return response

    def _redirected(self, response: requests.Response) -> None:
        onward = urlsplit(urljoin(response.url, response.headers["location"]))
        here = urlsplit(response.url)
        if (onward.hostname, onward.path) == (here.hostname, here.path):
            return
        response.close()
        raise NotAuthorisedError(
            f"{self.url} redirects to {onward.hostname}{onward.path}: a login page?",
            hint="give --token or --token-file, or the URL behind the login",
        )


_HINT = "a Prometheus URL looks like http://prometheus.monitoring:9090"


def _base(path: str) -> str:
    """The path under which the API lies, given that or a page of it."""
    path = path.rstrip("/")
    for tail in ("/api/v1/query", "/api/v1/query_range", "/api/v1", "/graph"):
        path = path.removesuffix(tail)
    return path


def _series(raw: Mapping[str, Any], kind: str) -> Series:
    pairs = [raw["value"]] if kind == "vector" else raw["values"]
    labels = raw["metric"]
    for pair in pairs[:1]:
        float(pair[0]), float(pair[1])
    return Series(labels, pairs)


def _is_nan(value: str) -> bool:
    return value.lower() == "nan"
