"""The faults of `benchmarks/ladder.py`, and one run of one of them on a control plane.

Real: the API server, scheduler and controllers, `specctl deploy` and `specctl fallback watch
--auto`. Simulated: engines and GPUs. Clients are a closed loop (tests/support/kube/clients.py).
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.ladder_figures import END_S, GPU_HOUR_USD, run_of
from speccli.core.baseline.model import Baseline, BatchSpeed, Key, dumps
from speccli.core.sim.config import Acceptance, SimConfig, StepCost, Traffic
from speccli.core.sim.config import default_acceptance as usual
from speccli.core.sim.engine import SimEngine
from tests.e2e.kube.deploying import PLAIN, RECIPE
from tests.support.kube import clients
from tests.support.kube.cluster import Behaviour, Cluster, World
from tests.support.processes import started

Object = dict[str, Any]
NAME = "chat"
GPUS_PER_POD = 2
CLIENTS = 24
LOAD_S = 10.0
"""How long an engine loads; an 8B and a 32B took 125 to 155 s."""
TERMS = {"hold": "10s", "cool_down": "1m"}
"""Of the recipe's `fallback`; the defaults are 5m and 30m."""
EVERY_S = 2.0
BEFORE_S = 20.0
MAIN, DRAFTS = {"specctl.dev/pool": "main"}, "eagle3"
OLD, NEW = "a" * 40, "b" * 40
LOADING_FAILS = """\
(EngineCore pid=1) ERROR 11-30 12:00:01 [core.py:842] Traceback (most recent call last):
(EngineCore pid=1) ERROR 11-30 12:00:01 [core.py:842] KeyError: 'layers.0.hidden_norm.weight'
"""
GRAMMAR_FAILS = """\
(EngineCore pid=1) ERROR 11-30 12:00:01 [core.py:842] Traceback (most recent call last):
(EngineCore pid=1) ERROR 11-30 12:00:01 [core.py:842]   in grammar.validate_tokens(draft_token_ids)
(EngineCore pid=1) ERROR 11-30 12:00:01 [core.py:842] AssertionError
"""


@dataclass(frozen=True)
class Fault:
    """One of the field's, and how it is made."""

    code: str
    words: str
    inject: Callable[[Scene], None]
    replicas: int = 2
    standby: bool = True
    """Whether the ladder has a warm pool; else a move replaces pods."""
    after_s: float = 60.0
    sets: tuple[str, ...] = ()
    rule: Behaviour = field(default_factory=lambda: Behaviour(load_s=LOAD_S, pace=0.2))
    """What every engine does."""
    baseline: Callable[[], Baseline] | None = None
    end_s: float = END_S
    watch_late: bool = False
    """Whether the watch begins with the fault: what is judged over minutes has no minutes here."""


