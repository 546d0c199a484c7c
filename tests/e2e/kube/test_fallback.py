"""A draft gone bad on a real control plane, with KEDA and Prometheus: retreat, and the way back."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.clients import Answer, Clients
from tests.e2e.kube.deploying import Typed
from tests.support.kube.cluster import Behaviour, Cluster, until
from tests.support.kube.monitor import Prometheus
from tests.support.kube.space import HOST

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.slow]
Object = dict[str, Any]
POOL = "specctl.dev/pool"
MAIN, STANDBY, CANARY = ({POOL: name} for name in ("main", "standby", "canary"))
PORT = 9191
SLOWLY = Behaviour(pace=0.1)
"""Servers are left for longer than clients take to see that they leave."""
RATE = 14.0
"""Requests a second."""
SETS = (
    "storage.persist=false",
    "serving.shutdown_timeout_s=40",
    "serving.max_num_seqs=16",
    "scaling.min=2",
    "scaling.max=3",
    "fallback.canary_drafts=400",
)


@pytest.fixture
def typed(cluster: Cluster, tmp_path: Path) -> Typed:
    return Typed(cluster, tmp_path)


def changed(*sets: str) -> list[str]:
    return [word for each in sets for word in ("--set", each)]


def leads_to(cluster: Cluster) -> str:
    selector = cluster.api.get("Service", "chat")["spec"]["selector"]
    return str(selector["specctl.dev/service"])


def addresses(cluster: Cluster, labels: dict[str, str]) -> set[str]:
    return {pod["status"]["podIP"] for pod in cluster.api.objects("Pod", labels)}


def run(typed: Typed, *words: str, code: int = 0) -> Object:
    done = typed(*words, "-o", "json")
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}"
    told: Object = json.loads(done.stdout)
    return told


def files(typed: Typed, name: str) -> dict[str, str]:
    """What `--out` writes."""
    folder = Path(str(typed.env["SPECCTL_STATE"])).parent / name
    run(typed, "fallback", "apply", "chat", "--out", str(folder))
    return {path.name: path.read_text() for path in folder.iterdir()}


def unmoved(typed: Typed) -> dict[str, str]:
    """Versions of what only specctl writes: the rest has a status, or a controller."""
    found = typed.owned()
    return {name: found[name] for name in found if name.startswith(("Service/", "ConfigMap/"))}


def all_well(answers: list[Answer]) -> None:
    assert [each for each in answers if each.status != 200] == []


def watched(typed: Typed) -> Prometheus:
    """A Prometheus that scrapes and records as the rendered objects say."""
    api = typed.cluster.api
    monitors, rules = (api.objects(kind) for kind in ("PodMonitor", "PrometheusRule"))
    return Prometheus(typed.cluster.world.plane, monitors, rules, PORT)


def gone_bad(cluster: Cluster) -> None:
    """Nothing of the main pool's draft is accepted any more."""
    cluster.pods(SLOWLY, Behaviour(MAIN, acceptance=0.0, pace=0.1))
    for name in cluster.pod_names(MAIN):
        cluster.api.delete("Pod", name)
    until(lambda: cluster.pod_names(MAIN), "other pods")


def ready(cluster: Cluster, labels: dict[str, str], count: int) -> None:
    def there() -> bool:
        pods = cluster.api.objects("Pod", labels)
        up = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
        return len(up) == len(pods) == count and all(
            c["status"] == "True"
            for p in up
            for c in p["status"].get("conditions", [])
            if c["type"] == "Ready"
        )

    until(there, f"{count} pods of {labels}")


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  {text}")


