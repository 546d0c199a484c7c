from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import time
import tracemalloc
from pathlib import Path

import pytest
from aiohttp import web

from speccli.core.errors import UsageError
from speccli.core.sources.base import Scrape
from speccli.core.sources.scrape import Access
from tests.support.scraping import LATE, PAGE, scrape, source_of, state_of
from tests.support.servers import Handler, RawServer, Server, answering


async def test_a_page_comes_whole_and_when_it_came() -> None:
    async with Server(answering(PAGE)) as server:
        found = await scrape(server.url, clock=lambda: 1234.5)
        assert found == Scrape(1234.5, server.url, 200, PAGE.encode())
        assert server.paths == ["/metrics"]
        assert server.asked[0].headers["Accept-Encoding"] == "identity"
        assert "Authorization" not in server.asked[0].headers


# ---- redirects -------------------------------------------------------------------------------


def redirecting(to: str, status: int = 307, *, at: str = "/metrics", then: str = PAGE) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == at:
            return web.Response(status=status, headers={"Location": to})
        return web.Response(text=then)

    return handler


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_on_the_same_server_is_followed_and_remembered(status: int) -> None:
    async with Server(redirecting("/metrics/", status)) as server:
        source = source_of(server.url)
        for _ in range(2):
            (found,) = await source.scrapes()
            assert (found.status, found.body) == (200, PAGE.encode())
        await source.aclose()
        assert server.paths == ["/metrics", "/metrics/", "/metrics/"]


async def test_a_remembered_redirect_is_forgotten_when_it_leads_nowhere() -> None:
    moved = True

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if moved and request.path == "/metrics":
            return web.Response(status=307, headers={"Location": "/new"})
        return web.Response(text=PAGE, status=200 if moved or request.path != "/new" else 404)

    async with Server(handler) as server:
        source = source_of(server.url)
        assert [(await source.scrapes())[0].status] == [200]
        moved = False
        assert [(await source.scrapes())[0].status for _ in range(2)] == [404, 200]
        await source.aclose()


async def test_a_redirect_to_another_host_is_a_login_and_gets_no_credentials() -> None:
    async with Server(answering(PAGE)) as other:
        to = f"http://user:pw@127.0.0.1:{other.port}/login?next=/metrics"
        async with Server(redirecting(to, 302)) as server:
            found = await scrape(server.url, access=Access(token="t0ken"))
        assert other.asked == []
    state, reason = state_of(found)
    assert state == "missing"
    assert reason.startswith("AUTH: HTTP 302")
    assert f"redirects to 127.0.0.1:{other.port}" in reason
    assert "pw" not in reason


async def test_a_redirect_out_of_tls_is_not_followed() -> None:
    async with Server(redirecting("https://127.0.0.1:1/metrics")) as server:
        found = await scrape(server.url)
    assert state_of(found)[1].startswith("AUTH: ")


@pytest.mark.parametrize("to", ["/metrics", "/a"], ids=["to-itself", "in-a-circle"])
async def test_a_redirect_loop_is_said_to_be_one(to: str) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": to})

    async with Server(handler) as server:
        found = await scrape(server.url)
        assert len(server.asked) == 4
    state, reason = state_of(found)
    assert (state, found.status) == ("missing", 302)
    assert reason.startswith("MISSING: ")
    assert "in a circle" in reason


async def test_a_redirect_without_an_address_leads_nowhere() -> None:
    async with RawServer(b"HTTP/1.1 307 Go\r\nContent-Length: 0\r\n\r\n") as server:
        found = await scrape(server.url)
    assert "nowhere" in state_of(found)[1]


# ---- credentials -----------------------------------------------------------------------------


