"""How a cluster is asked: credentials that are renewed, kinds that are looked up, answers read."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from speccli.core.kube.credentials import Credentials, Login
from speccli.core.kube.errors import (
    Asked,
    ClusterError,
    Expired,
    NotInstalled,
    refusal,
    status_of,
)
from speccli.core.sources.redact import redact_url

if TYPE_CHECKING:
    from speccli.core.kube.transport import Api, Limit

T = TypeVar("T")
EVERYWHERE = "*"
"""In place of a namespace: all of them."""
_SHORTEST_S = 0.5
"""What a plugin is given at least when the deadline is all but over."""


class Connection:
    """An API server, as one user sees it. Safe to use from several threads."""

    def __init__(self, login: Login, deadline_s: float) -> None:
        """Log in; nothing is asked of the server yet.

        Args:
            login: How credentials are had, now and again.
            deadline_s: For each call, credential plugins included.

        Raises:
            UsageError: no kubeconfig, or one that cannot be used.
            CredentialsError: its credentials could not be had.
        """
        self.deadline_s = deadline_s
        self.fence: Callable[[], None] | None = None
        """Called before everything that may change something; what it raises is raised."""
        self._login = login
        self._lock = threading.Lock()
        self._discovering = threading.RLock()
        self._credentials = login(deadline_s)
        self._api = _transport(self._credentials)
        self._dynamic: Any = None
        self._version: dict[str, Any] = {}

    @property
    def context(self) -> str:
        """Name of the context; `in-cluster` without a kubeconfig."""
        return self._credentials.context

    @property
    def server(self) -> str:
        """Its URL."""
        return self._credentials.server

    @property
    def namespace(self) -> str:
        """The namespace that is meant where none is given."""
        return self._credentials.namespace

    @property
    def version_text(self) -> str:
        """Its version as it calls it itself, `v1.37.2`."""
        return str(self._version.get("gitVersion") or "unknown")

    @property
    def through(self) -> str | None:
        """The proxy that is gone through; None where there is none."""
        return self._api.proxy

    def credentials(self) -> Credentials:
        """What other connections to the same server are made with, renewed if need be."""
        used = self._credentials
        return self.renew(used) if used.stale(datetime.now(UTC)) else used

    def renew(self, used: Credentials, deadline_s: float | None = None) -> Credentials:
        """Newer ones than those that were `used`: read anew, by the plugin where there is one.

        Raises:
            CredentialsError: they could not be had.
        """
        with self._lock:
            if self._credentials is used:  # else another thread was faster
                self._credentials = self._login(deadline_s or self.deadline_s)
                self._api = _transport(self._credentials)
                self._dynamic = None
            return self._credentials

    def _authorised(self, call: Callable[[Api], T], refused: Callable[[T], bool]) -> T:
        """`call`, and once more with newer credentials where they are not accepted."""
        from speccli.core.kube.transport import Limit

        limit = Limit(self.deadline_s)
        used = self._credentials
        if used.stale(datetime.now(UTC)):
            used = self.renew(used, limit.left)
        answer = self._limited(call, limit)
        if not refused(answer):
            return answer
        self.renew(used, max(_SHORTEST_S, limit.left))
        return self._limited(call, limit)

    def _limited(self, call: Callable[[Api], T], limit: Limit) -> T:
        api = self._api
        api.limits.limit = limit
        return call(api)

    def send(
        self,
        method: str,
        path: str,
        asked: Asked,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        content: str = "application/json",
        shed: bool = True,
    ) -> Any:
        """A whole answer, whatever its status."""
        if self.fence is not None and method != "GET":
            self.fence()
        words = {name: value for name, value in (query or {}).items() if value}
        target = f"{path}{'&' if '?' in path else '?'}{urlencode(words)}" if words else path

        def call(api: Api) -> Any:
            given = {"Accept": "application/json, */*", "Content-Type": content, **(headers or {})}
            method_, url, made, sent, _ = api.param_serialize(
                method,
                target,
                header_params=given,
                body=None if isinstance(body, bytes) else body,
                auth_settings=["BearerToken"],
            )
            raw = body if isinstance(body, bytes) else _dumped(sent)
            return api.send(method_, url, headers=made, body=raw, shed=shed)

        return self._authorised(call, lambda answer: bool(answer.status == 401))

    def ask(
        self,
        method: str,
        path: str,
        asked: Asked,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = "application/json",
        kind: str | None = None,
    ) -> dict[str, Any]:
        """The object that is answered.

        `kind`: what lies at the path, where it may be one that is not installed.

        Raises:
            ClusterError: any answer that is not a success.
        """
        answer = self.send(method, path, asked, query=query, body=body, content=content)
        if 200 <= answer.status < 300:
            return loaded(answer.data, asked)
        told = status_of(answer.data)
        if answer.status == 404 and kind and not ((told or {}).get("details") or {}).get("name"):
            self._forget_kinds()
            raise _not_installed(path, kind)
        raise refusal(answer.status, answer.data, asked, headers=answer.headers)

    def lines(
        self, path: str, asked: Asked, *, query: Mapping[str, str], idle_s: float
    ) -> Iterator[bytes]:
        """The lines of an answer that goes on (a watch), as they come.

        It ends where the server ends it, or where nothing has come for `idle_s`.

        Raises:
            ClusterError: it was refused, or cut.
        """
        from urllib3 import exceptions as wire

        words = {name: value for name, value in query.items() if value}

        def call(api: Api) -> Any:
            _, url, made, _, _ = api.param_serialize(
                "GET",
                f"{path}?{urlencode(words)}",
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
            )
            return api.open(url, headers=made, idle_s=idle_s)

        answer = self._authorised(call, lambda answer: bool(answer.status == 401))
        if answer.status != 200:
            raise refusal(answer.status, answer.read(), asked, headers=answer.headers)
        begun = b""
        try:
            for piece in answer.stream(1 << 16, decode_content=True):
                *whole, begun = (begun + piece).split(b"\n")
                yield from whole
        except wire.ReadTimeoutError:
            return
        except (wire.HTTPError, OSError, ValueError) as error:
            raise self._api.broken(error, self._api.limits.limit) from error
        finally:
            answer.close()

    def path(
        self, api_version: str, kind: str, name: str | None, namespace: str | None
    ) -> tuple[str, str | None]:
        """Where an object or a list lies, and the namespace in it."""
        resource = self.resource(api_version, kind)
        if not resource.namespaced:
            return str(resource.path(name=_quoted(name))), None
        place = namespace or self.namespace
        if place == EVERYWHERE:
            return str(resource.path()), None
        return str(resource.path(name=_quoted(name), namespace=_quoted(place))), place

    def resource(self, api_version: str, kind: str) -> Any:
        """What discovery tells of a kind (`kubernetes.dynamic.Resource`).

        Raises:
            NotInstalled: the server knows none of that name.
        """
        from kubernetes.dynamic.exceptions import DynamicApiError, ResourceNotFoundError

        asked = Asked("find", f"the kind {kind} ({api_version})")

        def look(api: Api) -> Any:
            # Without the prefix every group that has a version of that name would be fetched.
            prefix = "apis" if "/" in api_version else "api"
            try:
                with self._discovering:
                    kinds = self._kinds(api)
                    return kinds.get(prefix=prefix, api_version=api_version, kind=kind)
            except ResourceNotFoundError:
                raise _not_installed(api_version, kind) from None
            except DynamicApiError as error:
                return refusal(error.status, _bytes(error.body), asked, headers=error.headers)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise ClusterError(
                    f"cannot {asked}: the API server's list of kinds cannot be read",
                    hint="is what answers an API server? a proxy may stand before it",
                ) from error

        found = self._authorised(look, lambda answer: isinstance(answer, Expired))
        if isinstance(found, ClusterError):
            raise found
        return found

    def _kinds(self, api: Api) -> Any:
        if self._dynamic is None:
            from speccli.core.kube.kinds import dynamic_client

            self._dynamic = dynamic_client(
                api, self._credentials, self.version_text, self._login.environment
            )
        return self._dynamic.resources

    def _forget_kinds(self) -> None:
        """A definition was deleted since it was learned."""
        from speccli.core.kube.transport import Limit

        with self._discovering:
            limit = Limit(self.deadline_s)
            self._limited(lambda api: self._kinds(api).invalidate_cache(), limit)


OPERATORS = {
    "keda.sh": "KEDA",
    "monitoring.coreos.com": "the Prometheus operator",
    "inference.networking.k8s.io": "the Gateway API inference extension",
    "gateway.networking.k8s.io": "the Gateway API",
    "resource.k8s.io": "dynamic resource allocation",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet",
}
"""Who brings the kinds of an API group."""


def _not_installed(api_version: str, kind: str) -> NotInstalled:
    group = next((name for name in OPERATORS if name in api_version), None)
    where = api_version if "/" not in api_version.strip("/") or group is None else group
    if group is None:
        return NotInstalled(
            f"the API server knows no {kind} ({where})", hint="is what brings it installed?"
        )
    return NotInstalled(
        f"{OPERATORS[group]} is not installed: the API server knows no {kind} ({group})",
        hint="install it, or leave out what needs it",
    )


def _transport(credentials: Credentials) -> Api:
    from speccli.core.kube.transport import Api

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # urllib3 warns of what is raised here
            api = Api(credentials)
    except ImportError as error:  # of urllib3, for a SOCKS proxy
        proxy = redact_url(str(credentials.configuration.proxy))
        raise ClusterError(
            f"the proxy {proxy} speaks SOCKS, which needs the PySocks package",
            hint="give an http proxy (proxy-url, HTTPS_PROXY), or install PySocks",
        ) from error
    api.hush()
    return api


def _quoted(name: str | None) -> str | None:
    return None if name is None else quote(name, safe="")


def _dumped(body: Any) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body or "").encode()


def loaded(body: bytes, asked: Asked) -> dict[str, Any]:
    """The JSON object in an answer.

    Raises:
        ClusterError: it is none: a login page, or something else that is no API server.
    """
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        shown = " ".join(body[:80].decode("utf-8", "replace").split())
        raise ClusterError(
            f"cannot {asked}: what answered is no Kubernetes API server ({shown})",
            hint="check the server in the kubeconfig; a proxy or a login page may stand before it",
        )
    return told
