"""The HTTP side: pages, probes, configuration, and every way of being wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from speccli.core.sim import Change, Fault, Scenario, build_fleet
from speccli.core.sim.server import SimServer
from tests.core.sim.conftest import ManualClock


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        yield session


async def get(
    client: aiohttp.ClientSession, url: str, **options: object
) -> tuple[int, str, dict[str, str]]:
    async with client.get(url, **options) as answer:  # type: ignore[arg-type]
        return answer.status, await answer.text(), dict(answer.headers)


async def test_each_server_has_a_port_and_its_own_numbers(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(3, clock=clock, warmup_s=5)
    async with SimServer(fleet) as server:
        assert len(set(server.urls)) == 3
        for url, replica in zip(server.urls, fleet.replicas, strict=True):
            status, body, headers = await get(client, f"{url}/metrics")
            assert status == 200
            assert body.encode() == replica.metrics()
            assert headers["x-specctl-simulated"] == "1"
            assert headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_the_small_endpoints(clock: ManualClock, client: aiohttp.ClientSession) -> None:
    async with SimServer(build_fleet(1, clock=clock, version="0.24.0")) as server:
        base = server.urls[0]
        assert (await get(client, f"{base}/health"))[:2] == (200, "")
        assert (await get(client, f"{base}/ping"))[0] == 200
        assert (await get(client, f"{base}/nothing"))[0] == 404
        async with client.get(f"{base}/version") as answer:
            assert await answer.json() == {"version": "0.24.0", "simulated": True}
        async with client.get(f"{base}/v1/models") as answer:
            (card,) = (await answer.json())["data"]
            assert card["id"] == "SIMULATED/llama-3.3-70b"
            assert card["max_model_len"] == 8192


@pytest.mark.parametrize(
    ("method", "said", "parallel"),
    [("eagle3", "eagle3", False), ("p-eagle", "eagle3", True), ("ngram", "ngram", False)],
)
async def test_server_info_names_the_method_as_vllm_does(
    clock: ManualClock, client: aiohttp.ClientSession, method: str, said: str, parallel: bool
) -> None:
    fleet = build_fleet(1, clock=clock, method=method, k=4)  # type: ignore[arg-type]
    async with (
        SimServer(fleet) as server,
        client.get(f"{server.urls[0]}/server_info?config_format=json") as answer,
    ):
        config = (await answer.json())["vllm_config"]
    spec = config["speculative_config"]
    assert (spec["method"], spec["num_speculative_tokens"]) == (said, 4)
    assert spec["parallel_drafting"] is parallel
    assert (spec["model"] is None) == (method == "ngram")
    assert config["parallel_config"]["tensor_parallel_size"] == 4


async def test_without_speculation_server_info_has_none(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(1, clock=clock, method="none")
    async with (
        SimServer(fleet) as server,
        client.get(f"{server.urls[0]}/server_info") as answer,
    ):
        assert (await answer.json())["vllm_config"]["speculative_config"] is None


async def test_one_port_serves_many_by_path_and_all_on_one_page(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(20, clock=clock, warmup_s=5, fluid=True)
    async with SimServer(fleet, single_port=True) as server:
        assert len({url.split("/e/")[0] for url in server.urls}) == 1
        status, body, _ = await get(client, f"{server.urls[17]}/metrics")
        assert (status, body.encode()) == (200, fleet.replicas[17].metrics())
        assert (await get(client, f"{server.urls[0]}/health"))[0] == 200
        status, body, _ = await get(client, server.fleet_url)
        assert body.count('vllm:num_requests_running{engine="0",instance="sim-') == 20
        status, body, _ = await get(client, f"{server.fleet_url}?shard=1&shards=4")
        assert body.count('vllm:num_requests_running{engine="0",instance="sim-') == 5
        root = server.fleet_url.removesuffix("/fleet/metrics")
        for wrong in ("/metrics", "/e/20/metrics", "/e/x/metrics"):
            assert (await get(client, root + wrong))[0] == 404
        for wrong in ("shard=4&shards=4", "shard=x", "shard=-1"):
            assert (await get(client, f"{server.fleet_url}?{wrong}"))[0] == 400


async def test_a_scrape_sees_the_present(clock: ManualClock, client: aiohttp.ClientSession) -> None:
    fleet = build_fleet(1, clock=clock, warmup_s=5)
    async with SimServer(fleet) as server:
        _, before, _ = await get(client, f"{server.urls[0]}/metrics")
        clock.now += 5
        _, after, _ = await get(client, f"{server.urls[0]}/metrics")
    assert before != after


@pytest.mark.parametrize(
    ("fault", "status", "begin", "end"),
    [
        pytest.param(Fault.ERROR_500, 500, "Internal Server Error", "", id="500"),
        pytest.param(Fault.HTML, 200, "<!DOCTYPE html>", "", id="login-page"),
        pytest.param(Fault.REDIRECT, 307, "", "", id="redirect"),
        pytest.param(Fault.EMPTY, 200, "", "", id="empty"),
        pytest.param(Fault.CUT, 200, "# SIMULATED", 'model_name="SIM', id="cut-in-a-label"),
    ],
)
async def test_faults_that_answer(
    clock: ManualClock,
    client: aiohttp.ClientSession,
    fault: Fault,
    status: int,
    begin: str,
    end: str,
) -> None:
    fleet = build_fleet(1, clock=clock)
    fleet.replicas[0].fault = fault
    async with SimServer(fleet) as server:
        url = f"{server.urls[0]}/metrics"
        seen, body, headers = await get(client, url, allow_redirects=False)
        assert seen == status
        assert body.startswith(begin)
        assert body.endswith(end)
        assert (body == "") == (begin == "")
        assert headers["x-specctl-simulated"] == "1"
        if fault is Fault.REDIRECT:
            assert headers["Location"] == "/metrics/"
            assert (await get(client, url))[1].startswith("# SIMULATED")


async def test_a_dropped_body_breaks_the_connection(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(1, clock=clock)
    fleet.replicas[0].fault = Fault.DROP
    async with SimServer(fleet) as server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await get(client, f"{server.urls[0]}/metrics")


async def test_a_hanging_server_accepts_and_never_answers(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(1, clock=clock)
    fleet.replicas[0].fault = Fault.HANG
    async with SimServer(fleet) as server:
        short = aiohttp.ClientTimeout(total=0.1)
        with pytest.raises(asyncio.TimeoutError):
            await get(client, f"{server.urls[0]}/metrics", timeout=short)
        assert (await get(client, f"{server.urls[0]}/health"))[0] == 200


async def test_a_refusing_server_closes_its_port_and_opens_the_same_again(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(2, clock=clock)
    async with SimServer(fleet) as server:
        url = f"{server.urls[0]}/health"
        fleet.replicas[0].fault = Fault.REFUSE
        await server.sync()
        with pytest.raises(aiohttp.ClientConnectionError):
            await get(client, url)
        assert (await get(client, f"{server.urls[1]}/health"))[0] == 200
        fleet.replicas[0].fault = Fault.NONE
        await server.sync()
        assert (await get(client, url))[0] == 200


async def test_a_restart_refuses_then_serves_on_the_same_port(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(1, clock=clock, scenario=Scenario.named("restart"))
    async with SimServer(fleet) as server:
        url = f"{server.urls[0]}/metrics"
        assert (await get(client, url))[0] == 200
        clock.now += 21
        with pytest.raises(aiohttp.ClientConnectionError):
            await get(client, url)
        await server.sync()
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(client, url)
        clock.now += 8
        await server.sync()
        assert (await get(client, url))[0] == 200


async def test_on_a_shared_port_a_server_that_is_down_breaks_the_connection(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(2, clock=clock)
    fleet.engines[1].apply(Change("down"))
    async with SimServer(fleet, single_port=True) as server:
        with pytest.raises(aiohttp.ClientConnectionError):
            await get(client, f"{server.urls[1]}/health")
        assert (await get(client, f"{server.urls[0]}/health"))[0] == 200


async def test_a_stalled_server_is_healthy(
    clock: ManualClock, client: aiohttp.ClientSession
) -> None:
    fleet = build_fleet(1, clock=clock, warmup_s=20)
    fleet.engines[0].apply(Change("stall"))
    async with SimServer(fleet) as server:
        _, before, _ = await get(client, f"{server.urls[0]}/metrics")
        clock.now += 30
        _, after, _ = await get(client, f"{server.urls[0]}/metrics")
        assert (await get(client, f"{server.urls[0]}/health"))[0] == 200
    assert before == after


async def test_ports_can_be_chosen_and_a_taken_one_is_an_error(clock: ManualClock) -> None:
    fleet = build_fleet(1, clock=clock)
    async with SimServer(fleet) as server:
        port = int(server.urls[0].rsplit(":", 1)[1])
        with pytest.raises(OSError, match="address already in use"):
            await SimServer(build_fleet(1, clock=clock), base_port=port).__aenter__()
    async with SimServer(fleet, ports=[port]) as server:
        assert server.urls == [f"http://127.0.0.1:{port}"]
    with pytest.raises(ValueError, match="2 ports for 1 servers"):
        SimServer(fleet, ports=[1, 2])
