"""One cluster: what is asked of its API server, as dicts, each call within a deadline.

Over the `kubernetes` package's configuration and dynamic client; nothing else of it is imported,
since its generated models take seconds. Objects go in and come out as plain dicts.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from speccli.core.kube.credentials import Credentials, Login
from speccli.core.kube.errors import (
    Asked,
    ClusterError,
    Expired,
    Gone,
    NotInstalled,
    NotThere,
    refusal,
    status_of,
)

if TYPE_CHECKING:
    from speccli.core.kube.transport import Api

T = TypeVar("T")
MANAGER = "specctl"
"""Field manager of everything that is applied."""
EVERYWHERE = "*"
"""In place of a namespace: all of them."""
DEADLINE_S = 10.0
_PAGE = 500
"""Objects in one answer of a list."""
_LOG_BYTES = 1 << 20

Selector = str | Mapping[str, str] | None
Objects = list[dict[str, Any]]


class Cluster:
    """A Kubernetes API server, as one user sees it. Safe to use from several threads.

    Every method raises a `ClusterError` (exit 3) where the server refuses, cannot be reached or
    takes longer than the deadline. Where a namespace is None it is the context's.
    """

    def __init__(
        self, login: Login, *, deadline_s: float = DEADLINE_S, connect: bool = True
    ) -> None:
        """See `connect`."""
        self.deadline_s = deadline_s
        self._login = login
        self._lock = threading.Lock()
        self._credentials = login(deadline_s)
        self._api = _transport(self._credentials)
        self._dynamic: Any = None
        self._version: dict[str, Any] = {}
        if connect:
            self._version = self._json("GET", "/version", Asked("read", "the version"))

    @classmethod
    def connect(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
        deadline: float = DEADLINE_S,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Cluster:
        """Log in and see that the server answers.

        Args:
            kubeconfig: A file; None: KUBECONFIG, ~/.kube/config, or the pod's own account.
            context: None: the current one.
            namespace: None: the context's.
            deadline: Seconds for each call, credential plugins included.
            environment: None: this process's.

        Raises:
            UsageError: no kubeconfig, or one that cannot be used.
            ClusterError: no credentials, or no answer.
        """
        env = os.environ if environment is None else environment
        return cls(Login(kubeconfig, context, namespace, env), deadline_s=deadline)

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

    # ---- objects ----

    def get(
        self, api_version: str, kind: str, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """One object; None where there is none of that name.

        Raises:
            NotInstalled: the server knows no such kind.
        """
        path, place = self._path(api_version, kind, name, namespace)
        try:
            return self._json("GET", path, Asked("read", f"{kind} {name}", place), kind=kind)
        except NotThere:
            return None

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> Objects:
        """Every object that fits, however many pages they are.

        Args:
            api_version: `apps/v1`.
            kind: `Deployment`.
            namespace: None: the context's; `*`: all.
            labels: A label selector.
            fields: A field selector.

        Raises:
            NotInstalled: the server knows no such kind.
        """
        return self.list_with_version(api_version, kind, namespace, labels, fields)[0]

    def list_with_version(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> tuple[Objects, str]:
        """The same, with the resource version to watch from."""
        path, place = self._path(api_version, kind, None, namespace)
        query = {"labelSelector": _selector(labels), "fieldSelector": _selector(fields)}
        asked = Asked("list", f"{kind}s", place)
        try:
            return self._pages(path, query, asked, api_version, kind, str(_PAGE))
        except Gone:  # it changed too much between two pages: all of it at once
            return self._pages(path, query, asked, api_version, kind, "")

    def _pages(
        self,
        path: str,
        query: Mapping[str, str],
        asked: Asked,
        api_version: str,
        kind: str,
        page: str,
    ) -> tuple[Objects, str]:
        found: Objects = []
        onward = ""
        while True:
            answer = self._json(
                "GET", path, asked, query={**query, "limit": page, "continue": onward}, kind=kind
            )
            for each in answer.get("items") or []:
                found.append({"apiVersion": api_version, "kind": kind, **each})
            metadata = answer.get("metadata") or {}
            onward = metadata.get("continue") or ""
            if not onward:
                return found, str(metadata.get("resourceVersion") or "")

    def apply(
        self,
        obj: Mapping[str, Any],
        dry_run: bool = False,
        force: bool = False,
        manager: str = MANAGER,
    ) -> dict[str, Any]:
        """Server-side apply; the object as it is then, or would be.

        Args:
            obj: The fields that are ours, and no other.
            dry_run: Nothing is kept.
            force: Take over fields that somebody else set.
            manager: Under which name fields are owned.

        Raises:
            Conflict: a field is somebody else's; it names both.
            Invalid: the server does not take it.
            NotInstalled: the server knows no such kind.
        """
        api_version, kind = str(obj["apiVersion"]), str(obj["kind"])
        metadata = obj["metadata"]
        path, place = self._path(api_version, kind, metadata["name"], metadata.get("namespace"))
        query = {
            "fieldManager": manager,
            "fieldValidation": "Strict",
            "force": "true" if force else "",
            "dryRun": "All" if dry_run else "",
        }
        asked = Asked("apply", f"{kind} {metadata['name']}", place)
        return self._json(
            "PATCH", path, asked, query=query, body=dict(obj), content=_APPLY, kind=kind
        )

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> bool:
        """Delete it, what it owns first; False where it was not there."""
        path, place = self._path(api_version, kind, name, namespace)
        asked = Asked("delete", f"{kind} {name}", place)
        try:
            self._json("DELETE", path, asked, query={"propagationPolicy": "Foreground"}, kind=kind)
        except NotThere:
            return False
        return True

    # ---- pods ----

    def proxy(
        self,
        namespace: str,
        pod: str,
        port: int | str,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Ask a pod through the API server; status and body as the pod gave them.

        An `Authorization` of ours ends at the API server: a pod never sees one.

        Raises:
            ClusterError: the API server did not let it through, or did not reach the pod.
        """
        url = proxy_path(namespace, pod, port, path)
        asked = Asked("ask", f"pod {pod} at port {port}", namespace)
        answer = self._send(method, url, asked, body=body, headers=headers, shed=False)
        if answer.status >= 400 and status_of(answer.data) is not None:
            raise refusal(answer.status, answer.data, asked, headers=answer.headers)
        return int(answer.status), bytes(answer.data)

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        tail: int = 200,
        previous: bool = False,
    ) -> str:
        """The last lines of a container's log, a megabyte at most.

        `previous`: of the run before the last restart.
        """
        query = {
            "container": container or "",
            "tailLines": str(tail),
            "limitBytes": str(_LOG_BYTES),
            "previous": "true" if previous else "",
        }
        asked = Asked("read", f"the log of pod {pod}", namespace)
        answer = self._send("GET", f"{_pod(namespace, pod)}/log", asked, query=query)
        if answer.status != 200:
            raise refusal(answer.status, answer.data, asked, headers=answer.headers)
        return bytes(answer.data).decode("utf-8", "replace")

    def events(self, namespace: str, name: str) -> Objects:
        """What happened to an object, oldest first."""
        found = self.list("v1", "Event", namespace, fields={"involvedObject.name": name})
        return sorted(found, key=event_time)

    # ---- the server ----

    def version(self) -> tuple[int, int]:
        """Its major and minor version."""
        numbers = [
            int(re.sub(r"\D.*", "", str(self._version.get(part) or "0")) or 0)
            for part in ("major", "minor")
        ]
        return numbers[0], numbers[1]

    @property
    def version_text(self) -> str:
        """Its version as it calls it itself, `v1.37.2`."""
        return str(self._version.get("gitVersion") or "unknown")

    def can(self, verb: str, resource: str, namespace: str | None = None) -> bool | None:
        """Whether these credentials may; None where the server does not tell.

        Args:
            verb: `get`, `list`, `patch`, `create`, …
            resource: `pods`, `pods/proxy`, `deployments.apps`, `scaledobjects.keda.sh`.
            namespace: None: the context's; `*`: in all of them, or of the cluster.
        """
        named, _, sub = resource.partition("/")
        name, _, group = named.partition(".")
        place = self.namespace if namespace is None else namespace
        attributes = {
            "verb": verb,
            "resource": name,
            "group": group,
            "subresource": sub,
            "namespace": "" if place == EVERYWHERE else place,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = Asked("ask", f"whether one may {verb} {resource}")
        answer = self._send("POST", path, asked, body=review)
        if answer.status == 401:
            raise refusal(answer.status, answer.data, asked)
        if answer.status not in {200, 201}:
            return None
        told = _loaded(answer.data, asked).get("status") or {}
        return bool(told["allowed"]) if "allowed" in told else None

    def knows(self, api_version: str, kind: str) -> bool:
        """Whether the server has such a kind."""
        try:
            self._resource(api_version, kind)
        except NotInstalled:
            return False
        return True

    def credentials(self) -> Credentials:
        """What other connections to the same server are made with, renewed if need be."""
        self._renew_if_stale()
        return self._credentials

    def renew(self, used: Credentials) -> Credentials:
        """Newer ones than those that were `used`: read anew, by the plugin where there is one.

        Raises:
            CredentialsError: they could not be had.
        """
        with self._lock:
            if self._credentials is used:  # else another thread was faster
                self._credentials = self._login(self.deadline_s)
                self._api = _transport(self._credentials)
                self._dynamic = None
            return self._credentials

    # ---- how it is asked ----

    def _renew_if_stale(self) -> None:
        used = self._credentials
        if used.stale(datetime.now(UTC)):
            self.renew(used)

    def _authorised(self, call: Callable[[Api], T], refused: Callable[[T], bool]) -> T:
        """`call`, and once more with newer credentials where they are not accepted."""
        self._renew_if_stale()
        used = self._credentials
        answer = self._limited(call)
        if not refused(answer):
            return answer
        self.renew(used)
        return self._limited(call)

    def _limited(self, call: Callable[[Api], T]) -> T:
        from speccli.core.kube.transport import Limit

        api = self._api
        api.limits.limit = Limit(self.deadline_s)
        return call(api)

    def _send(
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

    def _json(
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
        answer = self._send(method, path, asked, query=query, body=body, content=content)
        if 200 <= answer.status < 300:
            return _loaded(answer.data, asked)
        told = status_of(answer.data)
        if answer.status == 404 and kind and not ((told or {}).get("details") or {}).get("name"):
            self._forget_kinds()  # its definition was deleted since it was learned
            raise _not_installed(path, kind)
        raise refusal(answer.status, answer.data, asked, headers=answer.headers)

    def _path(
        self, api_version: str, kind: str, name: str | None, namespace: str | None
    ) -> tuple[str, str | None]:
        """Where an object or a list lies, and the namespace in it."""
        resource = self._resource(api_version, kind)
        if not resource.namespaced:
            return str(resource.path(name=_quoted(name))), None
        place = namespace or self.namespace
        if place == EVERYWHERE:
            return str(resource.path()), None
        return str(resource.path(name=_quoted(name), namespace=_quoted(place))), place

    def _resource(self, api_version: str, kind: str) -> Any:
        from kubernetes.dynamic.exceptions import DynamicApiError, ResourceNotFoundError

        asked = Asked("find", f"the kind {kind} ({api_version})")

        def look(api: Api) -> Any:
            if self._dynamic is None:
                from speccli.core.kube.kinds import dynamic_client

                self._dynamic = dynamic_client(
                    api, self._credentials, self.version_text, self._login.environment
                )
            try:
                # Without the prefix every group that has a version of that name would be fetched.
                prefix = "apis" if "/" in api_version else "api"
                kinds = self._dynamic.resources
                return kinds.get(prefix=prefix, api_version=api_version, kind=kind)
            except ResourceNotFoundError:
                raise _not_installed(api_version, kind) from None
            except DynamicApiError as error:
                return refusal(error.status, _bytes(error.body), asked, headers=error.headers)

        found = self._authorised(look, lambda answer: isinstance(answer, Expired))
        if isinstance(found, ClusterError):
            raise found
        return found

    def _forget_kinds(self) -> None:
        if self._dynamic is not None:
            self._limited(lambda api: self._dynamic.resources.invalidate_cache())


_APPLY = "application/apply-patch+yaml"

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

    return Api(credentials)


def proxy_path(namespace: str, pod: str, port: int | str, path: str) -> str:
    """Where the API server passes a question on to a pod."""
    return f"{_pod(namespace, f'{pod}:{port}')}/proxy/{path.lstrip('/')}"


def _pod(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe=':')}"


def _quoted(name: str | None) -> str | None:
    return None if name is None else quote(name, safe="")


def _selector(given: Selector) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    return ",".join(f"{name}={value}" for name, value in given.items())


def event_time(event: Mapping[str, Any]) -> str:
    """When an event was last seen, RFC 3339; they sort as texts."""
    series = event.get("series") or {}
    metadata = event.get("metadata") or {}
    told = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        metadata.get("creationTimestamp"),
    )
    return str(next((each for each in told if each), ""))


def _dumped(body: Any) -> bytes | None:
    import json

    return None if body is None else json.dumps(body).encode()


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body or "").encode()


def _loaded(body: bytes, asked: Asked) -> dict[str, Any]:
    import json

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
