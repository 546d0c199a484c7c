"""One cluster: what is asked of its API server, as dicts, each call within a deadline.

Over the `kubernetes` package's configuration and dynamic client; nothing else of it is imported,
since its generated models take seconds. Objects go in and come out as plain dicts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from speccli.core.kube.connection import EVERYWHERE, Connection, loaded
from speccli.core.kube.credentials import Login
from speccli.core.kube.errors import (
    Asked,
    Gone,
    NotInstalled,
    NotThere,
    refusal,
    status_of,
)

MANAGER = "specctl"
"""Field manager of everything that is applied."""
DEADLINE_S = 10.0
_PAGE = 500
"""Objects in one answer of a list."""
_LOG_BYTES = 1 << 20

Selector = str | Mapping[str, str] | None
Objects = list[dict[str, Any]]


class Cluster(Connection):
    """A Kubernetes API server, as one user sees it. Safe to use from several threads.

    Every method raises a `ClusterError` (exit 3) where the server refuses, cannot be reached or
    takes longer than the deadline. Where a namespace is None it is the context's.
    """

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
        cluster = cls(Login(kubeconfig, context, namespace, env), deadline)
        cluster._version = cluster.ask("GET", "/version", Asked("read", "the version"))
        return cluster

    # ---- objects ----

    def get(
        self, api_version: str, kind: str, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """One object; None where there is none of that name.

        Raises:
            NotInstalled: the server knows no such kind.
        """
        path, place = self.path(api_version, kind, name, namespace)
        try:
            return self.ask("GET", path, Asked("read", f"{kind} {name}", place), kind=kind)
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
        path, place = self.path(api_version, kind, None, namespace)
        query = {"labelSelector": _selector(labels), "fieldSelector": _selector(fields)}
        asked = Asked("list", f"{kind}s", place)
        try:
            return self._pages(path, query, asked, api_version, kind, str(_PAGE))
        except Gone:  # it changed too much between two pages: all of it at once
            return self._pages(path, query, asked, api_version, kind, "")

    def watch(
        self,
        api_version: str,
        kind: str,
        version: str,
        namespace: str | None = None,
        labels: Selector = None,
        lasting_s: int = 60,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """What changes after a list: (`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`, the object).

        It ends by itself; go on from the newest `metadata.resourceVersion` that was seen.

        Args:
            api_version: As in `list`.
            kind: As in `list`.
            version: The resource version of the list.
            namespace: As in `list`.
            labels: As in `list`.
            lasting_s: After which the server ends it.

        Raises:
            Gone: the version is too old: list again.
        """
        path, place = self.path(api_version, kind, None, namespace)
        query = {
            "watch": "true",
            "resourceVersion": version,
            "labelSelector": _selector(labels),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lasting_s),
        }
        asked = Asked("watch", f"{kind}s", place)
        for line in self.lines(path, asked, query=query, idle_s=lasting_s + self.deadline_s):
            if not line.strip():
                continue
            told = loaded(line, asked)
            obj = told.get("object")
            if not isinstance(obj, dict):
                continue
            if told.get("type") == "ERROR":
                raise refusal(int(obj.get("code") or 500), json.dumps(obj).encode(), asked)
            yield str(told.get("type")), {"apiVersion": api_version, "kind": kind, **obj}

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
            answer = self.ask(
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
        path, place = self.path(api_version, kind, metadata["name"], metadata.get("namespace"))
        query = {
            "fieldManager": manager,
            "fieldValidation": "Strict",
            "force": "true" if force else "",
            "dryRun": "All" if dry_run else "",
        }
        asked = Asked("apply", f"{kind} {metadata['name']}", place)
        return self.ask(
            "PATCH", path, asked, query=query, body=dict(obj), content=_APPLY, kind=kind
        )

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> bool:
        """Delete it, what it owns first; False where it was not there."""
        path, place = self.path(api_version, kind, name, namespace)
        asked = Asked("delete", f"{kind} {name}", place)
        try:
            self.ask("DELETE", path, asked, query={"propagationPolicy": "Foreground"}, kind=kind)
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
        answer = self.send(method, url, asked, body=body, headers=headers, shed=False)
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
        answer = self.send("GET", f"{_pod(namespace, pod)}/log", asked, query=query)
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

    def can(
        self, verb: str, resource: str, namespace: str | None = None, name: str = ""
    ) -> bool | None:
        """Whether these credentials may; None where the server does not tell.

        Args:
            verb: `get`, `list`, `patch`, `create`, …
            resource: `pods`, `pods/proxy`, `deployments.apps`, `scaledobjects.keda.sh`.
            namespace: None: the context's; `*`: in all of them, or of the cluster.
            name: Of one object; empty: any, which a rule with `resourceNames` does not allow.
        """
        named, _, sub = resource.partition("/")
        plural, _, group = named.partition(".")
        place = self.namespace if namespace is None else namespace
        attributes = {
            "verb": verb,
            "resource": plural,
            "group": group,
            "subresource": sub,
            "namespace": "" if place == EVERYWHERE else place,
            "name": name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = Asked("ask", f"whether one may {verb} {resource}")
        answer = self.send("POST", path, asked, body=review)
        if answer.status == 401:
            raise refusal(answer.status, answer.data, asked)
        if answer.status not in {200, 201}:
            return None
        told = loaded(answer.data, asked).get("status") or {}
        return bool(told["allowed"]) if "allowed" in told else None

    def knows(self, api_version: str, kind: str) -> bool:
        """Whether the server has such a kind."""
        try:
            self.resource(api_version, kind)
        except NotInstalled:
            return False
        return True


_APPLY = "application/apply-patch+yaml"


def proxy_path(namespace: str, pod: str, port: int | str, path: str) -> str:
    """Where the API server passes a question on to a pod."""
    return f"{_pod(namespace, f'{pod}:{port}')}/proxy/{path.lstrip('/')}"


def _pod(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe=':')}"


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
