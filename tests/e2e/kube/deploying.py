"""specctl as it is typed, against a test's cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from speccli.main import app
from tests.support.kube.api import MERGE
from tests.support.kube.cluster import Cluster

Object = dict[str, Any]
RECIPE = "llama-3.3-70b-eagle3-h100"
"""Two H100 a pod."""
PLAIN = ("--autoscaler", "none", "--no-monitoring", "--set", "storage.persist=false")
KINDS = (
    *("Deployment", "Service", "ConfigMap", "ServiceAccount", "PersistentVolumeClaim"),
    *("PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"),
)
LABEL = "specctl.dev/deployment"


def _written(value: Object) -> str:
    """An object, and when who wrote it, but for what controllers tell of it in their own time."""
    meta = {key: kept for key, kept in value["metadata"].items() if key != "resourceVersion"}
    meta["managedFields"] = [
        each for each in meta.get("managedFields", ()) if each.get("subresource") != "status"
    ]
    notes = dict(meta.get("annotations") or {})
    notes.pop("deployment.kubernetes.io/revision", None)
    told = {**value, "metadata": {**meta, "annotations": notes}, "status": None}
    return json.dumps(told, sort_keys=True)


class Typed:
    """The command line, with the test's kubeconfig and folders of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.env: Mapping[str, str | None] = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "SPECCTL_STATE": str(folder / "state"),
            "COLUMNS": "200",
        }

    def __call__(self, *words: str | Path, env: Mapping[str, str | None] | None = None) -> Result:
        return CliRunner().invoke(app, list(map(str, words)), env={**self.env, **(env or {})})

    def deploy(self, *words: str, name: str = "chat", plain: bool = True) -> Object:
        """Deploys for good, and must be able to; what it printed."""
        more = PLAIN if plain else ()
        done = self("deploy", RECIPE, "--name", name, *more, *words, "-o", "json")
        assert done.stdout, done.stderr
        told: Object = json.loads(done.stdout)
        assert told["exit"] == done.exit_code
        return told

    def record(self, name: str = "chat") -> Object:
        """The record in the cluster."""
        value = self.cluster.api.get("ConfigMap", f"{name}-specctl")
        told: Object = json.loads(value["data"]["record.json"])
        return told

    def owned(self, name: str = "chat") -> dict[str, str]:
        """Every object of a deployment as it was written, by kind and name."""
        return {
            f"{kind}/{value['metadata']['name']}": _written(value)
            for kind in KINDS
            for value in self.cluster.api.objects(kind, {LABEL: name})
        }

    def scale(self, replicas: int, name: str = "chat") -> None:
        """As the HPA controller does it."""
        path = f"{self.cluster.api.path('Deployment', name)}/scale"
        query = "?fieldManager=kube-controller-manager"
        self.cluster.api.ask("PATCH", path + query, {"spec": {"replicas": replicas}}, MERGE)
