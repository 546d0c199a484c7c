"""Operators who move a deployment while things go wrong: what they type, and what goes wrong."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from speccli.core.kube.client import DEADLINE_S
from speccli.core.manifests.names import METHOD, POOL
from tests.e2e.kube.deploying import PLAIN, RECIPE, Typed
from tests.support.kube.between import Between, changes
from tests.support.kube.cluster import Behaviour, Cluster, until
from tests.support.kube.monitor import Prometheus
from tests.support.kube.nursery import Nursery
from tests.support.kube.space import HOST
from tests.support.processes import environment

Object = dict[str, Any]
MODULES = (
    *("speccli.commands.deploy", "speccli.core.deploy.cluster", "speccli.tables.deploy"),
    *("speccli.commands.fallback", "speccli.commands._fallback_moves"),
    *("speccli.core.fallback.carry", "speccli.core.views.fallback_moves"),
)
AWAY_S = DEADLINE_S + 4.0
"""An absence of the API server in which a call is not answered, and which is waited for."""
SETS = ("serving.shutdown_timeout_s=5", "fallback.canary_drafts=100")
SCALED = (
    *("storage.persist=false", "serving.max_num_seqs=16", "scaling.min=2", "scaling.max=3"),
    *SETS,
)
SERVES = Behaviour(load_s=0.2)
_ports = itertools.count(9200)


class Operators:
    """One who types, and another who writes; of two servers with a warm standby."""

    def __init__(self, cluster: Cluster, folder: Path, cleanup: contextlib.ExitStack) -> None:
        self.typed, self.api = Typed(cluster, folder), cluster.api
        self._folder, self._cleanup = folder, cleanup
        self._absence = cleanup.enter_context(contextlib.ExitStack())
        self.hand = self.another_hand("first")

    def another_hand(self, name: str) -> Nursery:
        """Types commands of the same user, beside those of others."""
        folder = self._folder / name
        folder.mkdir()
        env = environment(**{key: str(value) for key, value in self.typed.env.items()})
        between = Between(self.typed.cluster.kubeconfig, folder)
        self._cleanup.enter_context(between)
        return self._cleanup.enter_context(Nursery(between, folder, env, *MODULES))

    def run(
        self, *words: str, first: str = "", hand: Nursery | None = None
    ) -> CompletedProcess[str]:
        """A command as it is typed."""
        return (hand or self.hand).run([*words, "-o", "json"], first=first)

    def deploy(self) -> None:
        """The deployment."""
        self._deploy(*PLAIN, "--replicas", "2", "--pool", "standby", sets=SETS)

    def deploy_scaled(self) -> Prometheus:
        """The deployment, with KEDA, and with a Prometheus that scrapes it as it is told to."""
        world, port = self.typed.cluster.world, next(_ports)
        world.need_keda()
        words = ("--pool", "standby", "--prometheus", f"http://{HOST}:{port}", "--rules", "scaling")
        self._deploy(*words, sets=SCALED)
        monitors, rules = (self.api.objects(kind) for kind in ("PodMonitor", "PrometheusRule"))
        prometheus = Prometheus(world.plane, monitors, rules, port)
        self._cleanup.callback(prometheus.stop)
        return prometheus

    def _deploy(self, *words: str, sets: tuple[str, ...]) -> None:
        more = [word for each in sets for word in ("--set", each)]
        done = self.run("deploy", RECIPE, "--name", "chat", *words, *more)
        assert done.returncode == 0, done.stderr

    # ---- what goes wrong ----

    def blind(self, *pools: str) -> None:
        """No server of these tells any metrics from now on."""
        told = [replace(SERVES, labels={POOL: pool}, blind=True) for pool in pools]
        self.typed.cluster.pods(SERVES, *told)
        pods = [pod for pool in pools for pod in self.typed.cluster.pod_names({POOL: pool})]
        until(lambda: all(self.api.proxy(p, "metrics")[0] == 503 for p in pods), "no page")

    def goes_away(self) -> None:
        """The API server answers nobody, until `comes_back` or the end of the test."""
        self._absence.enter_context(self.typed.cluster.world.plane.away())

    def comes_back(self) -> None:
        """It answers again, and what was sent to it meanwhile."""
        self._absence.close()

    def is_away_for(self, seconds: float = AWAY_S) -> None:
        """It comes back by itself."""
        self.goes_away()
        timer = threading.Timer(seconds, self.comes_back)
        timer.daemon = True
        timer.start()

    def another_deploys(self) -> None:
        """The first writes of somebody else's: the same again as a revision of theirs."""
        kept = self.api.get("ConfigMap", "chat-specctl")
        record = json.loads(kept["data"]["record.json"])
        theirs = {"revision": record["revision"] + 1, "by": "other@elsewhere"}
        told = json.dumps({**record, **theirs})
        self.api.patch("ConfigMap", "chat-specctl", {"data": {"record.json": told}})
        self.api.patch("Service", "chat", {"metadata": {"annotations": {"by": "other"}}})

    # ---- when ----

    def at_the_write(self, of: str, *does: Callable[[], None]) -> None:
        """Do each when a write to `of` is due, one at a time."""
        self._at(lambda call: changes(call) and f"/{of}?" in call, *does)

    def at_the_switch(self, *does: Callable[[], None]) -> None:
        """Do each when the first one's write to the Service, which moves the traffic, is due."""
        self.at_the_write("services/chat", *does)

    def in_the_trial(self, *does: Callable[[], None]) -> None:
        """Do it when a canary has been compared for some windows; what is next at the switch."""
        looks = itertools.count(1)

        def page(call: str) -> bool:
            asked = re.search(r"/pods/chat-canary-[^/]+/proxy/metrics", call)
            return bool(asked) and next(looks) == _LOOKS

        first, *then = does

        def do() -> None:
            self.at_the_switch(*then)
            first()

        self._at(page, do)

    def _at(self, when: Callable[[str], bool], *does: Callable[[], None]) -> None:
        due = list(does)

        def before(call: str) -> None:
            if due and when(call):
                due.pop(0)()

        self.hand.between.before = before

    # ---- what there is ----

    def written(self) -> dict[str, str]:
        """Versions of what only specctl writes."""
        found = self.typed.owned()
        return {key: found[key] for key in found if key.startswith(("Service/", "ConfigMap/"))}

    def leads_to(self) -> str:
        """Whose pods the Service selects."""
        return str(self.api.get("Service", "chat")["spec"]["selector"]["specctl.dev/service"])

    def see(self, traffic: str) -> None:
        """The record, the Service and the pools are of one mind."""
        record = self.typed.record()
        assert (record["state"], record["proof"]["verdict"]) == ("ready", "proven")
        assert record["options"].get("traffic", "main") == traffic
        assert self.leads_to() == ("chat" if traffic == "main" else f"chat-{traffic}")
        self.see_no_canary()
        drafts = {
            each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"][METHOD]
            for each in self.api.objects("Deployment", {"specctl.dev/deployment": "chat"})
        }
        assert drafts == {"chat": "eagle3", "chat-standby": "ngram"}

    def see_no_canary(self) -> None:
        """It has drained, or there was none."""
        until(lambda: "Deployment/chat-canary" not in self.typed.owned(), "the canary drained")

    def replicas(self) -> dict[str, int]:
        """Of each pool, as its autoscaler has them."""
        found = self.api.objects("Deployment", {"specctl.dev/deployment": "chat"})
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}


_LOOKS = 8
"""Pages of a canary's server: its proof reads some, before any are compared."""


@contextlib.contextmanager
def operating(cluster: Cluster, folder: Path) -> Iterator[Operators]:
    """Operators of a test's cluster."""
    with contextlib.ExitStack() as cleanup:
        yield Operators(cluster, folder, cleanup)
