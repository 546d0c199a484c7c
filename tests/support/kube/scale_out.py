"""Load, three times the load, and the load again, on a deployment that scales by itself.

Real: the API server, the scheduler, the HPA controller, KEDA, Prometheus; the PodMonitor, the rules
and the ScaledObject are those that specctl renders of a built-in recipe. Simulated: the engines,
which are specctl's, with a queue, and so the GPUs. Clients are real, and keep their own times.

`Pace(1)` leaves every period as it was rendered; `Pace(5)` makes scrapes, rule windows, polls,
policies, stabilization windows, probes and preStop sleeps, and the loading of a pod, last a fifth.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from speccli.core.manifests.build import objects
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pool_rules import QUEUE_WAIT, RUNNING
from speccli.core.recipes.load import load
from tests.support.kube import monitor
from tests.support.kube.cluster import Behaviour, Cluster, is_ready
from tests.support.kube.load import answered, rate_of, set_rate
from tests.support.kube.monitor import Prometheus

Object = dict[str, Any]
RECIPE = "llama-3.3-70b-eagle3-h100"
NAME = "pool"
BATCH = 16
STEP_FACTOR = 3.0
MOST = 3
LOAD_PER_S = 1.25
LOADING_S = 120.0
"""How long a pod loads at the rendered pace; what it has to outlast is the scale-down window."""
_MONITORING = ("PodMonitor", "PrometheusRule")


@dataclass(frozen=True, slots=True)
class Pace:
    """How many times faster than rendered everything goes that waits."""

    factor: float = 1.0

    def seconds(self, seconds: float, least: float = 1.0) -> int:
        """A period, in whole seconds."""
        return round(max(least, seconds / self.factor))

    def text(self, text: str) -> str:
        """PromQL or a duration with each `30s`, `2m` shortened, to the millisecond."""

        def shorter(match: re.Match[str]) -> str:
            unit = {"s": 1_000, "m": 60_000, "h": 3_600_000}[match[2]]
            return f"{round(int(match[1]) * unit / self.factor)}ms"

        return re.sub(r"\b(\d+)([smh])\b", shorter, text)

    def applied(self, body: Object) -> Object:
        """A rendered object with its periods shortened."""
        spec = body.get("spec", {})
        match body["kind"]:
            case "PodMonitor":
                for endpoint in spec["podMetricsEndpoints"]:
                    endpoint["interval"] = self.text(endpoint["interval"])
                    # Prometheus wants it no longer than the interval.
                    endpoint["scrapeTimeout"] = endpoint["interval"]
            case "PrometheusRule":
                for group in spec["groups"]:
                    group["interval"] = self.text(group["interval"])
                    for rule in group["rules"]:
                        rule["expr"] = self.text(rule["expr"])
            case "ScaledObject":
                spec["pollingInterval"] = self.seconds(spec["pollingInterval"])
                behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
                for way in behavior.values():
                    window = "stabilizationWindowSeconds"
                    way[window] = self.seconds(way[window], 0)
                    for policy in way["policies"]:
                        policy["periodSeconds"] = self.seconds(policy["periodSeconds"])
            case "Deployment":
                spec["minReadySeconds"] = self.seconds(spec.get("minReadySeconds", 0), 0)
        return body


@dataclass(slots=True)
class Sample:
    """What was so at one moment."""

    at_s: float
    offered_per_s: float
    replicas: int
    ready: int
    loading: int
    stopping: int
    queue_wait_ms: float | None
    """What Prometheus last recorded and the autoscaler reads; None before there is anything."""
    running: float | None


@dataclass(slots=True)
class Run:
    """One run: what was set, and what was seen."""

    factor: float
    target_ms: float
    least: int
    most: int
    down_window_s: float
    loading_s: float
    recipe: str = RECIPE
    samples: list[Sample] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    """When each phase began, s."""
    killed_loading: list[str] = field(default_factory=list)
    """Pods that were told to stop before they were ever ready."""
    answers: list[Object] = field(default_factory=list)
    """What the clients saw: `sent` (s), `first_s`, `status`."""

    def between(self, start: str, end: str | None = None) -> list[Sample]:
        """The samples of a phase, up to the beginning of another."""
        until = self.phases[end] if end else float("inf")
        return [s for s in self.samples if self.phases[start] <= s.at_s < until]

    def save(self, path: Path) -> None:
        """Write it as JSON: samples and answers as tables, a line each."""
        told = asdict(self)
        tables = {name: table(told.pop(name)) for name in ("samples", "answers")}
        lines = [f'"{name}": {json.dumps(value)}' for name, value in told.items()]
        for name, rows in tables.items():
            inner = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
            lines.append(f'"{name}": [\n{inner}\n]')
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def table(rows: list[Object]) -> list[list[Any]]:
    """Rows of the same keys as the keys, and the values of each row, to four places."""
    short = [[round(v, 4) if isinstance(v, float) else v for v in row.values()] for row in rows]
    return [list(rows[0]), *short] if rows else []


class ScaleOut:
    """The deployment, Prometheus, clients and watch of one run."""

    def __init__(self, cluster: Cluster, pace: Pace) -> None:
        self._cluster = cluster
        self._pace = pace
        self._plane = cluster.world.plane
        set_rate(self._plane.folder, 0)
        self._ever_ready: set[str] = set()
        self._over = threading.Event()

    def rendered(self) -> list[Object]:
        """What specctl renders, at this run's pace."""
        recipe = load(RECIPE, [f"serving.max_num_seqs={BATCH}", f"scaling.max={MOST}"])
        options = RenderOptions(
            namespace=self._cluster.namespace,
            name=NAME,
            kubernetes=(1, 37),
            prometheus=monitor.URL_INSIDE,
            rules="scaling",
        )
        return [self._pace.applied(body) for body in objects(recipe, options)]

    def deploy(self) -> Run:
        """Apply what was rendered; Prometheus is given its two kinds."""
        made = self.rendered()
        loading = LOADING_S / self._pace.factor
        pace = 1 / self._pace.factor
        self._cluster.pods(Behaviour(load_s=loading, step_factor=STEP_FACTOR, pace=pace))
        for body in made:
            self._cluster.api.apply(body, "specctl")
        chosen = {kind: [b for b in made if b["kind"] == kind] for kind in _MONITORING}
        self._prometheus = Prometheus(self._plane, chosen["PodMonitor"], chosen["PrometheusRule"])
        self._plane.space.start(
            "load",
            sys.executable,
            "-m",
            "tests.support.kube.load",
            self._plane.server_inside,
            self._plane.folder,
            self._cluster.namespace,
            NAME,
        )
        (scaled,) = (body["spec"] for body in made if body["kind"] == "ScaledObject")
        behavior = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        wait = next(t for t in scaled["triggers"] if t["name"] == "queue-wait")
        self.run = Run(
            self._pace.factor,
            float(wait["metadata"]["threshold"]),
            scaled["minReplicaCount"],
            scaled["maxReplicaCount"],
            behavior["scaleDown"]["stabilizationWindowSeconds"],
            loading,
        )
        return self.run

    def watch(self) -> None:
        """Begin to take samples, one a second."""
        self._began = time.time()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def phase(self, name: str, load: float) -> None:
        """Begin a phase: so many requests a second from now on."""
        self.run.phases[name] = time.time() - self._began
        set_rate(self._plane.folder, load)

    def end(self) -> Run:
        """Stop the load and the watch."""
        set_rate(self._plane.folder, 0)
        self._over.set()
        self._thread.join()
        for line in answered(self._plane.folder):
            sent = round(line["sent"] - self._began, 3)
            self.run.answers.append(
                {"sent": sent, "first_s": line["first_s"], "status": line["status"]}
            )
        return self.run

    def _watch(self) -> None:
        while not self._over.is_set():
            self.run.samples.append(self._sample())
            self._over.wait(1.0)

    def _sample(self) -> Sample:
        api, where = self._cluster.api, f'{{namespace="{self._cluster.namespace}"}}'
        pods = api.objects("Pod", {"specctl.dev/deployment": NAME})
        ready, loading, stopping = 0, 0, 0
        for pod in pods:
            name = pod["metadata"]["name"]
            if is_ready(pod):
                self._ever_ready.add(name)
            if "deletionTimestamp" in pod["metadata"]:
                stopping += 1
                if name not in self._ever_ready and name not in self.run.killed_loading:
                    self.run.killed_loading.append(name)
            elif is_ready(pod):
                ready += 1
            else:
                loading += 1
        return Sample(
            round(time.time() - self._began, 2),
            rate_of(self._plane.folder),
            api.get("Deployment", NAME)["spec"]["replicas"],
            ready,
            loading,
            stopping,
            self._prometheus.value(QUEUE_WAIT + where),
            self._prometheus.value(RUNNING + where),
        )

    def until(self, condition: Callable[[Sample], bool], patience_s: float) -> None:
        """Wait for it, for so many seconds at the rendered pace; a test looks whether it came."""
        end = time.monotonic() + patience_s / self._pace.factor
        while time.monotonic() < end:
            if self.run.samples and condition(self.run.samples[-1]):
                return
            time.sleep(0.5)

    def settled(self, seconds: float) -> bool:
        """Whether nothing loaded and the wait was under its target for the last so many seconds.

        At the rendered pace; ten samples at least, as requests do not get shorter with the pace.
        """
        last = self.run.samples[-max(10, round(seconds / self._pace.factor)) :]
        return all(
            not s.loading and s.queue_wait_ms is not None and s.queue_wait_ms < self.run.target_ms
            for s in last
        )

    def wait(self, seconds: float) -> None:
        """Let so many seconds pass, at the rendered pace."""
        time.sleep(seconds / self._pace.factor)


def scale_out(cluster: Cluster, pace: Pace) -> Run:
    """One run from the first pod to the last one that is left."""
    scene = ScaleOut(cluster, pace)
    run = scene.deploy()
    cluster.wait_ready(run.least, patience_s=60.0 + 2 * run.loading_s)
    scene.watch()
    try:
        _play(scene, run)
    finally:
        scene.end()
    return run


def _play(scene: ScaleOut, run: Run) -> None:
    scene.phase("load", LOAD_PER_S)
    scene.wait(240)
    scene.phase("three times the load", 3 * LOAD_PER_S)
    scene.until(lambda s: s.replicas > run.least, 600)
    # Pods load, the queue is worked off, and the rules' window passes.
    scene.until(lambda _: scene.settled(120), 1800)
    scene.phase("the load again", LOAD_PER_S)
    scene.until(
        lambda s: s.replicas == run.least and s.ready == run.least and not s.stopping,
        4 * 900 + 2 * 300,
    )
    scene.wait(60)
