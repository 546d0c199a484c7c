"""Answers held to a JSON schema, and seeds of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from speccli.core.bench import asked
from speccli.core.bench.asked import Asked
from speccli.core.bench.datasets import load
from speccli.core.bench.load import Shape
from speccli.core.bench.measure import Requests, Sampling
from speccli.core.bench.server import Identity
from speccli.core.errors import UsageError
from tests.core.bench.world import bench
from tests.support.servers import Server

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
IDENTITY = Identity("m", False, None, "vllm", None, None, None, None)
SHAPE = Shape(concurrency=1, rate=None, warmup=0, requests=4, seconds=None, seed=7)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "person.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def bodies(made: asked.Plan, shape: Shape = SHAPE) -> list[dict[str, Any]]:
    prompts = made.spec.datasets[0].prompts
    asks = Requests(prompts, shape, made.spec.sampling, IDENTITY, "salt")
    return [json.loads(asks[i].body) for i in range(3)]


def test_every_request_carries_the_schema_and_the_file_says_which(schema: Path) -> None:
    made = asked.plan(Asked(arm=("a=http://127.0.0.1:9",), structured=schema))
    for body in bodies(made):
        assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert made.spec.load.structured is not None
    assert made.spec.load.structured.startswith("person.json, sha256 ")
    plain = asked.plan(Asked(arm=("a=http://127.0.0.1:9",)))
    assert "response_format" not in bodies(plain)[0]
    assert plain.spec.datasets[0].sha256 != made.spec.datasets[0].sha256


@pytest.mark.parametrize(("kind", "also"), [("vllm", False), ("sglang", True)])
def test_a_fixed_length_costs_vllm_no_masked_end_token(kind: str, also: bool) -> None:
    made = asked.plan(Asked(arm=("a=http://127.0.0.1:9",), output_tokens=17))
    engine = replace(IDENTITY, kind=kind)
    asks = Requests(made.spec.datasets[0].prompts, SHAPE, made.spec.sampling, engine, "salt")
    body = json.loads(asks[0].body)
    assert (body["max_tokens"], body["ignore_eos"]) == (17, True)
    assert ("min_tokens" in body) is also


def test_a_line_may_have_a_schema_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"id": "a", "prompt": "x", "schema": SCHEMA}, {"id": "b", "prompt": "y"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    held = {prompt.id: prompt.schema for prompt in load(str(path)).prompts}
    assert held == {"a": SCHEMA, "b": None}


@pytest.mark.parametrize("text", ["[]", "{}", "no", '{"a": 1}'])
def test_what_is_no_schema_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="--structured"):
        asked.plan(Asked(arm=("a=http://127.0.0.1:9",), structured=path))


async def test_answers_that_are_the_json_are_counted(schema: Path, tmp_path: Path) -> None:
    told = ['{\\"name\\": \\"A\\"}', '{\\"name\\": \\"B']
    ends = ["stop", "length"]
    turn = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal turn
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m"}]})
        if request.method != "POST":
            return web.Response(text="")
        text, end = told[turn % 2], ends[turn % 2]
        turn += 1
        return web.Response(
            text=f'data: {{"choices":[{{"delta":{{"reasoning":"hm "}}}}]}}\n\n'
            f'data: {{"choices":[{{"delta":{{"content":"{text}"}},"finish_reason":"{end}"}}]}}\n\n'
            'data: {"choices":[],"usage":{"completion_tokens":5,"prompt_tokens":3}}\n\n'
            "data: [DONE]\n\n",
            content_type="text/event-stream",
        )

    async with Server(answer) as server:
        result = await bench(
            tmp_path / "b.json",
            {"a": server.url},
            structured=schema,
            batch="1",
            window="whole",
            warmup=0,
        )
    (row,) = result.rows
    assert row.structured is not None
    assert (row.structured.answers, row.structured.parsed, row.structured.cut_off) == (6, 3, 3)


def test_seeds_are_of_the_prompt_the_bench_and_the_repeat() -> None:
    made = asked.plan(Asked(arm=("a=http://127.0.0.1:9",), temperature=0.7, request_seeds=True))
    seeds = [body["seed"] for body in bodies(made)]
    assert len(set(seeds)) == 3
    assert seeds == [body["seed"] for body in bodies(made)]
    other = Shape(concurrency=1, rate=None, warmup=0, requests=4, seconds=None, seed=8)
    assert not set(seeds) & {body["seed"] for body in bodies(made, other)}
    assert all(0 <= seed < 2**31 for seed in seeds)
    without = asked.plan(Asked(arm=("a=http://127.0.0.1:9",), temperature=0.7))
    assert "seed" not in bodies(without)[0]
    assert Sampling(8).request_seeds is False
