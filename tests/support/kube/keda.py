"""Real KEDA beside a real control plane: its operator and its metrics server."""

from __future__ import annotations

import shutil
from typing import Any

from tests.support.kube.api import RefusedError, until
from tests.support.kube.binaries import folder
from tests.support.kube.plane import Plane
from tests.support.kube.space import HOST

NAMESPACE = "keda"
_GRPC, _METRICS, _HEALTH, _ADAPTER, _ADAPTER_METRICS = 9666, 8080, 8081, 6444, 8082


def start(plane: Plane) -> None:
    """Start KEDA where the plane is; it ends with it.

    The operator makes an HPA of each ScaledObject and asks Prometheus; the adapter is an aggregated
    API server, from which the HPA controller reads the metric.
    """
    built, api = folder("keda"), plane.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    certs = plane.folder / "keda"
    certs.mkdir()
    shutil.copy(plane.certs.ca, certs / "ca.crt")
    shutil.copy(plane.certs.pem("keda"), certs / "tls.crt")
    shutil.copy(plane.certs.key("keda"), certs / "tls.key")
    env = {
        "KUBECONFIG": str(plane.kubeconfig_inside),
        "POD_NAMESPACE": NAMESPACE,
        "WATCH_NAMESPACE": "",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
    }
    plane.space.start(
        "keda-operator",
        built / "keda-operator",
        "--zap-encoder=console",
        f"--metrics-bind-address={HOST}:{_METRICS}",
        f"--health-probe-bind-address={HOST}:{_HEALTH}",
        f"--metrics-service-bind-address={HOST}:{_GRPC}",
        f"--cert-dir={certs}",
        "--enable-webhook-patching=false",
        "--enable-apiservice-patching=false",
        env=env,
    )
    plane.space.start(
        "keda-adapter",
        built / "keda-adapter",
        f"--secure-port={_ADAPTER}",
        f"--port={_ADAPTER_METRICS}",
        f"--metrics-service-address={HOST}:{_GRPC}",
        f"--cert-dir={certs}",
        f"--tls-cert-file={certs / 'tls.crt'}",
        f"--tls-private-key-file={certs / 'tls.key'}",
        f"--client-ca-file={certs / 'ca.crt'}",
        f"--authentication-kubeconfig={plane.kubeconfig_inside}",
        f"--authorization-kubeconfig={plane.kubeconfig_inside}",
        f"--lister-kubeconfig={plane.kubeconfig_inside}",
        env=env,
    )
    for body in _registration():
        api.create(body)
    until(lambda: _answers(plane), "KEDA's metrics to be served", 120)


def _registration() -> list[dict[str, Any]]:
    """What tells the API server where the external metrics are: a service that is a host name."""
    meta = {"name": "keda-metrics-apiserver", "namespace": NAMESPACE}
    port = {"port": _ADAPTER, "protocol": "TCP"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [port]},
    }
    registered = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {**meta, "port": _ADAPTER},
        },
    }
    return [service, registered]


def _answers(plane: Plane) -> bool:
    try:
        plane.api.ask("GET", "/apis/external.metrics.k8s.io/v1beta1")
    except RefusedError:
        return False
    return True
