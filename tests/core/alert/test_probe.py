"""Probes against a server that does as it is told: what is taken, refused, wrong, or deadly."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from speccli.core.alert.probe.canary import DATASET, baseline_of, canary, page_of
from speccli.core.alert.probe.client import Client, Reply
from speccli.core.alert.probe.features import fits
from speccli.core.alert.probe.outcome import Outcome, Probed
from speccli.core.alert.probe.run import probe
from speccli.core.errors import SourceError, SpecctlError
from speccli.core.lossless import NEAR_TIE
from speccli.core.sources.scrape import Access
from speccli.core.sources.targets import parse_targets
from tests.support.recordings import counter, speculation

GOOD_JSON = '{"city": "Oslo", "large": false, "rank": 3}'
Body = dict[str, Any]
Answer = Callable[[Body], Any]


class Server:
    """An OpenAI server whose answers a test writes."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.dead = False
        self.asked: list[Body] = []
        self.key: str | None = None
        self.url = ""
        self.drafts = 0
        self.generated = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "Unauthorized"}}, status=401)
        body = await request.json()
        self.asked.append(body)
        said = self.answer(body)
        if isinstance(said, web.Response):
            return said
        text, more = said if isinstance(said, tuple) else (said, {})
        choice = {"index": 0, "finish_reason": "stop", **more.pop("choice", {})}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        tokens = more.pop("tokens", 100)
        self.drafts += 40
        self.generated += tokens
        usage = {"prompt_tokens": 3, "completion_tokens": tokens}
        return web.json_response({"choices": [choice], "usage": usage, **more})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.dead else 200)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "vllm"}]})

    async def metrics(self, _: web.Request) -> web.Response:
        d = self.drafts
        text = speculation(3 * d, 2 * d, d, [d, d // 2, d // 2])
        return web.Response(
            text=text + counter("vllm:generation_tokens_total", ("", self.generated))
        )


@asynccontextmanager
async def running(answer: Answer) -> Any:
    server = Server(answer)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.complete)
    app.router.add_post("/v1/completions", server.complete)
    app.router.add_get("/health", server.health)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/metrics", server.metrics)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def sound(body: Body) -> Any:
    if "response_format" in body:
        return GOOD_JSON
    if body.get("logprobs") is not None:
        told = {"token_logprobs": [-0.1, 0.0, -2.0]}
        return "a b c", {"choice": {"logprobs": told}, "tokens": 3}
    return "the same words"


def refused(message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=400)


async def probed(server: Server, **more: Any) -> Probed:
    access = Access(token=more.pop("token", None))
    (target,) = parse_targets([server.url])
    return await probe([target], more.pop("plain", None), access, deadline_s=10.0)


def states(found: Probed) -> dict[str, str]:
    return {outcome.rule: outcome.state for outcome in found.outcomes}


async def test_a_sound_server_passes_everything() -> None:
    async with running(sound) as server:
        found = await probed(server)
    assert set(states(found).values()) == {"pass"}
    assert (found.word, found.exit) == ("ok", 0)
    assert sum("response_format" in body for body in server.asked) == 30
    assert found.lines[0] == "SPECCTL OK - 6 of 6 checks passed | passed=6;; failed=0;;"


@pytest.mark.parametrize(
    ("parameter", "rule"),
    [("min_p", "F-MIN-P"), ("logit_bias", "F-LOGIT-BIAS"), ("response_format", "F-JSON")],
)
async def test_a_parameter_that_is_refused_is_a_warning(parameter: str, rule: str) -> None:
    def answer(body: Body) -> Any:
        return refused(f"{parameter} is not supported") if parameter in body else sound(body)

    async with running(answer) as server:
        found = await probed(server)
    assert states(found)[rule] == "warning"
    assert found.exit == 1
    assert f"HTTP 400 {parameter} is not supported" in found.lines[0]


async def test_an_engine_that_dies_of_json_is_critical_and_ends_the_probe() -> None:
    async with running(sound) as server:

        def answer(body: Body) -> Any:
            if "response_format" in body:
                server.dead = True
                return web.json_response({"error": {"message": "EngineCore died"}}, status=500)
            return sound(body)

        server.answer = answer
        found = await probed(server)
    assert (states(found)["F-JSON"], states(found)["ENGINE_DOWN"]) == ("critical", "critical")
    assert found.exit == 2
    assert "gone after F-JSON: HTTP 503" in found.outcomes[-1].evidence


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (GOOD_JSON, True),
        ("{", False),
        ("[]", False),
        ('{"city": "a", "large": true}', False),
        ('{"city": "a", "large": true, "rank": true}', False),
        ('{"city": "a", "large": 1, "rank": 1}', False),
        ('{"city": "a", "large": true, "rank": 1, "x": 1}', False),
    ],
)
def test_what_fits_the_schema(text: str, good: bool) -> None:
    assert fits(text) is good


async def test_json_that_does_not_fit_is_a_warning_and_cut_json_is_not() -> None:
    def wrong(body: Body) -> Any:
        return "no JSON" if "response_format" in body else sound(body)

    def cut(body: Body) -> Any:
        if "response_format" in body:
            return '{"city": "Os', {"choice": {"finish_reason": "length"}}
        return sound(body)

    async with running(wrong) as server:
        assert states(await probed(server))["F-JSON"] == "warning"
    async with running(cut) as server:
        assert states(await probed(server))["F-JSON"] == "unknown"