class Scene:
    """One deployment, its clients and, perhaps, its watch."""

    def __init__(self, cluster: Cluster, folder: Path, fault: Fault, *, ladder: bool) -> None:
        self.cluster, self.fault, self.ladder = cluster, fault, ladder
        self._folder, self._asked = folder, {"clients": 0, "grammar": 0.0, "tokens": 128}
        self._plane = cluster.world.plane
        place = self._plane.folder, cluster.namespace
        self._orders, self._report = clients.asked(*place), clients.told(*place)
        self._env: dict[str, Any] = {
            "KUBECONFIG": str(cluster.kubeconfig),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "SPECCTL_STATE": str(folder / "state"),
        }
        self._gpus: list[tuple[float, int]] = []
        self._over = threading.Event()

    def behave(self, **more: Any) -> None:
        """What engines with the trained draft do from now on."""
        rule = self.fault.rule
        self.cluster.pods(rule, replace(rule, contains=DRAFTS, **more) if more else rule)

    def ask(self, **more: Any) -> None:
        """What clients ask for from now on."""
        self._asked.update(more)
        fresh = self._orders.with_suffix(".new")
        fresh.write_text(json.dumps(self._asked))
        fresh.replace(self._orders)

    def deploy(self, *sets: str) -> Object:
        """Deploy it, as it is typed."""
        pool = ("--pool", "standby") if self.fault.standby and self.ladder else ()
        given = (
            f"cost.gpu_hour_usd={GPU_HOUR_USD:g}",
            "alerts.hold=10s",
            *(f"fallback.{key}={value}" for key, value in TERMS.items()),
            *self.fault.sets,
            *sets,
        )
        words = [word for each in given for word in ("--set", each)]
        more = ("--replicas", str(self.fault.replicas), *PLAIN, *pool, *words, "-o", "json")
        with started("deploy", RECIPE, "--name", NAME, *more, **self._env) as process:
            out, said = process.communicate()
        assert out, said
        told: Object = json.loads(out)
        return told

    def run(self) -> Object:
        """From its deployment to what the clients got."""
        self.behave()
        self.ask()
        told = self.deploy()
        assert told["exit"] == 0, told
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._clients())
            stack.enter_context(self._counted())
            if not self.fault.watch_late:
                watching = stack.enter_context(self._watching())
            self.ask(clients=CLIENTS)
            time.sleep(8.0)
            begins = time.time()
            time.sleep(BEFORE_S)
            at = time.time()
            self.fault.inject(self)
            if self.fault.watch_late:
                watching = stack.enter_context(self._watching())
            time.sleep(max(0.0, self.fault.after_s - (time.time() - at)))
            ends = time.time()
        lines = self._report.read_text().splitlines()
        sent = [json.loads(each) for each in lines]
        moves = [_move(each, at) for each in watching]
        gpus = [(when - at, count) for when, count in self._gpus]
        return run_of(sent, moves, gpus, begins - at, at, ends - at, self.fault.end_s)

    @contextlib.contextmanager
    def _clients(self) -> Iterator[None]:
        self._report.write_text("")
        process = self._plane.space.start(
            f"clients-{self.cluster.namespace}",
            sys.executable,
            "-m",
            "tests.support.kube.clients",
            self._plane.server_inside,
            self._plane.folder,
            self.cluster.namespace,
            NAME,
        )
        try:
            yield
        finally:
            self._plane.space.stop(process)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count GPUs that are held, once a second: by every pod on a node, whatever it does."""

        def count() -> None:
            while not self._over.wait(1.0):
                with contextlib.suppress(OSError):
                    pods = self.cluster.api.objects("Pod", {"specctl.dev/deployment": NAME})
                    held = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
                    self._gpus.append((time.time(), GPUS_PER_POD * held))

        thread = threading.Thread(target=count)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    @contextlib.contextmanager
    def _watching(self) -> Iterator[list[Object]]:
        """The watch, where there is a ladder; afterwards its lines."""
        lines: list[Object] = []
        if not self.ladder:
            yield lines
            return
        more: tuple[str | Path, ...] = ()
        if self.fault.baseline is not None:
            path = self._folder / "baseline.json"
            path.write_text(dumps(self.fault.baseline()))
            more = ("--baseline", path)
        every = ("--every", f"{EVERY_S:g}s", "--listen", "none")
        process = started("fallback", "watch", NAME, "--auto", *every, *more, **self._env)
        try:
            yield lines
        finally:
            process.send_signal(signal.SIGTERM)
            out, said = process.communicate(timeout=60)
            print(said, file=sys.stderr)
            lines += [json.loads(line) for line in out.splitlines()]


def _move(told: Object, at: float) -> Object:
    when = datetime.fromisoformat(told["at"]).timestamp() - at
    kept = {key: told[key] for key in ("what", "from", "to", "code", "seconds", "words")}
    return {"after_s": round(when, 1), **kept}


# ---- the faults ----

CROSSING = StepCost(token_s=0.0004)
"""With it K = 3 is slower than no draft above a batch of 64; an 8B and a 32B on an H200 were
measured to cross between 64 and 128."""
LARGE = 128


def plain_speed(batch: int, seconds: float = 60.0) -> float:
    """Tokens a second of such an engine without speculation, at so many clients."""
    now = 0.0
    traffic = Traffic(clients=batch, prompt_mean=250, output_mean=128)
    config = SimConfig(
        "none", 0, Acceptance(()), draft=None, cost=CROSSING, traffic=traffic, max_num_seqs=256
    )
    engine = SimEngine(config, lambda: now)
    engine.advance(seconds)
    before = engine.ledger.generation_tokens
    engine.advance(2 * seconds)
    return (engine.ledger.generation_tokens - before) / seconds


def _baseline(**key: Any) -> Baseline:
    chances = usual("eagle3", 3).unconditional
    rate = sum(chances) / len(chances)
    known = Key(method="eagle3", k=3, **key)
    return Baseline("before", known, rate, 1 + sum(chances), chances, 1e5, simulated=True)


def crossing() -> Baseline:
    """What a bench of the arm without speculation would have told."""
    plain = tuple(BatchSpeed(float(b), plain_speed(b), 60.0) for b in (32, 64, LARGE))
    return replace(_baseline(), plain=plain)


def behind() -> Baseline:
    """Recorded before the target was updated."""
    from speccli.core.recipes.load import load

    return _baseline(target_revision=OLD, draft=load(RECIPE, []).draft.model)


def _gone_bad(scene: Scene) -> None:
    scene.behave(acceptance=0.0)


def _fails_to_load(scene: Scene) -> None:
    scene.behave(crash_log=LOADING_FAILS, crash_at="drafter")
    for name in scene.cluster.pod_names(MAIN):
        scene.cluster.api.delete("Pod", name, grace_s=0)


def _grammar(scene: Scene) -> None:
    rule = scene.fault.rule
    scene.cluster.pods(replace(rule, grammar_log=GRAMMAR_FAILS))  # whatever drafts
    scene.ask(grammar=0.02)


def _large_batch(scene: Scene) -> None:
    scene.ask(clients=LARGE)


def _target_updated(scene: Scene) -> None:
    rule = scene.fault.rule
    drafting = replace(rule, contains=NEW, acceptance=0.5)
    plain = replace(rule, contains='"ngram"')
    scene.cluster.pods(rule, drafting, plain)
    scene.deploy(f"target.revision={NEW}")


FAULTS = (
    Fault("bad", "draft gone bad: nothing is accepted any more", _gone_bad),
    Fault(
        "load",
        "draft fails to load: servers restart after an upgrade",
        _fails_to_load,
    ),
    Fault(
        "grammar",
        "a grammar crashes whatever speculates (2 % of requests have one)",
        _grammar,
        after_s=180.0,
    ),
    Fault(
        "batch",
        "batch above the crossover: 24 clients become 128, on one server",
        _large_batch,
        replicas=1,
        standby=False,
        after_s=100.0,
        sets=("serving.max_num_seqs=256",),
        rule=Behaviour(load_s=LOAD_S, pace=0.2, token_s=CROSSING.token_s),
        baseline=crossing,
        end_s=40.0,
        watch_late=True,
    ),
    Fault(
        "behind",
        "draft a version behind: the target is updated, acceptance 0.74 becomes 0.50",
        _target_updated,
        after_s=130.0,
        sets=(f"target.revision={OLD}",),
        baseline=behind,
    ),
)


def measured(world: World, folder: Path, fault: Fault, *, ladder: bool) -> Object:
    """One run in a namespace of its own."""
    folder.mkdir(parents=True)
    with Cluster(world) as cluster:
        found = Scene(cluster, folder, fault, ladder=ladder).run()
    return {"fault": fault.code, "ladder": ladder, "standby": fault.standby and ladder, **found}
