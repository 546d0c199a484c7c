"""The front of a local deployment: servers come and go behind it, and no request is lost."""

from __future__ import annotations

import asyncio
import http.client
import io
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from speccli.core.deploy.front import Front, Target
from speccli.core.engines.local import HOST, free_port

SWITCHES = 200


@dataclass
class Dummy:
    """A server behind the front, with handlers that tests steer."""

    name: str
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    target: Target = field(init=False)
    runner: web.AppRunner = field(init=False)

    async def start(self) -> Dummy:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/name", self._name)
        app.router.add_post("/length", self._length)
        app.router.add_get("/stream", self._stream)
        app.router.add_get("/nothing", self._nothing)
        app.router.add_get("/socket", self._socket)
        self.runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self.runner.setup()
        port = free_port()
        await web.TCPSite(self.runner, HOST, port).start()
        self.target = Target(HOST, port, self.name)
        return self

    async def stop(self) -> None:
        await self.runner.cleanup()

    async def _name(self, request: web.Request) -> web.Response:
        await asyncio.sleep(0.002)
        return web.Response(text=self.name)

    async def _length(self, request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())}")

    async def _nothing(self, request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            for _ in range(3):
                await answer.write(b"data: piece\n\n")
                await self.go_on.wait()
                self.go_on.clear()
        except asyncio.CancelledError:
            self.left.set()
            raise
        return answer

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{self.name} {message.data}")
        return socket


@asynccontextmanager
async def fronted(*names: str) -> AsyncIterator[tuple[Front, str, list[Dummy]]]:
    front, port = Front(), free_port()
    servers = [await Dummy(name).start() for name in names]
    front.target = servers[0].target if servers else None
    await front.listen(HOST, port)
    try:
        yield front, f"http://{HOST}:{port}", servers
    finally:
        front.close()
        for server in servers:
            await server.stop()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


@pytest.mark.slow
async def test_no_request_is_lost_over_two_hundred_switches() -> None:
    """Clients that keep their connections, some busy, some idle at a switch; servers that end."""
    over, answers, idle = asyncio.Event(), [0], [0]

    async def client(url: str, pause_s: float) -> None:
        kept = aiohttp.TCPConnector(limit=1, keepalive_timeout=600)
        async with aiohttp.ClientSession(connector=kept) as session:
            while not over.is_set():
                assert (await text(session, f"{url}/name")).isdigit()
                answers[0] += 1
                await asyncio.sleep(pause_s)

    def old_client(url: str) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        connection.connect()
        socket = connection.sock
        while not over.is_set():
            connection.request("GET", "/name")
            answer = connection.getresponse()
            assert (answer.status, answer.read().isdigit()) == (200, True)
            assert connection.sock is socket, "its connection was closed"
            idle[0] += 1
        connection.close()

    async with fronted() as (front, url, _):
        present = await Dummy("0").start()
        front.target = present.target
        clients = [asyncio.create_task(client(url, i * 0.003)) for i in range(8)]
        clients += [asyncio.create_task(asyncio.to_thread(old_client, url)) for _ in range(2)]
        try:
            for i in range(1, SWITCHES + 1):
                following = await Dummy(str(i)).start()
                front.target, former = following.target, present
                await until(lambda target=former.target: not target.requests)  # type: ignore[misc]
                await former.stop()
                present = following
                seen = answers[0]
                await until(lambda seen=seen: answers[0] > seen or any(c.done() for c in clients))  # type: ignore[misc]
        finally:
            over.set()
            await asyncio.gather(*clients)
            await present.stop()
    assert answers[0] > SWITCHES
    assert idle[0] > SWITCHES


async def test_pieces_of_an_answer_pass_as_they_come_and_stay_with_their_server() -> None:
    async with (
        fronted("old", "new") as (front, url, (old, new)),
        aiohttp.ClientSession() as session,
        session.get(f"{url}/stream") as answer,
    ):
        for count in range(3):
            async with asyncio.timeout(10):
                assert await answer.content.readexactly(13) == b"data: piece\n\n"
            front.target = new.target
            assert old.target.requests == 1, f"left with {count} pieces"
            old.go_on.set()
        assert await answer.content.read() == b""
        assert await text(session, f"{url}/name") == "new"
        await until(lambda: old.target.requests == 0)


async def test_a_client_that_goes_away_is_gone_for_the_server_too() -> None:
    async with fronted("only") as (_, url, (only,)):
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"{url}/stream")
            await answer.content.readexactly(13)
            answer.close()
        async with asyncio.timeout(10):
            await only.left.wait()
        await until(lambda: only.target.requests == 0)