def guarded(expected: list[str], page: str = PAGE) -> Handler:
    """Lets in whoever brings the first of `expected`."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") != expected[0]:
            return web.Response(status=401)
        return web.Response(text=page)

    return handler


async def test_401_says_what_to_give() -> None:
    async with Server(guarded(["Bearer t0ken"])) as server:
        assert state_of(await scrape(server.url))[1].startswith("AUTH: HTTP 401")
        assert (await scrape(server.url, access=Access(token="t0ken"))).status == 200
        assert (await scrape(server.url, access=Access(token=" t0ken\n"))).status == 200


async def test_a_token_file_is_read_again_at_every_round(tmp_path: Path) -> None:
    file, expected = tmp_path / "token", ["Bearer one"]
    file.write_text("one\n")
    async with Server(guarded(expected)) as server:
        source = source_of(server.url, access=Access(token_file=file))
        assert (await source.scrapes())[0].status == 200
        expected[0] = "Bearer two"
        assert (await source.scrapes())[0].status == 401
        file.write_text("two\n")
        assert (await source.scrapes())[0].status == 200
        file.unlink()  # while it is replaced, the last one stays in use
        assert (await source.scrapes())[0].status == 200
        file.write_text("")
        assert (await source.scrapes())[0].status == 200
        await source.aclose()


async def test_credentials_in_the_url_are_sent_and_never_shown() -> None:
    wanted = "Basic " + base64.b64encode("mé:p@ss".encode()).decode()
    async with Server(guarded([wanted])) as server:
        url = server.url.replace("://", "://m%C3%A9:p%40ss@")
        found = await scrape(url, access=Access(token="for-others"))
        assert found.status == 200
        assert found.target == server.url


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"\xff\xfe\x00", "not text"),
        (b"two words", "one word"),
        (b"\n", "it is empty"),
        (b"x" * 100_000, "100,000 characters are no token"),
    ],
)
async def test_a_token_file_that_is_none_is_a_usage_error(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        await scrape("http://127.0.0.1:1", access=Access(token_file=tmp_path / "token"))


# ---- answers that are no page ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (answering("oops", 500), "SERVER: HTTP 500"),
        (answering("", 503), "SERVER: HTTP 503"),
        (answering("", 404), "MISSING: HTTP 404"),
        (answering("", 403), "AUTH: HTTP 403"),
        (answering("", 418), "MISSING: HTTP 418"),
        (answering(""), "MISSING: the body is empty"),
        (answering("<!DOCTYPE html><title>Sign in</title>"), "AUTH: an HTML page"),
        (answering('{"detail": "no"}'), "MISSING: not a metrics page"),
        (answering("go_goroutines 3\n"), "MISSING: 1 samples, none of an engine"),
    ],
)
async def test_an_answer_without_metrics_has_a_word(handler: Handler, words: str) -> None:
    async with Server(handler) as server:
        found = await scrape(server.url)
    state, reason = state_of(found)
    assert state == "missing"
    assert reason.startswith(words)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CUT = PAGE.encode() + b'vllm:num_requests_waiting{model_name="m'


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 5000\r\n\r\n" + CUT,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(CUT) + CUT + b"\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (len(CUT) + 500) + CUT,
    ],
    ids=["shorter-than-told", "no-last-chunk", "inside-a-chunk"],
)
async def test_a_cut_body_is_partial_and_what_came_is_read(answer: bytes) -> None:
    async with RawServer(answer) as server:
        found = await scrape(server.url)
    assert found.truncated
    state, reason = state_of(found)
    assert state == "partial"
    assert reason.startswith("TRUNCATED: ")


async def test_a_hanging_server_costs_its_deadline_and_no_more() -> None:
    async with RawServer(b"", hang=True) as server:
        async with asyncio.timeout(60):
            found = await scrape(server.url, deadline_s=0.2)
    assert found.error == "no answer within 0.2 s"
    assert state_of(found)[0] == "down"


async def test_a_body_that_never_ends_costs_its_deadline_too() -> None:
    answer = HEAD + b"Content-Length: 5000\r\n\r\n" + PAGE.encode()
    async with RawServer(answer, hang=True) as server:
        found = await scrape(server.url, deadline_s=0.2)
    assert found.error == "no answer within 0.2 s"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "connection closed without an answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 banana\r\n\r\n", "not an HTTP answer"),
    ],
)
async def test_what_is_not_http_says_so(answer: bytes, words: str) -> None:
    async with RawServer(answer) as server:
        found = await scrape(server.url)
    assert (found.error or "").startswith(words)
    assert "\n" not in (found.error or "")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "connect refused"),
        ("http://localhost:1", "connect refused"),
        ("http://[::1]:1", "connect"),
        ("http://no-such-host.invalid:8000", "name not found"),
        ("http://a..b:8000", "name not found"),
    ],
)
async def test_no_connection_says_why(url: str, words: str) -> None:
    found = await scrape(url)
    assert (found.error or "").startswith(words)
    assert state_of(found)[0] == "down"


async def test_an_answer_that_is_compressed_although_not_asked_is_read() -> None:
    packed = gzip.compress(PAGE.encode())
    async with Server(answering(packed, headers={"Content-Encoding": "gzip"})) as server:
        assert (await scrape(server.url)).body == PAGE.encode()


async def test_a_compressed_answer_that_is_broken_is_no_page() -> None:
    async with Server(answering(b"not gzip", headers={"Content-Encoding": "gzip"})) as server:
        state, reason = state_of(await scrape(server.url))
    assert state in {"missing", "down"}
    assert reason


async def test_22_mb_are_streamed_in_bounded_memory_and_still_read() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PAGE.encode())
        for i in range(3):
            await response.write(b'vllm:cache_config_info{i="%d",config="' % i)
            for _ in range(112):
                await response.write(b"x" * 65536)
            await response.write(b'"} 1\n')
        await response.write(PAGE.replace("running", "waiting").encode())
        return response

    async with Server(handler) as server:
        source = source_of(server.url)
        tracemalloc.start()
        (found,) = await source.scrapes()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await source.aclose()
    assert found.body.decode() == PAGE + PAGE.replace("running", "waiting")
    assert (found.note or "").startswith("TOO_LARGE: a page of 22 MB")
    assert state_of(found)[0] == "partial"
    assert peak < 12_000_000


async def test_a_page_without_end_is_left_after_32_mib() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PAGE.encode())
        filling = (b"# " + b"x" * 997 + b"\n") * 64
        try:
            while True:
                await response.write(filling)
        except ConnectionResetError:
            return response

    async with Server(handler) as server:
        found = await scrape(server.url)
    state, reason = state_of(found)
    assert state == "partial"
    assert reason.startswith("TOO_LARGE: reading stopped after 32 MiB")


# ---- connections, rounds ---------------------------------------------------------------------


async def test_one_connection_serves_every_round_and_the_identification() -> None:
    async with Server(answering(PAGE)) as server:
        source = source_of(server.url, identify_engines=True)
        for _ in range(5):
            (found,) = await source.scrapes()
            assert found.status == 200
        await source.aclose()
        assert server.connections == 1
        assert server.paths.count("/metrics") == 5


async def test_a_server_that_tells_nothing_is_not_asked_again_at_every_round() -> None:
    now = [1000.0]
    async with Server(answering(PAGE)) as server:
        source = source_of(server.url, identify_engines=True, clock=lambda: now[0])
        for _ in range(3):
            await source.scrapes()
        assert server.paths.count("/version") == 1
        now[0] += 31
        await source.scrapes()
        assert server.paths.count("/version") == 2
        now[0] -= 86_400  # the clock is set back
        await source.scrapes()
        assert server.paths.count("/version") == 3
        await source.aclose()


async def test_a_server_that_began_anew_is_asked_anew_what_it_is() -> None:
    started, told = ["1795975219.25"], ["eagle3"]

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/server_info":
            config = {"speculative_config": {"method": told[0], "num_speculative_tokens": 5}}
            return web.json_response({"vllm_config": config})
        return web.Response(text=f"{PAGE}process_start_time_seconds {started[0]}\n")

    async with Server(handler, host="127.0.0.2") as server:
        source = source_of(server.url, identify_engines=True)
        infos = [(await source.scrapes())[0].info for _ in range(2)]
        started[0], told[0] = "1795975300.5", "ngram"
        infos += [(await source.scrapes())[0].info for _ in range(2)]
        started[0] = "1795975219.25"  # one address, two processes: not asked at every turn
        infos += [(await source.scrapes())[0].info for _ in range(2)]
        await source.aclose()
    assert [info.get("method") for info in infos] == ["eagle3", None, "ngram", None, None, None]


async def test_a_server_that_failed_is_asked_anew_what_it_is() -> None:
    status = [200]

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(text=PAGE, status=status[0])
        return web.Response(status=404)

    async with Server(handler) as server:
        source = source_of(server.url, identify_engines=True)
        for status[0] in (200, 200, 503, 200, 200):
            await source.scrapes()
        assert server.paths.count("/version") == 2
        await source.aclose()


async def test_identification_that_hangs_or_fails_takes_no_page_with_it() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(text=PAGE)
        await asyncio.sleep(30)
        raise AssertionError

    now = itertools.count(1000)
    async with Server(handler) as server:
        found = await scrape(
            server.url, identify_engines=True, deadline_s=0.3, clock=lambda: float(next(now))
        )
    assert (found.status, found.error) == (200, None)
    assert found.at < next(now) - 2, "the page's time, not the end of the identification's"


async def test_what_a_server_says_of_itself_comes_with_its_page() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        config = {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 5}}
        answers = {
            "/version": web.json_response({"version": "0.32.0"}),
            "/server_info": web.json_response(
                {"vllm_config": config, "env": {f"V{i}": "x" * 1000 for i in range(300)}}
            ),
        }
        return answers.get(request.path) or web.Response(text=PAGE)

    async with Server(handler) as server:
        found = await scrape(server.url, identify_engines=True, access=Access(token="t0ken"))
        assert {r.headers["Authorization"] for r in server.asked} == {"Bearer t0ken"}
    assert found.info == {"version": "0.32.0", "method": "eagle3", "k": 5}


async def test_a_dead_target_is_asked_less_and_less_often_and_comes_back() -> None:
    now = [1000.0]
    async with Server(answering(PAGE)) as server:
        url, port = server.url, server.port
    source = source_of(url, clock=lambda: now[0], jitter=lambda: 0.5, interval_s=1.0)
    asked = []
    for second in range(64):
        now[0] = 1000.0 + second
        if await source.scrapes():
            asked.append(second)
    assert asked == [0, 1, 3, 7, 15, 30, 45, 60]
    async with Server(answering(PAGE), port=port):
        now[0] += 20
        (found,) = await source.scrapes()
        assert found.status == 200
        now[0] += 1
        assert len(await source.scrapes()) == 1
    await source.aclose()


async def test_a_clock_set_back_does_not_keep_a_target_waiting() -> None:
    now = [1_000_000.0]
    source = source_of("http://127.0.0.1:1", clock=lambda: now[0], interval_s=1.0)
    for _ in range(2):
        await source.scrapes()
    assert await source.scrapes() == []
    now[0] -= 3600
    assert len(await source.scrapes()) == 1
    await source.aclose()


async def test_many_targets_are_asked_at_once_and_one_dead_one_holds_up_none() -> None:
    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return web.Response(text=PAGE)

    async with Server(slow) as server, RawServer(b"", hang=True) as dead:
        urls = [f"{server.url}/{i}" for i in range(60)]
        source = source_of(*urls, dead.url, deadline_s=2.5, jitter=lambda: 0.0)
        began = asyncio.get_running_loop().time()
        found = await source.scrapes()
        took = asyncio.get_running_loop().time() - began
        await source.aclose()
    assert sum(each.status == 200 for each in found) == 60
    assert [each.error for each in found if each.error] == ["no answer within 2.5 s"]
    assert took < 25.0, "30 s one after another"


class Slow:
    """A server whose answers take as long as it is told, and that counts what it owes."""

    def __init__(self) -> None:
        self.takes = 0.0
        self.owes = self.most = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.owes += 1
        self.most = max(self.most, self.owes)
        await asyncio.sleep(self.takes)
        self.owes -= 1
        return web.Response(text=PAGE)


async def test_a_round_does_not_wait_for_a_target_that_hangs() -> None:
    async with Server(answering(PAGE)) as server, RawServer(b"", hang=True) as dead:
        source = source_of(server.url, dead.url, deadline_s=LATE, interval_s=0.3)
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            assert [each.target for each in await source.soon()] == [server.url]
        assert asyncio.get_running_loop().time() - began < LATE / 2
        assert source.awaited == (dead.url,)
        await source.aclose()


async def test_a_target_that_hangs_is_an_error_of_a_later_round() -> None:
    async with Server(answering(PAGE)) as server, RawServer(b"", hang=True) as dead:
        source = source_of(server.url, dead.url, deadline_s=0.3, interval_s=0.1)
        assert len(await source.soon()) == 1
        found = await source.unheard()
        assert [(each.target, each.error) for each in found] == [
            (dead.url, "no answer within 0.3 s")
        ]
        assert source.awaited == ()
        await source.aclose()


async def test_a_slow_target_is_asked_one_thing_at_a_time_and_its_answer_comes_late() -> None:
    slow = Slow()
    slow.takes = 0.5
    async with Server(slow) as server, Server(answering(PAGE)) as quick:
        source = source_of(server.url, quick.url, interval_s=0.1)
        found: list[Scrape] = []
        for _ in range(20):
            part = await source.soon()
            assert len({each.target for each in part}) == len(part)
            found += [each for each in part if each.target == server.url]
            await asyncio.sleep(0.08)
        await source.aclose()
    assert slow.most == 1
    assert len(found) >= 2
    assert {each.status for each in found} == {200}


async def test_a_target_that_was_slow_once_is_not_a_round_behind_ever_after() -> None:
    slow = Slow()
    async with Server(slow) as server, Server(answering(PAGE)) as quick:
        source = source_of(server.url, quick.url, interval_s=0.4)
        slow.takes = 0.6
        assert len(await source.soon()) == 1
        slow.takes = 0.0
        await asyncio.sleep(0.5)
        asked = time.time()
        late = next(each for each in await source.soon() if each.target == server.url)
        assert late.at >= asked
        await source.aclose()


async def test_while_nothing_answers_a_round_waits_for_whoever_may() -> None:
    slow = Slow()
    slow.takes = 0.5
    async with Server(slow) as server:
        source = source_of(server.url, "http://127.0.0.1:1", interval_s=0.1)
        assert {each.target for each in await source.soon()} == {
            server.url,
            "http://127.0.0.1:1",
        }
        await source.aclose()


async def test_a_whole_round_has_every_answer() -> None:
    async with Server(answering(PAGE)) as server, RawServer(b"", hang=True) as dead:
        source = source_of(server.url, dead.url, deadline_s=0.4, interval_s=0.1)
        assert len(await source.scrapes()) == 2
        await source.aclose()


async def test_a_large_fleet_is_spread_over_the_interval_after_the_first_round() -> None:
    async with Server(answering(PAGE)) as server:
        spread: list[float] = []

        def jitter() -> float:
            spread.append(len(spread) % 2)
            return spread[-1]

        urls = [f"{server.url}/{i}" for i in range(20)]
        source = source_of(*urls, interval_s=0.4, jitter=jitter)
        await source.scrapes()
        assert spread == []
        began = time.time()
        found = await source.scrapes()
        await source.aclose()
    assert spread == [0.0, 1.0] * 10
    # Every second one was asked half an interval later; the clock of a loop is a little coarse.
    assert sum(each.at - began >= 0.19 for each in found) >= 10


async def test_ipv6_is_an_address_like_any_other() -> None:
    try:
        async with Server(answering(PAGE), host="::1") as server:
            found = await scrape(server.url)
            assert found.status == 200
            assert found.target == f"http://[::1]:{server.port}"
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


async def test_a_path_before_the_page_is_kept_and_so_is_a_query() -> None:
    async with Server(answering(PAGE)) as server:
        await scrape(f"{server.url}/pool/a")
        await scrape(f"{server.url}/pool/a/metrics?format=text")
        assert [(r.path, r.query_string) for r in server.asked] == [
            ("/pool/a/metrics", ""),
            ("/pool/a/metrics", "format=text"),
        ]


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with Server(answering(PAGE)) as server:
        assert (await scrape(server.url)).status == 200