def test_a_bad_draft_is_left_for_the_warm_standby_and_comes_back_through_a_canary(
    typed: Typed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = typed.cluster
    cluster.world.need_keda()
    cluster.pods(SLOWLY)
    words = ("--pool", "standby", "--prometheus", f"http://{HOST}:{PORT}", "--rules", "scaling")
    told = typed.deploy(*words, *changed(*SETS), plain=False)
    assert told["proof"]["verdict"] == "proven"
    watched(typed)
    ready(cluster, MAIN, 2)
    gone_bad(cluster)
    ready(cluster, MAIN, 2)
    with Clients(cluster, "chat", tmp_path / "clients", RATE) as clients:
        clients.wait_for(60)
        _left(typed, clients, capsys)
        _not_taken_back(typed, clients)
        _taken_back(typed, clients, capsys)
        answers = clients.end()
    all_well(answers)
    assert len(answers) > 400
    say(capsys, f"{len(answers)} requests, none failed")


def _left(typed: Typed, clients: Clients, capsys: pytest.CaptureFixture[str]) -> None:
    """Finding, plan, switch."""
    cluster = typed.cluster
    place = ("--deployment", "chat", "-n", cluster.namespace)
    began = time.time()
    found = run(typed, "alert", "check", *place, code=2)
    assert "ZERO_ACCEPTANCE" in json.dumps(found)
    plan = run(typed, "fallback", "plan", "chat")
    assert (plan["advised"], plan["move"]["means"]["mechanism"]) == (True, "traffic")
    before = unmoved(typed)
    shown = run(typed, "fallback", "apply", "chat", "--dry-run")
    assert unmoved(typed) == before, "a dry run changes nothing"
    assert shown["move"]["parts"][-1]["calls"][1] == {"verb": "change", "what": "Service chat"}

    written = [files(typed, folder) for folder in ("one", "other")]
    assert written[0] == written[1]
    assert "specctl.dev/service: chat-standby" in written[0]["service-chat.yaml"]
    assert unmoved(typed) == before

    moved = run(typed, "fallback", "apply", "chat")
    assert (moved["move"]["mechanism"], moved["move"]["end"]) == ("switch", "moved")
    assert moved["proof"]["verdict"] == "proven"
    assert leads_to(cluster) == "chat-standby"
    clients.wait_for(60)
    standby = addresses(cluster, STANDBY)
    elsewhere = [a.sent for a in clients.answers() if a.host not in standby]
    assert [a for a in clients.answers()[-40:] if a.host not in standby] == []
    # The servers that the load needs were there first, although one was enough to be warm.
    assert len(standby) >= 2
    assert 2 <= typed.record()["options"]["raised"]["standby"] <= len(standby)
    took, move = max(elsewhere) - began, moved["move"]["seconds"]
    say(capsys, f"recovered {took:.1f} s after the first look, {move:.1f} s of it the move")


def _not_taken_back(typed: Typed, clients: Clients) -> None:
    """The draft is as bad as before, or slow, or serves none."""
    cluster = typed.cluster
    cluster.pods(SLOWLY, Behaviour(CANARY, acceptance=0.0, pace=0.1))
    refused = run(typed, "fallback", "restore", "chat", code=2)
    assert refused["restore"]["verdict"] == "refused"
    assert refused["restore"]["refusals"] == 1
    cluster.pods(SLOWLY, Behaviour(CANARY, step_factor=3.0, pace=0.1))
    slow = run(typed, "fallback", "restore", "chat", "--force", "--window", "1s", code=2)
    assert "slower per token than its siblings" in slow["restore"]["words"]
    assert slow["restore"]["comparison"]["slower"] > 0.05
    assert "refused 2 times, it stays down" in slow["restore"]["words"]
    before = unmoved(typed)
    kept = run(typed, "fallback", "restore", "chat", code=2)
    assert "stays down until its draft or the recipe changes" in kept["restore"]["words"]
    assert unmoved(typed) == before
    assert leads_to(cluster) == "chat-standby"
    until(lambda: "Deployment/chat-canary" not in typed.owned(), "the canary drained")


def _taken_back(typed: Typed, clients: Clients, capsys: pytest.CaptureFixture[str]) -> None:
    """The draft was mended in place: the servers that loaded the bad one are started anew."""
    cluster = typed.cluster
    cluster.pods(SLOWLY)
    began = time.time()
    told = run(typed, "fallback", "restore", "chat", "--force", "--window", "1s")
    assert told["restore"]["verdict"] == "passed", told["restore"]
    assert told["restore"]["comparison"]["acceptance"] > 0.4
    assert leads_to(cluster) == "chat"
    now = typed.record()
    assert now["state"] == "ready"
    assert now["restores"] in {1, 2}, "as it was, or as it was when the standby got its servers"
    clients.wait_for(60)
    main = addresses(cluster, MAIN)
    assert [a for a in clients.answers()[-40:] if a.host not in main] == []
    took = time.time() - began
    say(capsys, f"the draft came back in {took:.1f} s, canary and restart included")
