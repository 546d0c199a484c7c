"""One streamed answer, however the network cuts it."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import ClientSession, web
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.bench.client import Answer, Ask, Client, _Stream
from tests.support.servers import RawServer, Server


def event(text: str | None, *, chat: bool = True, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}
    body = {"id": "x", "choices": [choice], **more}
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def usage(tokens: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    return b"data: " + json.dumps({"id": "x", "choices": [], "usage": counts, **more}).encode()


ROLE = event("")
DONE = b"data: [DONE]"


def read(parts: Sequence[bytes], *, keep_text: bool = True) -> Answer:
    """The answer in these parts, the first of which comes at 1 s, the next at 2 s."""
    stream, answer = _Stream(), Answer("p", 0.0)
    for at, part in enumerate(parts, 1):
        stream.feed(part, float(at))
    stream.finish(answer, keep_text=keep_text)
    return answer


def joined(events: Sequence[bytes], end: bytes = b"\n\n") -> bytes:
    return b"".join(each + end for each in events)


def test_times_are_those_of_tokens_not_of_the_role_or_the_usage() -> None:
    parts = [joined([ROLE]), *(joined([event(w)]) for w in "abc"), joined([usage(7), DONE])]
    answer = read(parts)
    assert answer.error is None
    assert (answer.first, answer.end) == (2.0, 4.0)
    assert list(answer.arrivals) == [2.0, 3.0, 4.0]
    assert (answer.output_tokens, answer.input_tokens) == (7, 5)
    assert answer.tpot == pytest.approx(2.0 / 6)
    assert answer.text == "abc"


def test_an_engine_that_puts_usage_beside_the_last_tokens_is_read_too() -> None:
    last = event("c", usage={"prompt_tokens": 5, "completion_tokens": 3})
    answer = read([joined([event("a")]), joined([event("b")]), joined([last, DONE])])
    assert list(answer.arrivals) == [1.0, 2.0, 3.0]
    assert answer.output_tokens == 3


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"], ids=["lf", "crlf"])
def test_wherever_the_network_cuts_empty_events_hold_no_token(end: bytes) -> None:
    texts = [event(text, chat=False) for text in ("", "", "0", "1")]
    raw = joined([*texts, usage(9), DONE], end)
    for cut in range(1, len(raw)):
        answer = read([raw[:cut], raw[cut:]])
        assert len(answer.arrivals) <= 2, cut
        assert answer.first == (1.0 if raw[:cut].count(b'"0') else 2.0), cut


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"], ids=["lf", "crlf"])
@given(
    texts=st.lists(st.text(max_size=8), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 900), max_size=8),
    chat=st.booleans(),
)
def test_cuts_of_the_network_change_neither_text_nor_count(
    end: bytes, texts: list[str], cuts: list[int], chat: bool
) -> None:
    events = [*(event(text, chat=chat) for text in texts), usage(9), DONE]
    raw = joined(events, end)
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    parts = [raw[a:b] for a, b in zip(places, places[1:], strict=False)]
    answer = read(parts)
    assert answer.text == "".join(texts)
    assert answer.text_sha == read([raw]).text_sha
    assert answer.output_tokens == 9
    # Every event with tokens arrives once; empty ones at the beginning hold none.
    least = len(texts) - next((i for i, t in enumerate(texts) if t), 1)
    assert max(1, least) >= len(answer.arrivals) >= 1
    assert answer.first <= answer.end


def test_words_that_look_like_the_protocol_are_text() -> None:
    said = ['data: {"content":"x"}\n\n', '"content":"', "\\n\\n", "data: [DONE]\n\n"]
    answer = read([joined([ROLE, *map(event, said), usage(4), DONE])])
    assert answer.text == "".join(said)
    assert len(answer.arrivals) == 4


def test_what_the_engine_tells_of_a_request_is_kept() -> None:
    told = {"num_spec_steps": 3, "num_accepted_draft_tokens": 4, "num_draft_tokens": 9}
    answer = read([joined([event("a"), usage(5, metrics={"speculative_decoding": told}), DONE])])
    assert answer.speculation == told


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        pytest.param(joined([event("a"), DONE]), "no usage", id="no-usage"),
        pytest.param(joined([event("a")])[:-9], "no usage", id="cut"),
        pytest.param(b"", "empty answer", id="empty"),
        pytest.param(joined([usage(0), DONE]), "without a token", id="nothing"),
        pytest.param(
            joined([event("a"), b'data: {"error": {"message": "engine is dead"}}', DONE]),
            "error in the stream: engine is dead",
            id="error",
        ),
    ],
)
def test_what_is_no_whole_answer_is_an_error(raw: bytes, said: str) -> None:
    assert said in (read([raw]).error or "")


def test_tokens_that_have_come_by_a_time() -> None:
    answer = Answer("p", 0.0, first=1.0, end=5.0, output_tokens=13)
    answer.arrivals = array("d", [1.0, 2.0, 3.0, 4.0, 5.0])
    assert [answer.tokens_until(t) for t in (0.5, 1.0, 2.5, 5.0, 9.0)] == [0, 1, 4, 13, 13]


async def ask(url: str, *, deadline_s: float = 5.0) -> Answer:
    async with ClientSession() as session:
        return await Client(session, url, deadline_s=deadline_s).ask(Ask("p", b"{}"))


async def test_a_refusal_is_told_in_the_servers_words() -> None:
    async def refuse(_request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no chat template"}}, status=400)

    async with Server(refuse) as server:
        answer = await ask(server.url)
    assert answer.error == "HTTP 400: no chat template"
    assert not answer.lost


async def test_a_server_that_hangs_is_given_up_at_the_deadline() -> None:
    async with RawServer(b"HTTP/1.1 200 OK\r\n\r\n", hang=True) as server:
        answer = await ask(server.url, deadline_s=0.2)
    assert answer.error == "no whole answer within 0.2 s"
    assert not answer.lost


async def test_a_server_that_is_not_there_is_lost() -> None:
    answer = await ask("http://127.0.0.1:9/v1")
    assert answer.lost
    assert answer.error == "connect refused"


async def test_lateness_of_the_client_is_part_of_the_latency() -> None:
    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(joined([event("a"), usage(1), DONE]))
        return response

    from time import perf_counter

    async with Server(stream) as server, ClientSession() as session:
        client = Client(session, server.url, deadline_s=5)
        due = perf_counter() - 2.0
        answer = await client.ask(Ask("p", b"{}"), due)
    assert answer.ttft > 2.0
    await asyncio.sleep(0)
