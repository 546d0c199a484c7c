"""A real Prometheus in the space, which scrapes pods that were found through the API server.

It is given a PodMonitor and a PrometheusRule as the Prometheus operator would take them: the
operator is not run, and what it makes of the two is made here (selector, port, relabelings, rules).
"""

from __future__ import annotations

import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.support.kube.api import until
from tests.support.kube.binaries import program
from tests.support.kube.discover import META, label_name
from tests.support.kube.plane import Plane
from tests.support.kube.space import HOST

Object = dict[str, Any]
PORT = 9090
TARGETS = "targets.json"
URL_INSIDE = f"http://{HOST}:{PORT}"


def scrape_config(monitor: Object) -> Object:
    """What the operator makes of a PodMonitor with one endpoint."""
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    relabelings: list[Object] = []
    within = monitor["metadata"]["namespace"]
    relabelings.append(_keep("namespace", within))
    for key, value in monitor["spec"]["selector"]["matchLabels"].items():
        relabelings.append(_keep(f"pod_label_{label_name(key)}", value))
    relabelings.append(_keep("pod_container_port_name", endpoint["port"]))
    for label, to in (
        ("namespace", "namespace"),
        ("pod_container_name", "container"),
        ("pod_name", "pod"),
    ):
        relabelings.append({"source_labels": [META + label], "target_label": to})
    relabelings += [_snake(one) for one in endpoint.get("relabelings", [])]
    return {
        "job_name": monitor["metadata"]["name"],
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "metrics_path": endpoint["path"],
        "file_sd_configs": [{"files": [TARGETS]}],
        "relabel_configs": relabelings,
        "metric_relabel_configs": [_snake(one) for one in endpoint.get("metricRelabelings", [])],
    }


def _keep(label: str, value: str) -> Object:
    return {"action": "keep", "source_labels": [META + label], "regex": re.escape(value)}


def _snake(relabeling: Object) -> Object:
    return {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", k): v for k, v in relabeling.items()}


class Prometheus:
    """A Prometheus in a plane's space; it ends with it.

    Attributes:
        url: Where it is for programs outside; `URL_INSIDE` is for those inside.
    """

    def __init__(
        self,
        plane: Plane,
        monitors: Sequence[Object],
        rules: Sequence[Object],
        port: int = PORT,
    ) -> None:
        """`monitors`: PodMonitors. `rules`: PrometheusRules. `port`: one that no other has."""
        folder = plane.folder / f"prometheus-{port}"
        folder.mkdir()
        groups = [group for rule in rules for group in rule["spec"]["groups"]]
        (folder / "rules.yaml").write_text(json.dumps({"groups": groups}))
        config = {
            "global": {"evaluation_interval": "5s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [scrape_config(m) for m in monitors],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self._space = plane.space
        discover = plane.space.start(
            "discover",
            sys.executable,
            "-m",
            "tests.support.kube.discover",
            plane.server_inside,
            plane.folder,
            folder / TARGETS,
        )
        prometheus = plane.space.start(
            "prometheus",
            program("prometheus", "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={HOST}:{port}",
            "--log.level=warn",
        )
        self._programs = (discover, prometheus)
        self.url = f"http://127.0.0.1:{plane.space.forward(port)}"
        until(self._ready, "Prometheus to be ready")

    def stop(self) -> None:
        """End it before the plane does."""
        for program_ in self._programs:
            self._space.stop(program_)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def value(self, query: str) -> float | None:
        """The value of a query with one result; None for none."""
        text = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{text}", timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        assert len(found) <= 1, f"{query}: {len(found)} results"
        return float(found[0]["value"][1]) if found else None
