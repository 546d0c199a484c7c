"""The Kubernetes client's way to the wire, with a deadline over each whole call.

The client's own time-outs are for one read of a socket: a server that sends a byte a second, a
name that does not resolve and a plugin that hangs outlast them. A call here is made by a thread
that is left behind when its time is over.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.client import IncompleteRead
from typing import Any, TypeVar
from urllib.parse import urlsplit

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.rest import RESTResponse
from urllib3 import exceptions as wire

from speccli import __version__
from speccli.core.kube.credentials import Credentials
from speccli.core.kube.errors import ClusterError, TimedOut, Unreachable
from speccli.core.sources import tls
from speccli.core.sources.redact import redact_url

T = TypeVar("T")
_SHED = frozenset({429, 503})
_AGAIN_S = 1.0
"""Pause after a 429 that names none."""
_SAFE = frozenset({"GET", "HEAD"})


class Limit:
    """How long a call may still take."""

    def __init__(self, deadline_s: float) -> None:
        """`deadline_s`: from now on."""
        self.deadline_s = deadline_s
        self._ends = time.monotonic() + deadline_s

    @property
    def left(self) -> float:
        """Seconds, 0 at least."""
        return max(0.0, self._ends - time.monotonic())


def within(limit: Limit, work: Callable[[], T], late: Callable[[], ClusterError]) -> T:
    """`work` by a thread nobody waits for longer than this.

    Raises:
        TimedOut: it is not done; or what `work` raises.
    """
    done = threading.Event()
    told: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            told.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="specctl-kube", daemon=True).start()
    if not done.wait(limit.left):
        raise late()
    if failed:
        raise failed[0]
    return told[0]


class Api(ApiClient):  # type: ignore[misc]  # the package is not looked into, see pyproject.toml
    """One cluster's wire; safe to use from several threads."""

    def __init__(self, credentials: Credentials) -> None:
        """Nothing is asked yet."""
        configuration = credentials.configuration
        configuration.retries = False  # each call decides, within its own deadline
        configuration.keep_alive = True
        super().__init__(configuration)
        self.user_agent = f"specctl/{__version__}"
        self.server = credentials.server
        keywords = self.rest_client.pool_manager.connection_pool_kw
        for name in ("ca_certs", "cert_file", "key_file", "ca_cert_data", "cert_reqs"):
            keywords.pop(name, None)
        if credentials.tls is not None:
            keywords["ssl_context"] = credentials.tls
        self.insecure = not configuration.verify_ssl
        self.limits = threading.local()
        """`limit`: that of the call which this thread makes."""

    def hush(self) -> None:
        """No warning of a certificate that is not looked at: the kubeconfig says so."""
        if self.insecure:
            urllib3.disable_warnings(wire.InsecureRequestWarning)

    @property
    def proxy(self) -> str | None:
        """The proxy that is gone through; None where there is none, or this server is exempt."""
        through = getattr(self.rest_client.pool_manager, "proxy", None)
        return str(self.configuration.proxy) if through is not None else None

    def call_api(
        self,
        method: str,
        url: str,
        header_params: Mapping[str, str] | None = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> Any:
        """What the dynamic client sends through."""
        sent = None if body is None else json.dumps(body).encode()
        return self.send(method, url, headers=header_params, body=sent)

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        shed: bool = True,
    ) -> Any:
        """A whole answer, whatever its status, as `RESTResponse`.

        Args:
            method: GET, PATCH, …
            url: Absolute.
            headers: As the client made them.
            body: As it goes out.
            shed: Whether a 429 or 503 with `Retry-After` is asked again, within the deadline.

        Raises:
            Unreachable: there was no answer.
            TimedOut: none in time.
        """
        limit: Limit = self.limits.limit
        again = method in _SAFE
        while True:
            try:
                answer = within(
                    limit,
                    lambda: self._once(method, url, headers, body, limit),
                    lambda: self._late(limit),
                )
            except (wire.ProtocolError, ConnectionError) as error:
                if not again or not limit.left:
                    raise self._unreachable(error) from error
                again = False  # a connection that was kept alive may have ended meanwhile
                continue
            except (wire.HTTPError, OSError, ValueError) as error:
                raise self.broken(error, limit) from error
            pause = _pause(answer) if shed else None
            if pause is None or pause >= limit.left:
                return answer
            time.sleep(pause)

    def open(
        self, url: str, *, headers: Mapping[str, str] | None, idle_s: float
    ) -> urllib3.BaseHTTPResponse:
        """An answer that goes on and on, to be read by whoever asks; close it.

        `idle_s`: how long nothing may come.

        Raises:
            Unreachable: there was no answer.
            TimedOut: none in time.
        """
        limit: Limit = self.limits.limit
        pool: urllib3.PoolManager = self.rest_client.pool_manager
        timeout = urllib3.Timeout(connect=max(0.001, limit.left), read=idle_s)
        try:
            return pool.request(
                "GET",
                url,
                headers=dict(headers or {}),
                timeout=timeout,
                preload_content=False,
                redirect=False,
            )
        except (wire.HTTPError, OSError, ValueError) as error:
            raise self.broken(error, limit) from error

    def broken(self, error: BaseException, limit: Limit) -> ClusterError:
        """What an error of the wire means."""
        late = isinstance(error, wire.TimeoutError) and not isinstance(
            error,
            wire.NewConnectionError,  # which calls itself a time-out too
        )
        return self._late(limit) if late else self._unreachable(error)

    def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        limit: Limit,
    ) -> Any:
        pool: urllib3.PoolManager = self.rest_client.pool_manager
        left = max(0.001, limit.left)
        answer = RESTResponse(
            pool.request(
                method,
                url,
                body=body,
                headers=dict(headers or {}),
                timeout=urllib3.Timeout(connect=left, read=left),
                preload_content=False,
                redirect=False,
            )
        )
        answer.read()
        answer.response.release_conn()
        return answer

    def _late(self, limit: Limit) -> TimedOut:
        return TimedOut(
            f"no answer from the API server {self.server} within {limit.deadline_s:g} s",
            hint="is the VPN up? raise --deadline, or choose another --context",
        )

    def _unreachable(self, error: BaseException) -> Unreachable:
        proxy = self.configuration.proxy
        through = ""
        if proxy and any(isinstance(each, wire.ProxyError) for each in tls.chain(error)):
            through = f" through the proxy {redact_url(proxy)}"
        why, hint = _why(error)
        return Unreachable(f"cannot reach the API server {self.server}{through}: {why}", hint=hint)


