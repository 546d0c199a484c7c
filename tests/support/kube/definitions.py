"""Kinds that operators bring: KEDA's real definitions, the Prometheus operator's by name only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
# Their contents are not checked here; tests of what is rendered do that.
_MONITORING = (("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules"))


def monitoring() -> Iterator[Object]:
    """Definitions of monitoring.coreos.com/v1 that take any spec."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    for kind, plural in _MONITORING:
        group = "monitoring.coreos.com"
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [version],
            },
        }


def keda(built: Path | None) -> Iterator[Object]:
    """KEDA's own, from its module; none where that is not built."""
    for path in sorted((built / "crds").glob("*.yaml")) if built else ():
        yield yaml.safe_load(path.read_text())
