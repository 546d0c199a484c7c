"""A small client of an API server for tests: JSON in and out, and nothing of specctl's."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_PATIENCE_S = 180.0
T = TypeVar("T")


class RefusedError(Exception):
    """The API server answered with something else than 2xx."""

    def __init__(self, status: int, body: Object) -> None:
        super().__init__(f"{status}: {body.get('message', body)}")
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Kind:
    """Where objects of a kind are."""

    group: str
    """`api/v1`, or `apis/GROUP/VERSION`."""
    plural: str
    namespaced: bool = True


KINDS = {
    "Namespace": Kind("api/v1", "namespaces", namespaced=False),
    "Node": Kind("api/v1", "nodes", namespaced=False),
    "PersistentVolume": Kind("api/v1", "persistentvolumes", namespaced=False),
    "StorageClass": Kind("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "ClusterRole": Kind("apis/rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False),
    "CustomResourceDefinition": Kind(
        "apis/apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False
    ),
    "APIService": Kind("apis/apiregistration.k8s.io/v1", "apiservices", namespaced=False),
    "PriorityClass": Kind("apis/scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "DeviceClass": Kind("apis/resource.k8s.io/v1", "deviceclasses", namespaced=False),
    "ResourceSlice": Kind("apis/resource.k8s.io/v1", "resourceslices", namespaced=False),
    "ResourceClaim": Kind("apis/resource.k8s.io/v1", "resourceclaims"),
    "ResourceClaimTemplate": Kind("apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    "Pod": Kind("api/v1", "pods"),
    "Event": Kind("api/v1", "events"),
    "Service": Kind("api/v1", "services"),
    "Secret": Kind("api/v1", "secrets"),
    "ConfigMap": Kind("api/v1", "configmaps"),
    "ServiceAccount": Kind("api/v1", "serviceaccounts"),
    "PersistentVolumeClaim": Kind("api/v1", "persistentvolumeclaims"),
    "Deployment": Kind("apis/apps/v1", "deployments"),
    "ReplicaSet": Kind("apis/apps/v1", "replicasets"),
    "Job": Kind("apis/batch/v1", "jobs"),
    "CronJob": Kind("apis/batch/v1", "cronjobs"),
    "PodDisruptionBudget": Kind("apis/policy/v1", "poddisruptionbudgets"),
    "EndpointSlice": Kind("apis/discovery.k8s.io/v1", "endpointslices"),
    "NetworkPolicy": Kind("apis/networking.k8s.io/v1", "networkpolicies"),
    "HorizontalPodAutoscaler": Kind("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "Role": Kind("apis/rbac.authorization.k8s.io/v1", "roles"),
    "ClusterRoleBinding": Kind(
        "apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False
    ),
    "RoleBinding": Kind("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "Lease": Kind("apis/coordination.k8s.io/v1", "leases"),
    "PodMonitor": Kind("apis/monitoring.coreos.com/v1", "podmonitors"),
    "PrometheusRule": Kind("apis/monitoring.coreos.com/v1", "prometheusrules"),
    "ScaledObject": Kind("apis/keda.sh/v1alpha1", "scaledobjects"),
}


class Api:
    """Requests with the credentials of a kubeconfig whose data are inline."""

    def __init__(self, kubeconfig: Path, namespace: str = "default") -> None:
        """`namespace`: where objects are that do not say it."""
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        self.namespace = namespace
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]))
            pem.write(base64.b64decode(user["client-key-data"]))
            pem.flush()
            self._tls.load_cert_chain(pem.name)

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, bytes]:
        """Any request; status and body, whatever they are."""
        headers = {"Content-Type": content_type, "Accept": "application/json, */*"}
        request = urllib.request.Request(
            f"{self.server}/{path.lstrip('/')}", data=body, headers=headers, method=method
        )
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
    ) -> Object:
        """A request whose answer is an object.

        Raises:
            RefusedError: any other status than 2xx.
        """
        data = None if body is None else json.dumps(body).encode()
        status, answer = self.raw(method, path, data, content_type)
        try:
            found: Object = json.loads(answer)
        except ValueError:
            found = {"message": answer.decode(errors="replace")}
        if not 200 <= status < 300:
            raise RefusedError(status, found)
        return found

    def path(self, kind: str, name: str = "", namespace: str | None = None) -> str:
        """Where an object or the list of a kind is."""
        known = KINDS[kind]
        inside = f"namespaces/{namespace or self.namespace}/" if known.namespaced else ""
        return f"/{known.group}/{inside}{known.plural}" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """An object, which must be there."""
        return self.ask("GET", self.path(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """An object, or None."""
        try:
            return self.get(kind, name, namespace)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def objects(
        self, kind: str, labels: Mapping[str, str] | None = None, namespace: str | None = None
    ) -> list[Object]:
        """The objects of a kind, by name."""
        chosen = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        query = f"?{urllib.parse.urlencode({'labelSelector': chosen})}" if chosen else ""
        items: list[Object] = self.ask("GET", self.path(kind, "", namespace) + query)["items"]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def create(self, body: Object) -> Object:
        """Create an object, where its metadata say or in this client's namespace."""
        meta = body["metadata"]
        return self.ask("POST", self.path(body["kind"], "", meta.get("namespace")), body)

    def patch(
        self, kind: str, name: str, body: Object, *, sub: str = "", content_type: str = MERGE
    ) -> Object:
        """Change an object, or its subresource `sub`."""
        path = self.path(kind, name) + (f"/{sub}" if sub else "")
        return self.ask("PATCH", path, body, content_type)

    def apply(self, body: Object, manager: str = "test", *, force: bool = False) -> Object:
        """Server-side apply."""
        meta = body["metadata"]
        path = self.path(body["kind"], meta["name"], meta.get("namespace"))
        query = f"?fieldManager={manager}&force={str(force).lower()}&fieldValidation=Strict"
        return self.ask("PATCH", path + query, body, APPLY)

    def delete(self, kind: str, name: str, *, grace_s: int | None = None) -> None:
        """Ask for an object's deletion."""
        options: Object = {"propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self.ask("DELETE", self.path(kind, name), options)

    def proxy(
        self, pod: str, path: str, *, port: int = 8000, body: object = None
    ) -> tuple[int, bytes]:
        """Reach a pod through the API server's proxy."""
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
        place = self.path("Pod", f"{pod}:{port}")
        return self.raw(method, f"{place}/proxy/{path.lstrip('/')}", data)

    def logs(self, pod: str, **options: object) -> str:
        """A pod's log, which the API server fetches from the kubelet."""
        query = urllib.parse.urlencode(options)
        status, body = self.raw("GET", f"{self.path('Pod', pod)}/log?{query}")
        if status != 200:
            raise RefusedError(status, {"message": body.decode(errors="replace")})
        return body.decode()

    def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of what was told of an object, in no order."""
        query = urllib.parse.urlencode({"fieldSelector": f"involvedObject.name={name}"})
        items = self.ask("GET", f"{self.path('Event')}?{query}")["items"]
        return [(item["reason"], item["message"]) for item in items]


def until(look: Callable[[], T | None], what: str, patience_s: float = _PATIENCE_S) -> T:
    """Look until there is something to see, and return it.

    Raises:
        AssertionError: nothing within `patience_s` seconds.
    """
    end = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"not within {patience_s:g} s: {what}"
        time.sleep(0.1)
