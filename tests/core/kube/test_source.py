"""A fleet found and read through a scripted API server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from speccli.core.findings import evaluate
from speccli.core.findings.base import Thresholds
from speccli.core.kube.client import Cluster
from speccli.core.kube.errors import ClusterError, Denied, Expired, TimedOut, Unreachable
from speccli.core.kube.source import PodSource
from speccli.core.poll import Poller
from speccli.core.sources.base import Scrape
from speccli.core.stats.window import Settings, Window
from speccli.core.views.state import UiState, severity_of
from speccli.core.views.verdict import verdict
from tests.support.api_server import ApiServer, Question, Reply, status, write_kubeconfig
from tests.support.certs import Certificates
from tests.support.pod_fleet import DIAL, PAGE, Fleet
from tests.support.pods import crashed, loading, pending, ready, terminating, waiting
from tests.support.tunnel import Tunnel


@asynccontextmanager
async def reading(
    api: ApiServer, folder: Path, deadline_s: float = 30.0, call_s: float = 30.0, **given: Any
) -> AsyncIterator[PodSource]:
    path = write_kubeconfig(folder / "k", api.url, **given)
    env = {"HOME": str(folder)}

    def connect() -> Cluster:
        return Cluster.connect(str(path), deadline=call_s, environment=env)

    source = PodSource(connect, "chat", interval_s=0.05, deadline_s=deadline_s)
    try:
        yield source
    finally:
        await source.aclose()


def by_name(scrapes: list[Scrape]) -> dict[str, Scrape]:
    return {scrape.target: scrape for scrape in scrapes}


async def eventually(source: PodSource, wanted: Callable[[dict[str, Scrape]], bool]) -> None:
    """Rounds until one is as wanted."""
    for _ in range(100):
        found = by_name(await source.scrapes())
        if wanted(found):
            return
        await asyncio.sleep(0.03)
    raise AssertionError(f"never as wanted: {found}")


async def test_pods_are_read_and_called_by_their_names(api: ApiServer, tmp_path: Path) -> None:
    api.script = Fleet(ready("chat-a"), ready("chat-b"))
    async with reading(api, tmp_path) as source:
        found = by_name(await source.scrapes())
        assert {name: (s.status, s.body) for name, s in found.items()} == {
            "chat-a": (200, PAGE),
            "chat-b": (200, PAGE),
        }
        assert source.present == {"chat-a", "chat-b"}


async def test_a_pods_pool_and_what_it_was_deployed_with_are_known_of_its_engine(
    api: ApiServer, tmp_path: Path
) -> None:
    mark = {"specctl.dev/deployment": "chat", "specctl.dev/pool": "standby"}
    mark["specctl.dev/spec-method"] = "none"
    api.script = Fleet(ready("chat-a"), ready("chat-standby-a", labels=mark))
    async with reading(api, tmp_path) as source:
        poller = Poller(source, Window(Settings()), now=time.time)
        await poller.round()
        snapshot = await poller.unheard()
        assert {e.target: e.pool for e in snapshot.engines} == {
            "chat-a": None,
            "chat-standby-a": "standby",
        }
        assert [e.meant for e in snapshot.engines] == [None, "none"]


async def test_pods_that_are_not_there_yet_are_not_down(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("up"), loading("load"), pending("wait"), terminating("end"), crashed("bad"))
    refused = status(503, "ServiceUnavailable", DIAL)
    fleet.pages = {"load": refused, "end": refused}
    api.script = fleet
    async with reading(api, tmp_path) as source:
        poller = Poller(source, Window(Settings()), now=time.time)
        await poller.round()
        snapshot = await poller.unheard()
        assert {e.target: e.state for e in snapshot.engines} == {
            "up": "ok",
            "load": "loading",
            "wait": "pending",
            "end": "terminating",
            "bad": "down",
        }
        (waits,) = [e for e in snapshot.engines if e.target == "wait"]
        assert waits.reason == (
            "0 of 5 nodes can take it: 2 with too few free nvidia.com/gpu; "
            "3 with the taint node-role.kubernetes.io/control-plane:"
        )
        assert waits.fix is not None
        assert "free GPUs" in waits.fix


@pytest.mark.parametrize(
    ("pods", "word", "said"),
    [
        pytest.param([loading("a"), loading("b")], "LOADING", "2 loading", id="loading"),
        pytest.param([pending("a"), loading("b")], "PENDING", "1 pending, 1 loading", id="pending"),
        pytest.param([crashed("a", code=139)], "CRITICAL", "crashed 3 times", id="crashed"),
        pytest.param([], "PENDING", "it has no pods", id="none"),
    ],
)
async def test_what_the_screen_says_first(
    api: ApiServer, tmp_path: Path, pods: list[Any], word: str, said: str
) -> None:
    fleet = Fleet(*pods)
    refused = status(503, "ServiceUnavailable", DIAL)
    fleet.pages = {"a": refused, "b": refused}
    api.script = fleet
    async with reading(api, tmp_path) as source:
        poller = Poller(source, Window(Settings()), now=time.time)
        await poller.round()
        snapshot = await poller.unheard()
        told = verdict(snapshot, evaluate(snapshot, Thresholds()), UiState(), time.time())
        assert told.word == word
        assert said in told.text


async def test_a_rollout_on_its_way_is_no_trouble(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"), loading("b"))
    fleet.pages["b"] = status(503, "ServiceUnavailable", DIAL)
    api.script = fleet
    async with reading(api, tmp_path) as source:
        poller = Poller(source, Window(Settings()), now=time.time)
        await poller.round()
        snapshot = await poller.unheard()
        assert evaluate(snapshot, Thresholds(hold_s=1.0)) == ()
        assert {severity_of(e, {})[0] for e in snapshot.engines} == {"ok", "unknown"}


async def test_a_ready_pod_that_does_not_answer_is_down(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"), ready("b"))
    fleet.pages["a"] = status(503, "ServiceUnavailable", DIAL)
    api.script = fleet
    async with reading(api, tmp_path) as source:
        found = by_name(await source.scrapes())
        assert (found["a"].error, found["a"].stage) == ("connect refused", None)
        assert found["b"].status == 200


async def test_what_a_pod_itself_answers_is_its_answer(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"))
    fleet.pages["a"] = Reply(500, b"Internal Server Error")
    api.script = fleet
    async with reading(api, tmp_path) as source:
        (scrape,) = await source.scrapes()
        assert (scrape.status, scrape.error) == (500, None)


async def test_a_crashed_pod_says_why_and_what_to_do(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(crashed("a"))
    fleet.logs["a"] = (
        "ValueError: To serve at least one request with the model's max seq len (131072), (40.0 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (12.5 GiB). "
        "Based on the available memory, the estimated maximum model length is 40960. Try"
    )
    api.script = fleet
    async with reading(api, tmp_path) as source:
        await eventually(source, lambda found: "131072" in (found["a"].error or ""))
        (scrape,) = await source.scrapes()
        assert scrape.error == (
            "crashed 3 times: one request of 131072 tokens needs 40.0 GiB of KV cache, "
            "and 12.5 GiB are left"
        )
        assert scrape.fix is not None
        assert scrape.fix.startswith("--max-model-len 40960 fits")


async def test_a_loading_pod_says_how_far_it_has_come(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(loading("a"))
    fleet.pages["a"] = status(503, "ServiceUnavailable", DIAL)
    fleet.logs["a"] = (
        "INFO Starting to load model m...\nLoading safetensors checkpoint shards:  45% Completed"
    )
    api.script = fleet
    async with reading(api, tmp_path) as source:
        await eventually(source, lambda found: found["a"].error == "loading the weights 45 %")


async def test_a_pod_that_became_ready_while_it_was_asked_is_not_down(
    api: ApiServer, tmp_path: Path
) -> None:
    fleet = Fleet(ready("a"), loading("b"))
    late = status(503, "ServiceUnavailable", DIAL)
    late.slow_s = 1.5
    fleet.pages["b"] = late
    api.script = fleet
    async with reading(api, tmp_path, deadline_s=30.0) as source:
        await source.soon()
        fleet.change("MODIFIED", ready("b"))
        found: list[Scrape] = []
        async with asyncio.timeout(60):
            while not found:
                found = [each for each in await source.soon() if each.target == "b"]
                await asyncio.sleep(0.02)
        assert found[0].stage == "loading", found[0].error


async def test_pods_come_and_go(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"))
    api.script = fleet
    async with reading(api, tmp_path) as source:
        poller = Poller(source, Window(Settings()), now=time.time)
        await poller.round()
        fleet.change("ADDED", ready("b"))
        await eventually(source, lambda found: set(found) == {"a", "b"})
        fleet.change("DELETED", fleet.pods["a"])
        await eventually(source, lambda found: set(found) == {"b"})
        poller.take(await source.scrapes())
        snapshot = poller.snapshot()
        assert [e.target for e in snapshot.engines] == ["b"]
        assert ("a/0", "gone from the source") in [(e.subject, e.text) for e in snapshot.events]


async def test_a_watch_that_is_too_old_lists_again(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"))
    api.script = fleet
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    async with reading(api, tmp_path) as source:
        await source.scrapes()
        fleet.pods["b"] = ready("b")  # nobody is told
        fleet.changes.append(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
        await eventually(source, lambda found: set(found) == {"a", "b"})


async def test_where_pods_may_not_be_watched_they_are_listed_again(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccli.core.kube.watch.LIST_EVERY_S", 0.05)
    fleet = Fleet(ready("a"))

    def script(asked: Question) -> Reply | None:
        if asked.query.get("watch"):
            return status(403, "Forbidden", "no")
        return fleet(asked)

    api.script = script
    async with reading(api, tmp_path) as source:
        await source.scrapes()
        fleet.pods["b"] = ready("b")
        await eventually(source, lambda found: set(found) == {"a", "b"})


async def test_a_deployment_without_pods_says_so(api: ApiServer, tmp_path: Path) -> None:
    api.script = Fleet()
    async with reading(api, tmp_path) as source:
        (scrape,) = await source.scrapes()
        assert (scrape.target, scrape.error, scrape.stage) == ("chat", "it has no pods", "pending")


async def test_an_image_that_cannot_be_pulled_says_so(api: ApiServer, tmp_path: Path) -> None:
    said = 'failed to pull "vllm/vllm-openai:v0.99": manifest unknown'
    api.script = Fleet(waiting("a", "ImagePullBackOff", said))
    async with reading(api, tmp_path) as source:
        (scrape,) = await source.scrapes()
        assert (scrape.stage, scrape.error) == ("pending", "the registry has no such image")


async def test_one_pod_that_hangs_holds_up_nobody(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"), ready("b"))
    fleet.pages["a"] = Reply(body=PAGE, slow_s=12.0)
    api.script = fleet
    async with reading(api, tmp_path, deadline_s=1.5) as source:
        began = time.monotonic()
        found = by_name(await source.scrapes())
        assert time.monotonic() - began < 10.0
        assert found["a"].error == "no answer within 1.5 s"
        assert found["b"].status == 200


async def test_an_api_server_that_goes_away_is_no_pods_fault(
    api: ApiServer, tmp_path: Path, certificates: Certificates
) -> None:
    with ApiServer(Fleet(ready("a"))) as server:
        async with reading(server, tmp_path) as source:
            await source.scrapes()
            server.stop()
            with pytest.raises(Unreachable, match="cannot reach the API server"):
                await source.scrapes()


async def test_an_api_server_that_hangs_is_no_pods_fault(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccli.core.kube.source._STILL_S", 0.2)
    fleet = Fleet(ready("a"), ready("b"))
    api.script = fleet
    async with reading(api, tmp_path, deadline_s=3.0, call_s=4.0) as source:
        await source.scrapes()

        def hang(asked: Question) -> Reply | None:
            time.sleep(8.0)
            return None

        api.script = hang
        with pytest.raises(TimedOut, match="no answer from the API server"):
            await source.scrapes()


async def test_credentials_are_renewed_once_for_all(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(*(ready(f"p{i}") for i in range(5)))
    api.script = fleet
    async with reading(api, tmp_path) as source:
        await source.scrapes()
        fleet.token = "newer"
        write_kubeconfig(tmp_path / "k", api.url, user={"token": "newer"})
        assert {s.status for s in await source.scrapes()} == {200}
        fleet.token = "another"
        with pytest.raises(Expired, match="does not accept the credentials"):
            await source.scrapes()


async def test_who_may_not_ask_pods_is_told_once(api: ApiServer, tmp_path: Path) -> None:
    said = (
        'pods "a" is forbidden: User "sre" cannot get resource "pods/proxy" in API group "" '
        'in the namespace "prod"'
    )
    fleet = Fleet(ready("a"), ready("b"))
    fleet.pages = dict.fromkeys("ab", status(403, "Forbidden", said))
    api.script = fleet
    async with reading(api, tmp_path) as source:
        with pytest.raises(Denied, match="sre may not get pods/proxy in namespace prod"):
            await source.scrapes()


async def test_over_tls_with_a_client_certificate_and_another_name(
    tmp_path: Path, certificates: Certificates
) -> None:
    user = {
        "client-certificate": str(certificates.pem("client")),
        "client-key": str(certificates.key("client")),
    }
    cluster = {"certificate-authority": str(certificates.ca), "tls-server-name": "other.example"}
    fleet = Fleet(ready("a"))
    tls = certificates.server("other", clients=True)

    def script(asked: Question) -> Reply | None:
        return fleet(Question(**{**vars(asked), "headers": {"authorization": "Bearer t0k"}}))

    with ApiServer(script, tls=tls) as api:
        async with reading(api, tmp_path, user=user, cluster=cluster) as source:
            assert [s.status for s in await source.scrapes()] == [200]


async def test_through_a_proxy_of_the_kubeconfig(api: ApiServer, tmp_path: Path) -> None:
    fleet = Fleet(ready("a"))
    with ApiServer(fleet) as proxy:  # it answers in the API server's place
        async with reading(api, tmp_path, cluster={"proxy-url": proxy.url}) as source:
            assert [s.status for s in await source.scrapes()] == [200]
    assert api.asked == []


async def test_tls_goes_through_a_proxy_untouched(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Tunnel() as proxy, ApiServer(Fleet(ready("a")), tls=certificates.server()) as api:
        monkeypatch.setenv("https_proxy", proxy.url)
        cluster = {"certificate-authority": str(certificates.ca)}
        async with reading(api, tmp_path, cluster=cluster) as source:
            assert [s.status for s in await source.scrapes()] == [200]
        assert set(proxy.asked) == {f"CONNECT 127.0.0.1:{api.port}"}
        assert len(proxy.asked) >= 2  # of the client, and of the scraping


async def test_a_socks_proxy_is_said_to_be_one(api: ApiServer, tmp_path: Path) -> None:
    proxy = {"proxy-url": "socks5://user:pass@127.0.0.1:9"}
    async with reading(api, tmp_path, cluster=proxy) as source:
        with pytest.raises(ClusterError, match="socks5://127.0.0.1:9") as raised:
            await source.scrapes()
    assert "pass" not in str(raised.value)
