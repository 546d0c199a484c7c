"""Completion requests go through the engine's queue and come out at its pace."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from speccli.core.sim import Change, Fleet, Replica, SimConfig, SimEngine, Traffic, build_fleet
from speccli.core.sim.config import StepCost, default_acceptance
from speccli.core.sim.fleet import ScaledClock
from speccli.core.sim.openai import understand
from speccli.core.sim.server import SimServer

MODEL = "SIMULATED/llama-3.3-70b"
QUICK = StepCost(base_s=0.001, token_s=0.0, prefill_token_s=0.0, draft_s=0.0)


def quick_fleet(**given: Any) -> Fleet:
    config = replace(
        SimConfig(
            acceptance=default_acceptance("eagle3", 3, 1.0),
            traffic=Traffic(rate_per_s=0.0),
            cost=QUICK,
        ),
        **given,
    )
    clock = ScaledClock()
    return Fleet([Replica("sim-0", [SimEngine(config, clock)])], clock)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


async def until(condition: Callable[[], bool], tries: int = 100_000) -> None:
    for _ in range(tries):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


async def post(
    client: aiohttp.ClientSession, server: SimServer, path: str, body: Any
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, str) else json.dumps(body)
    async with client.post(f"{server.urls[0]}{path}", data=data) as answer:
        assert answer.headers["x-specctl-simulated"] == "1"
        parsed: dict[str, Any] = await answer.json()
        return answer.status, parsed


async def stream(
    client: aiohttp.ClientSession, server: SimServer, path: str, body: dict[str, Any]
) -> list[dict[str, Any]]:
    async with client.post(f"{server.urls[0]}{path}", json={**body, "stream": True}) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        text = await answer.text()
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def test_a_completion_is_counted_by_its_engine(client: aiohttp.ClientSession) -> None:
    fleet = quick_fleet()
    async with SimServer(fleet) as server:
        status, body = await post(
            client,
            server,
            "/v1/completions",
            {"model": MODEL, "prompt": "word " * 40, "max_tokens": 10, "ignore_eos": True},
        )
    assert status == 200
    assert body["system_fingerprint"] == "SIMULATED"
    assert body["model"] == MODEL
    assert body["usage"] == {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "length"
    assert len(choice["text"].split()) == 10
    assert "metrics" not in body
    ledger = fleet.engines[0].ledger
    assert (ledger.generation_tokens, ledger.prompt_tokens, ledger.drafts) == (10, 50, 3)


async def test_the_model_answers_to_its_name_without_the_prefix_and_says_it_is_simulated(
    client: aiohttp.ClientSession,
) -> None:
    async with SimServer(quick_fleet()) as server:
        asked = {"model": "llama-3.3-70b", "prompt": "x", "max_tokens": 1}
        status, body = await post(client, server, "/v1/completions", asked)
    assert status == 200
    assert body["model"] == MODEL


async def test_a_chat_answer_has_a_message(client: aiohttp.ClientSession) -> None:
    async with SimServer(quick_fleet()) as server:
        status, body = await post(
            client,
            server,
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 3,
             "ignore_eos": True},
        )  # fmt: skip
    assert status == 200
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["usage"]["completion_tokens"] == 3


async def test_a_stream_has_a_chunk_a_step_with_several_tokens(
    client: aiohttp.ClientSession,
) -> None:
    async with SimServer(quick_fleet()) as server:
        events = await stream(
            client,
            server,
            "/v1/completions",
            {"prompt": [1, 2, 3], "max_tokens": 10, "ignore_eos": True,
             "stream_options": {"include_usage": True}},
        )  # fmt: skip
    *chunks, last = events
    sizes = [len(chunk["choices"][0]["text"].split()) for chunk in chunks]
    assert sizes == [1, 4, 4, 1]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, None, "length"]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}
    assert all(event["system_fingerprint"] == "SIMULATED" for event in events)


async def test_a_chat_stream_begins_with_the_role_and_has_no_usage_unasked(
    client: aiohttp.ClientSession,
) -> None:
    async with SimServer(quick_fleet()) as server:
        events = await stream(
            client,
            server,
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True},
        )
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert len("".join(delta["content"] for delta in deltas).split()) == 5
    assert not any("usage" in event for event in events)


@pytest.mark.parametrize("mode", ["summary", "detailed"])
async def test_an_answer_tells_its_own_acceptance_when_asked_to(
    client: aiohttp.ClientSession, mode: str
) -> None:
    async with SimServer(quick_fleet(per_request_metrics=mode)) as server:
        _, body = await post(
            client, server, "/v1/completions", {"prompt": "x", "max_tokens": 9, "ignore_eos": True}
        )
        request = {"prompt": "x", "max_tokens": 9, "ignore_eos": True,
                   "stream_options": {"include_usage": True}}  # fmt: skip
        events = await stream(client, server, "/v1/completions", request)
    block = body["metrics"]["speculative_decoding"]
    assert block == events[-1]["metrics"]["speculative_decoding"]
    assert block["mean_acceptance_length"] == 4.0
    assert block["draft_acceptance_rate"] == 1.0
    assert block["acceptance_histogram"] == [0, 0, 0, 2]
    assert (block["num_spec_steps"], block["num_draft_tokens"]) == (2, 6)
    assert (block["num_accepted_draft_tokens"], block["num_spec_tokens"]) == (6, 3)
    assert ("per_step_accepted" in block) == (mode == "detailed")


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        pytest.param("/v1/completions", "{", 400, "not JSON", id="not-json"),
        pytest.param("/v1/completions", [], 400, "JSON object", id="not-an-object"),
        pytest.param("/v1/completions", {"model": "gpt"}, 404, "does not exist", id="model"),
        pytest.param("/v1/completions", {"prompt": "x", "n": 2}, 400, "n=1", id="n"),
        pytest.param("/v1/completions", {"prompt": 3}, 400, "prompt", id="prompt"),
        pytest.param("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "at least", id="0"),
        pytest.param(
            "/v1/completions", {"prompt": "x", "max_tokens": 9000, "ignore_eos": True}, 400,
            "do not fit", id="too-long",
        ),
        pytest.param("/v1/chat/completions", {"messages": []}, 400, "messages", id="messages"),
    ],
)  # fmt: skip
async def test_a_request_that_cannot_be_served_is_refused_in_words(
    client: aiohttp.ClientSession, path: str, body: Any, status: int, message: str
) -> None:
    async with SimServer(quick_fleet()) as server:
        seen, answer = await post(client, server, path, body)
    assert seen == status
    assert message in answer["error"]["message"]
    assert answer["error"]["code"] == status


async def test_a_full_queue_answers_503(client: aiohttp.ClientSession) -> None:
    fleet = quick_fleet(max_queued_requests=0)
    async with SimServer(fleet) as server:
        status, _ = await post(client, server, "/v1/completions", {"prompt": "x"})
    assert status == 503
    assert fleet.engines[0].ledger.rejections == 1


async def test_a_fluid_engine_follows_no_requests(client: aiohttp.ClientSession) -> None:
    async with SimServer(build_fleet(1, fluid=True)) as server:
        status, body = await post(client, server, "/v1/completions", {"prompt": "x"})
    assert status == 501
    assert "fluid=False" in body["error"]["message"]


async def test_a_client_that_leaves_frees_its_seat(client: aiohttp.ClientSession) -> None:
    fleet = quick_fleet()
    engine = fleet.engines[0]
    assert isinstance(engine, SimEngine)
    async with SimServer(fleet) as server:
        answer = await client.post(
            f"{server.urls[0]}/v1/completions",
            json={"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "stream": True},
        )
        await answer.content.readline()
        answer.close()
        await until(lambda: engine.ledger.finished["abort"] > 0)
    assert engine.listeners == 0


async def test_an_engine_that_restarts_ends_its_requests_in_error(
    client: aiohttp.ClientSession,
) -> None:
    fleet = quick_fleet()
    engine = fleet.engines[0]
    assert isinstance(engine, SimEngine)
    async with SimServer(fleet) as server:
        body = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True}
        asking = asyncio.create_task(post(client, server, "/v1/completions", body))
        await until(lambda: engine.listeners > 0)
        engine.apply(Change("restart", 0.0))
        status, answer = await asking
    assert status == 500
    assert "gone" in answer["error"]["message"]


async def test_latency_is_the_engines_own_in_scaled_time(client: aiohttp.ClientSession) -> None:
    fleet = build_fleet(1, traffic=Traffic(rate_per_s=0.0), time_scale=50)
    async with SimServer(fleet) as server:
        clock = asyncio.get_running_loop().time
        begin = clock()
        await post(
            client,
            server,
            "/v1/completions",
            {"prompt": "x", "max_tokens": 400, "ignore_eos": True},
        )
        took = clock() - begin
    e2e = fleet.engines[0].ledger.histograms["e2e"].total
    assert e2e > 2.0
    assert e2e / 50 <= took + 0.01
    assert math.isfinite(took)


def test_a_message_in_parts_is_as_long_as_the_same_in_one() -> None:
    """`vllm bench serve` sends parts."""
    parts = [{"type": "text", "text": "a" * 100}, {"type": "image_url", "image_url": {}}]
    whole, split = (
        understand({"messages": [{"role": "user", "content": said}]}, chat=True, model="m")
        for said in ("a" * 100, parts)
    )
    assert split.prompt_tokens == whole.prompt_tokens == 25 + 4