def _pause(answer: Any) -> float | None:
    """Seconds to wait before a call is made again; None: it is not."""
    if answer.status not in _SHED:
        return None
    told = answer.headers.get("Retry-After")
    if told is None:
        return _AGAIN_S if answer.status == 429 else None
    try:
        return max(0.05, float(told))
    except ValueError:
        return _AGAIN_S


def _why(error: BaseException) -> tuple[str, str | None]:
    """A connection's failure in a few words, and what to do."""
    every = list(tls.chain(error))
    for each in every:
        if isinstance(each, ssl.SSLCertVerificationError):
            return (
                tls.refusal(each).replace(" (--ca FILE?)", ""),
                "the kubeconfig's certificate-authority must be that of this cluster",
            )
    for each in every:
        if isinstance(each, ssl.SSLError):
            return tls.handshake(each), None
    for each in every:
        if isinstance(each, wire.NameResolutionError | socket.gaierror):
            return "name not found", "is the VPN up? does the cluster still exist?"
    for each in every:
        if isinstance(each, ConnectionRefusedError):
            return "connect refused", "is the cluster running? is the tunnel up?"
    for each in every:
        if isinstance(each, IncompleteRead):
            return "the connection was cut in the middle of an answer", None
    for each in every:
        if isinstance(each, ConnectionResetError | BrokenPipeError):
            return "connection reset", None
        if type(each).__name__ == "RemoteDisconnected":
            return "connection closed without an answer", None
    for each in every:
        if isinstance(each, OSError) and each.strerror:
            return each.strerror, None
    words = " ".join(str(error).split())
    return words[:160] or type(error).__name__, None


def host_of(server: str) -> str:
    """`host:port` of a server's URL."""
    return urlsplit(server).netloc.rpartition("@")[2]
