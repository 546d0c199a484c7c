"""The client that never stops counts what it got, and what it did not get."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.ladder_client import Client, Sent, _figures, table

WHOLE = {"choices": [{"text": " yes"}], "usage": {"completion_tokens": 3}}


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802 - http.server's name
            send(self, 200, json.dumps({"data": [{"id": "m"}]}).encode())

        def do_POST(self) -> None:  # noqa: N802 - http.server's name
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, length: int = -1) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length < 0 else length))
    handler.end_headers()
    handler.wfile.write(body)


def cut(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, b'{"choices"', 100)
    handler.close_connection = True


def piece(handler: BaseHTTPRequestHandler, *, done: bool) -> None:
    body = f"data: {json.dumps(WHOLE)}\n\n" + ("data: [DONE]\n\n" if done else "")
    send(handler, 200, body.encode())


@pytest.mark.parametrize(
    ("answer", "stream", "failure"),
    [
        pytest.param(lambda h: send(h, 200, json.dumps(WHOLE).encode()), False, "", id="whole"),
        pytest.param(lambda h: piece(h, done=True), True, "", id="stream"),
        pytest.param(lambda h: send(h, 503, b"{}"), False, "HTTP 503", id="503"),
        pytest.param(cut, False, "IncompleteRead", id="cut-short"),
        pytest.param(lambda h: piece(h, done=False), True, "cut short", id="stream-cut-short"),
    ],
)
def test_an_answer_counts_when_it_is_whole(
    answer: Callable[[BaseHTTPRequestHandler], None], stream: bool, failure: str
) -> None:
    with server(answer) as url, Client(url, ["a"], stream=stream, concurrency=1) as client:
        while not client.sent:
            pass
    first = client.sent[0]
    assert failure in first.failure
    assert bool(first.failure) == bool(failure)
    assert (first.text, first.tokens) == ((" yes", 3) if not failure else ("", 0))


def test_a_phase_has_the_requests_that_were_sent_in_it() -> None:
    sent = [
        Sent("down", 0.5, 1.0, 0, tokens=10),
        Sent("down", 1.5, 0.1, 1, failure="HTTP 503"),
        Sent("down", 1.9, 4.0, 0, tokens=30),
        Sent("up", 6.0, 1.0, 1, tokens=10),
    ]
    down = _figures("down", [(0.0, 5.0)], sent)
    assert (down.requests, down.failed) == (3, 1)
    assert down.availability == pytest.approx(2 / 3)
    assert (down.p50_s, down.p99_s) == (1.0, 4.0)
    assert down.away_s == pytest.approx(3.5), "from the answer at 1.5 to the end of the phase"
    assert down.tokens_per_s == pytest.approx(8.0)
    assert down.failures == {"HTTP 503": 1}
    idle = _figures("idle", [(5.0, 6.0)], sent)
    assert (idle.availability, idle.p50_s) == (None, None)
    assert "| idle | 1 | 0 | 0 | unknown |" in table([idle])
