"""The baseline asked for its log-probabilities, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from speccli.core.bench.lossless import lossless
from speccli.core.bench.lossless_ask import ask_baseline, conversations
from speccli.core.bench.results import Load, Result
from speccli.core.errors import SourceError, UsageError
from speccli.core.sources.scrape import Access
from speccli.core.sources.targets import parse_targets
from tests.support.benches import PLAIN, Planted, bench

CHAT = {
    "content": [
        {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "a", "logprob": -0.1}]},
        {
            "token": " b",
            "logprob": -0.2,
            "top_logprobs": [{"token": " b", "logprob": -0.2}, {"token": " c", "logprob": -0.3}],
        },
    ]
}


@asynccontextmanager
async def baseline(status: int = 200) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server without speculation, and what it was asked."""
    asked: list[dict[str, Any]] = []

    async def chat(request: web.Request) -> web.Response:
        asked.append(await request.json())
        if status != 200:
            return web.json_response({"error": {"message": "overloaded"}}, status=status)
        choice = {"message": {"content": "a b"}, "logprobs": CHAT}
        return web.json_response({"choices": [choice]})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", asked
    finally:
        await runner.cleanup()


@pytest.fixture
def parted(tmp_path: Path) -> tuple[Result, str]:
    """A bench in which one of two answers parts, and the file that it was asked from."""
    file = tmp_path / "ours.jsonl"
    rows = [{"id": "1", "prompt": "first?"}, {"id": "2", "prompt": "second?"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = bench([PLAIN, Planted("eagle3", {})], batches=(8,), prompts=2, datasets=("ours",))
    texts = {
        "none": {"ours/1": {"text": "a b"}, "ours/2": {"text": "a b"}},
        "eagle3": {"ours/1": {"text": "a b"}, "ours/2": {"text": "a c"}},
    }
    load = Load("closed", batches=(8,), max_tokens=9)
    return replace(made, simulated=False, texts=texts, load=load), str(file)


async def asked_of(url: str, result: Result, file: str) -> Result:
    (target,) = parse_targets([url])
    chosen = conversations(result, [file])
    return await ask_baseline(
        result, chosen, target, Access(), deadline_s=5.0, progress=lambda *_: None
    )


async def test_only_what_parts_is_asked_and_then_it_has_a_class(
    parted: tuple[Result, str],
) -> None:
    result, file = parted
    assert lossless(result).arms[0].kinds == {"unknown": 1}
    async with baseline() as (url, asked):
        told = await asked_of(url, result, file)
    (body,) = asked
    assert body["messages"] == [{"role": "user", "content": "second?"}]
    assert (body["temperature"], body["max_tokens"], body["top_logprobs"]) == (0.0, 9, 5)
    (only,) = lossless(told).arms[0].partings
    assert (only.prompt, only.parting.kind, only.parting.token) == ("ours/2", "numeric", 1)
    assert only.parting.gap == pytest.approx(0.1)


async def test_a_baseline_that_refuses_is_named_with_its_words(
    parted: tuple[Result, str],
) -> None:
    async with baseline(503) as (url, _):
        with pytest.raises(SourceError, match="HTTP 503 overloaded"):
            await asked_of(url, *parted)
    with pytest.raises(SourceError) as caught:
        await asked_of("http://127.0.0.1:9", *parted)
    assert caught.value.hint == "is the baseline up?"


def test_where_nothing_parts_there_is_nothing_to_ask(parted: tuple[Result, str]) -> None:
    result, file = parted
    same = replace(result, texts={arm: {"ours/1": {"text": "a"}} for arm in ("none", "eagle3")})
    with pytest.raises(UsageError, match="nothing to ask"):
        conversations(same, [file])