@pytest.mark.parametrize("values", [[], [-0.1], [-0.1, 0.5, -1.0], None])
async def test_log_probabilities_that_lack_or_lie_are_a_warning(values: Any) -> None:
    def answer(body: Body) -> Any:
        if body.get("logprobs") is None:
            return sound(body)
        return "a b c", {"choice": {"logprobs": {"token_logprobs": values}}, "tokens": 3}

    async with running(answer) as server:
        assert states(await probed(server))["F-LOGPROBS"] == "warning"


async def test_one_seed_with_two_answers_is_a_warning() -> None:
    turn = iter(range(100))

    def answer(body: Body) -> Any:
        return f"words {next(turn)}" if body.get("seed") == 1234 else sound(body)

    async with running(answer) as server:
        assert states(await probed(server))["F-SEED"] == "warning"


async def test_a_server_that_cannot_be_asked_is_unknown() -> None:
    (target,) = parse_targets(["http://127.0.0.1:9"])
    found = await probe([target], None, Access(), deadline_s=2.0)
    assert (found.exit, states(found)) == (3, {"F-ALIVE": "unknown"})


async def test_the_key_is_sent() -> None:
    async with running(sound) as server:
        server.key = "secret"
        assert (await probed(server, token="secret")).exit == 0
        found = await probed(server)
    assert (found.exit, set(states(found).values())) == (3, {"pass", "unknown"})


# Greedy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "state"), [(0.0, "pass"), (NEAR_TIE / 2, "pass"), (NEAR_TIE * 4, "critical")]
)
async def test_greedy_is_exact_where_it_must_be(gap: float, state: str) -> None:
    def with_speculation(body: Body) -> Any:
        return "a c" if gap and "prompt" in body and "logprobs" not in body else _greedy(body)

    def _greedy(body: Body) -> Any:
        if "prompt" in body and body.get("logprobs") == 5:
            told = {
                "text_offset": [0, 1],
                "token_logprobs": [-0.1, -0.2],
                "top_logprobs": [{"a": -0.1}, {" b": -0.2, " c": -0.2 - gap}],
            }
            return "a b", {"choice": {"logprobs": told}}
        return "a b" if "prompt" in body and "logprobs" not in body else sound(body)

    async with running(with_speculation) as server, running(_greedy) as other:
        (plain,) = parse_targets([other.url])
        found = await probed(server, plain=plain)
    assert states(found)["F-GREEDY"] == state, found.outcomes


# Canary ---------------------------------------------------------------------------------------


async def run_of(server: Server) -> Any:
    (target,) = parse_targets([server.url])
    async with Client(target.name, Access(), deadline_s=5.0) as client:
        return await canary(target, Access(), client, deadline_s=5.0)


async def test_a_canary_counts_by_the_servers_counters() -> None:
    async with running(lambda body: "words") as server:
        run = await run_of(server)
    assert (run.counted_by, run.answered, run.contaminated) == ("counters", 16, False)
    kept = baseline_of(run, "c")
    assert kept.rate == pytest.approx(2 / 3)
    assert (kept.key.dataset, kept.key.sampling, kept.key.target) == (
        DATASET,
        "temperature=0",
        "m",
    )
    assert all(body["temperature"] == 0 for body in server.asked)


async def test_other_traffic_makes_a_run_that_is_not_kept() -> None:
    async with running(lambda body: "words") as server:

        def answer(body: Body) -> Any:
            server.generated += 50
            return "words"

        server.answer = answer
        run = await run_of(server)
    assert run.contaminated
    with pytest.raises(SpecctlError, match="33 % of the tokens counted were other traffic's"):
        baseline_of(run, "c")


def _own(accepted: list[int]) -> Body:
    histogram = [accepted.count(i) for i in range(4)]
    return {
        "speculative_decoding": {
            "acceptance_histogram": histogram,
            "num_spec_steps": len(accepted),
            "num_draft_tokens": 3 * len(accepted),
            "num_accepted_draft_tokens": sum(accepted),
        }
    }


async def test_answers_that_tell_their_own_drafts_are_counted_whatever_else_is_served() -> None:
    async with running(lambda body: "words") as server:

        def answer(body: Body) -> Any:
            server.generated += 5000
            return "words", {"metrics": _own([3, 1, 0, 2] * 5)}

        server.answer = answer
        run = await run_of(server)
    assert (run.counted_by, run.foreign, run.contaminated) == ("answers", None, False)
    kept = baseline_of(run, "c")
    assert kept.rate == pytest.approx(0.5)
    assert kept.positions == pytest.approx((0.75, 0.5, 0.25))
    assert kept.drafts == 16 * 20


def test_a_page_is_made_only_where_every_answer_tells() -> None:
    told = Reply(200, {"metrics": _own([1])})
    assert page_of("m", [told, Reply(200, {})]) is None
    assert page_of("m", [Reply(200, {"metrics": {"speculative_decoding": {}}})]) is None
    assert page_of('m"', [told]) is not None


async def test_prompts_that_fail_end_the_canary() -> None:
    async with running(lambda body: refused("no")) as server:
        with pytest.raises(SourceError, match="16 of 16 prompts failed: HTTP 400 no"):
            await run_of(server)


def test_an_outcome_is_one_line() -> None:
    outcome = Outcome("F-JSON", "warning", "a", "x | y\n\x1b[2J", "c", "d")
    assert outcome.line == "WARNING F-JSON a: x / y ?[2J. c. Do: d"
    assert json.dumps(Probed((outcome,)).to_json())