@pytest.mark.parametrize(
    ("size", "how"),
    [
        pytest.param(3_000_000, {}, id="by-length"),
        pytest.param(3_000_000, {"chunked": True}, id="in-chunks"),
        pytest.param(3_000_000, {"expect100": True}, id="after-100"),
        pytest.param(0, {}, id="empty"),
    ],
)
async def test_bodies_pass_whole_and_the_connection_goes_on(
    size: int, how: dict[str, bool]
) -> None:
    async with (
        fronted("only") as (_, url, _),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
    ):
        for _ in range(2):
            sent = io.BytesIO(b"x" * size)
            async with session.post(f"{url}/length", data=sent, **how) as answer:  # type: ignore[arg-type]
                assert await answer.text() == str(size)
            async with session.head(f"{url}/name") as answer:
                assert answer.status == 200
            async with session.get(f"{url}/nothing") as answer:
                assert answer.status == 204
            assert await text(session, f"{url}/name") == "only"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
async def test_curl_sends_several_requests_on_one_connection() -> None:
    async with fronted("only") as (_, url, _):
        words = ("-sS", "-w", " %{num_connects}\n", f"{url}/name", f"{url}/name")
        curl = await asyncio.create_subprocess_exec("curl", *words, stdout=asyncio.subprocess.PIPE)
        out, _ = await curl.communicate()
        assert out.decode().split() == ["only", "1", "only", "0"]
        upload = ("-sS", "-0", "--data-binary", "@-", f"{url}/length")
        curl = await asyncio.create_subprocess_exec(
            "curl", *upload, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await curl.communicate(b"x" * 5000)
        assert out == b"5000"


async def test_where_nothing_serves_it_says_so_and_keeps_the_connection() -> None:
    async with (
        fronted("only") as (front, url, (only,)),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
    ):
        gone = Target(HOST, free_port(), "revision 7")
        for target, words in ((None, "nothing serves"), (gone, "revision 7 does not answer")):
            front.target = target
            async with session.post(f"{url}/length", data=b"x" * 100_000) as answer:
                assert answer.status == 503
                assert words in (await answer.json())["error"]["message"]
        assert gone.requests == 0
        front.target = only.target
        assert await text(session, f"{url}/name") == "only"


@asynccontextmanager
async def raw(answer: bytes) -> AsyncIterator[str]:
    """A front before a server that says just this to any request, and closes."""

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(server, HOST, 0)
    front, port = Front(), free_port()
    front.target = Target(HOST, listening.sockets[0].getsockname()[1], "it")
    await front.listen(HOST, port)
    try:
        async with listening:
            yield f"http://{HOST}:{port}"
    finally:
        front.close()


async def get(url: str) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.read()


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_CHUNKED + b"5\r\nhello\r\n", id="chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", id="length"),
    ],
)
async def test_an_answer_that_was_cut_short_does_not_look_whole(answer: bytes) -> None:
    async with raw(answer) as url:
        with pytest.raises(aiohttp.ClientPayloadError):
            await get(url)


async def test_an_answer_that_ends_with_its_connection_passes() -> None:
    async with raw(b"HTTP/1.1 200 OK\r\n\r\nhello") as url:
        assert await get(url) == (200, b"hello")


@pytest.mark.parametrize("said", [b"", b"garbage\r\n\r\n"], ids=["nothing", "no-http"])
async def test_a_server_that_ends_before_it_answers_is_a_502(said: bytes) -> None:
    async with raw(said) as url:
        status, body = await get(url)
        assert status == 502
        assert b"ended before it answered" in body


async def test_what_becomes_a_websocket_passes_both_ways() -> None:
    async with (
        fronted("only") as (_, url, (only,)),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/socket") as socket,
    ):
        for word in ("a", "b"):
            await socket.send_str(word)
            assert await socket.receive_str() == f"only {word}"
        assert only.target.requests == 1
    await until(lambda: not only.target.requests)


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with fronted("only") as (_, url, _):
        with pytest.raises(OSError, match="in use"):
            await Front().listen(HOST, int(url.rpartition(":")[2]))
