"""Every way in which a Prometheus can fail to answer says what it is, within the deadline."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from speccli.core.errors import (
    DeadlineError,
    ExitCode,
    NotAuthorisedError,
    SourceError,
    UnreachableError,
    UsageError,
)
from speccli.core.sources import promapi
from speccli.core.sources.promapi import Answer, PrometheusApi
from speccli.core.sources.scrape import Access
from tests.core.sources.far_end import (
    Certificates,
    Reply,
    Request,
    failure,
    far_end,
    make_certificates,
    refused,
    silent,
    success,
)

DEADLINE_S = 0.5
PATIENT_S = 30.0
"""The deadline where an answer comes, and how long after one a busy machine may take to say so."""
ONE = [{"metric": {"slot": "drafts"}, "value": [1795975219.25, "7"]}]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def api(
    url: str, access: Access | None = None, deadline_s: float = PATIENT_S
) -> AsyncIterator[PrometheusApi]:
    asked = PrometheusApi(url, access=access, deadline_s=deadline_s)
    try:
        yield asked
    finally:
        await asked.aclose()


async def ask(
    url: str,
    access: Access | None = None,
    expression: str = "x",
    deadline_s: float = PATIENT_S,
) -> Answer:
    async with api(url, access, deadline_s) as asked:
        began = time.monotonic()
        try:
            return await asked.query(expression)
        finally:
            assert time.monotonic() - began < deadline_s + PATIENT_S


async def error_of(
    url: str, access: Access | None = None, deadline_s: float = PATIENT_S
) -> SourceError:
    with pytest.raises(SourceError) as caught:
        await ask(url, access, deadline_s=deadline_s)
    assert caught.value.exit_code is ExitCode.UNKNOWN
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


# T20, in its own order ---------------------------------------------------------------------------


async def test_t20_a_nan_is_no_traffic_and_no_value() -> None:
    nan = [{"metric": {}, "value": [1795975219.25, "NaN"]}]
    with far_end(success(nan)) as end:
        answer = await ask(end.url)
    assert answer.word == "NO_TRAFFIC"
    assert answer.series[0].value is None


async def test_t20_b_an_empty_result_is_missing() -> None:
    with far_end(success([])) as end:
        answer = await ask(end.url)
    assert answer.word == "MISSING"
    assert answer.series == ()


async def test_t20_c_a_scalar_is_not_taken_for_series() -> None:
    with far_end(success([1795975219.25, "1"], "scalar")) as end:
        error = await error_of(end.url)
    assert "answers with a scalar where series were asked for" in error.message


async def test_t20_d_an_html_page_is_named() -> None:
    page = Reply(body=b"<!DOCTYPE html><title>Sign in</title>")
    with far_end(page) as end:
        error = await error_of(end.url)
    assert "answers with an HTML page (a login page, a proxy?)" in error.message


async def test_t20_e_a_redirect_to_a_login_is_not_followed() -> None:
    moved = Reply(302, headers={"Location": "https://sso.example/login?rd=x"})
    with far_end(moved) as end:
        error = await error_of(end.url)
        assert len(end.requests) == 1
    assert isinstance(error, NotAuthorisedError)
    assert "redirects to sso.example/login: a login page?" in error.message


@pytest.mark.parametrize("status", [401, 403])
async def test_t20_f_other_credentials_are_wanted(status: int) -> None:
    with far_end(Reply(status, b"no")) as end:
        error = await error_of(end.url)
    assert isinstance(error, NotAuthorisedError)
    assert f"answers {status}" in error.message


async def test_t20_g_503_forever_is_asked_once_and_told() -> None:
    with far_end(Reply(503, b"upstream connect error")) as end:
        error = await error_of(end.url)
        assert len(end.requests) == 1
    assert isinstance(error, UnreachableError)
    assert "answers 503: upstream connect error" in error.message


async def test_t20_h_an_answer_that_never_comes_ends_at_the_deadline() -> None:
    with silent() as url:
        error = await error_of(url, deadline_s=DEADLINE_S)
    assert isinstance(error, DeadlineError)
    assert f"has not answered within {DEADLINE_S:g} s" in error.message


async def test_t20_i_warnings_make_an_answer_partial() -> None:
    with far_end(success(ONE, warnings=["partial response"])) as end:
        answer = await ask(end.url)
    assert answer.word == "PARTIAL"
    assert answer.note == "PARTIAL: partial response"
    assert answer.series[0].value == 7


async def test_t20_j_a_parse_error_is_quoted() -> None:
    said = 'invalid parameter "query": 1:5: parse error: unexpected identifier'
    with far_end(failure(400, "bad_data", said)) as end:
        error = await error_of(end.url)
    assert said in error.message
    assert error.hint == "check --selector"


async def test_t20_k_a_private_ca_is_refused_until_it_is_given(certificates: Certificates) -> None:
    with far_end(success(ONE), tls=certificates.server) as end:
        error = await error_of(end.url)
        answer = await ask(end.url, Access(ca_file=certificates.ca))
    assert isinstance(error, UnreachableError)
    assert "not accepted: " in error.message
    assert error.hint == "give the CA with --ca FILE"
    assert answer.series[0].value == 7


# More of the same --------------------------------------------------------------------------------


async def test_a_body_that_drips_ends_at_the_deadline() -> None:
    drip = Reply(body=success(ONE).body, drip_s=0.05)
    with far_end(drip) as end:
        assert isinstance(await error_of(end.url, deadline_s=DEADLINE_S), DeadlineError)


async def test_a_closed_port_is_refused_at_once() -> None:
    began = time.monotonic()
    error = await error_of(refused())
    assert isinstance(error, UnreachableError)
    assert "connect refused" in error.message
    assert time.monotonic() - began < PATIENT_S


async def test_a_name_that_does_not_exist() -> None:
    error = await error_of("http://prometheus.invalid:9090")
    # Where no resolver answers, that is what is told instead.
    assert "name not found" in error.message or isinstance(error, DeadlineError)


async def test_plain_http_behind_an_https_url() -> None:
    with far_end(success(ONE)) as end:
        error = await error_of(end.url.replace("http", "https"))
    assert error.hint == "check http or https"


async def test_a_query_that_prometheus_gives_up_on_is_a_deadline() -> None:
    with far_end(failure(503, "timeout", "query timed out in expression evaluation")) as end:
        assert isinstance(await error_of(end.url), DeadlineError)


async def test_a_query_that_loads_too_much_is_quoted() -> None:
    said = "query processing would load too many samples into memory in query execution"
    with far_end(failure(422, "execution", said)) as end:
        error = await error_of(end.url)
    assert said in error.message
    assert "--selector" in (error.hint or "")


async def test_json_of_another_kind() -> None:
    with far_end(Reply(body=b'{"status": "ok"}')) as end:
        error = await error_of(end.url)
    assert "something other than Prometheus's JSON" in error.message


@pytest.mark.parametrize(
    "result",
    [
        pytest.param([{"metric": {}, "value": [1, "seven"]}], id="value-is-a-word"),
        pytest.param([{"metric": {}}], id="no-value"),
        pytest.param([7], id="not-an-object"),
    ],
)
async def test_series_that_cannot_be_read(result: object) -> None:
    with far_end(success(result)) as end:
        assert "cannot be read" in (await error_of(end.url)).message


async def test_no_api_at_this_path() -> None:
    with far_end(Reply(404, b"404 page not found")) as end:
        assert "has no Prometheus API" in (await error_of(end.url)).message


async def test_an_answer_too_large_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promapi, "MAX_BYTES", 1 << 20)
    with far_end(Reply(body=b" " * (3 << 20))) as end:
        assert "more than 1 MB" in (await error_of(end.url)).message


async def test_a_redirect_in_a_circle_ends() -> None:
    with far_end(lambda r: Reply(301, headers={"Location": r.path})) as end:
        assert "redirects in a circle" in (await error_of(end.url)).message


async def test_hanging_questions_are_not_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    async with api("http://127.0.0.1:1") as asked:
        monkeypatch.setattr(asked, "_ask", lambda *_, **__: let_go.wait(30))
        monkeypatch.setattr(asked, "_deadline_s", 0.01)
        for _ in range(20):
            with pytest.raises(DeadlineError):
                await asked.query("x")
        assert asked.asked == promapi._MAX_STUCK
        let_go.set()
        for _ in range(500):
            if asked._stuck == 0:
                break
            await asyncio.sleep(0.01)
        assert asked._stuck == 0


async def test_credentials_of_the_url_are_sent_and_never_shown() -> None:
    with far_end(Reply(401)) as end:
        url = end.url.replace("://", "://reader:s3cret@") + "/api/v1/query?token=t0ken"
        error = await error_of(url)
        assert end.requests[0].headers["Authorization"].startswith("Basic ")
    for secret in ("s3cret", "t0ken", "reader"):
        assert secret not in f"{error.message} {error.hint}"


async def test_a_token_file_is_read_again_for_every_question(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with far_end(success(ONE)) as end:
        async with api(end.url, Access(token_file=token)) as asked:
            await asked.query("x")
            token.write_text("second\n")
            await asked.query("x")
        sent = [request.headers["Authorization"] for request in end.requests]
    assert sent == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("meanwhile", [None, "", "half a tok"], ids=["gone", "empty", "torn"])
async def test_a_token_file_being_replaced_leaves_the_last_token_in_use(
    tmp_path: Path, meanwhile: str | None
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with far_end(success(ONE)) as end:
        async with api(end.url, Access(token_file=token)) as asked:
            await asked.query("x")
            token.unlink() if meanwhile is None else token.write_text(meanwhile)
            await asked.query("x")
        sent = [request.headers["Authorization"] for request in end.requests]
    assert sent == ["Bearer first", "Bearer first"]


async def test_a_token_file_that_is_empty_from_the_start_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("")
    with far_end(success(ONE)) as end:
        with pytest.raises(UsageError, match="it is empty"):
            await ask(end.url, Access(token_file=tmp_path / "token"))
        assert not end.requests


async def test_a_token_file_that_is_gone_is_a_usage_error(tmp_path: Path) -> None:
    async with api("http://127.0.0.1:1", Access(token_file=tmp_path / "gone")) as asked:
        with pytest.raises(UsageError, match="token file"):
            await asked.query("x")


async def test_a_netrc_does_not_replace_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with far_end(success(ONE)) as end:
        await ask(end.url, Access(token="mine"))
        assert end.requests[0].headers["Authorization"] == "Bearer mine"


async def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    cert, key = certificates.client
    access = Access(ca_file=certificates.ca, cert_file=cert, key_file=key)
    with far_end(success(ONE), tls=certificates.server) as end:
        assert (await ask(end.url, access)).series[0].value == 7


async def test_insecure_accepts_any_certificate(certificates: Certificates) -> None:
    with far_end(success(ONE), tls=certificates.server) as end:
        assert (await ask(end.url, Access(insecure=True))).series[0].value == 7


async def test_a_long_query_is_posted_and_a_short_one_is_not() -> None:
    with far_end(success(ONE)) as end:
        await ask(end.url, expression="x" * 100)
        await ask(end.url, expression="x" * 5000)
    assert [request.method for request in end.requests] == ["GET", "POST"]
    assert end.requests[1].query["query"] == "x" * 5000
    assert len(end.requests[1].path) < 50


async def test_the_server_is_told_to_give_up_first() -> None:
    with far_end(success(ONE)) as end:
        await ask(end.url)
    assert end.requests[0].query["timeout"] == f"{800 * PATIENT_S:.0f}ms"


async def test_the_present_is_told_by_the_servers_clock() -> None:
    with far_end(success(ONE)) as end:
        async with api(end.url) as asked:
            await asked.query("x")
            assert 0 <= asked.now() - 1795975219.25 < PATIENT_S


async def test_a_question_about_the_past_does_not_set_the_clock_back() -> None:
    def at(request: Request) -> Reply:
        when = float(request.query.get("time", 1795975219.25))
        return success([{"metric": {}, "value": [when, "7"]}])

    with far_end(at) as end:
        async with api(end.url) as asked:
            await asked.query("x")
            await asked.query("x", at=1795975219.25 - 300)
            assert 0 <= asked.now() - 1795975219.25 < PATIENT_S


async def test_a_span_is_asked_for_up_to_its_end_and_does_not_set_the_clock_back() -> None:
    points = [[1795974300, "1"], [1795974360, "2"]]
    series = [{"metric": {"slot": "drafts"}, "values": points}]
    with far_end(success(series, "matrix")) as end:
        async with api(end.url) as asked:
            answer = await asked.query_range("x", end=1795974360.9, span_s=60, step_s=30)
            assert asked.server_time is None
            assert asked.asked == 1
    assert [list(map(list, s.samples)) for s in answer.series] == [points]
    (request,) = end.requests
    assert request.path == "/api/v1/query_range"
    told = {name: request.query[name] for name in ("query", "start", "end", "step", "timeout")}
    assert told == {
        "query": "x",
        "start": "1795974300",
        "end": "1795974360",
        "step": "30",
        "timeout": f"{800 * PATIENT_S:.0f}ms",
    }


async def test_a_refused_span_is_told_as_any_question_is() -> None:
    with far_end(Reply(status=401)) as end:
        async with api(end.url) as asked:
            with pytest.raises(NotAuthorisedError):
                await asked.query_range("x", end=1795974360.0, span_s=60, step_s=30)


async def test_questions_run_beside_each_other() -> None:
    def slow(_: Request) -> Reply:
        time.sleep(1.0)
        return success(ONE)

    with far_end(slow) as end:
        async with api(end.url) as asked:
            began = time.monotonic()
            await asyncio.gather(*(asked.query("x") for _ in range(5)))
            assert time.monotonic() - began < 4.5, "5 s one after another"


@pytest.mark.parametrize("url", ["ftp://prometheus:9090", "http://", "http://host:port", "a b"])
def test_what_is_not_a_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="--prometheus"):
        PrometheusApi(url)


@pytest.mark.parametrize(
    "url",
    ["http://me:hun/ter2@h:9090", "http://me:hunter2@h:99999", "me:hun/ter2@h:x", "ftp://me:hun@h"],
)
def test_a_mistyped_url_does_not_print_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="--prometheus") as caught:
        PrometheusApi(url)
    assert "hun" not in f"{caught.value.message} {caught.value.hint}"


async def test_credentials_without_a_scheme_are_sent_too() -> None:
    with far_end(success(ONE)) as end:
        await ask(end.url.replace("http://", "reader:s3cret@"))
        assert end.requests[0].headers["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("prometheus:9090", "http://prometheus:9090"),
        ("http://prometheus:9090/graph", "http://prometheus:9090"),
        ("https://mimir/prometheus/api/v1/query", "https://mimir/prometheus"),
        ("http://[::1]:9090/", "http://[::1]:9090"),
    ],
)
def test_the_base_url(given: str, shown: str) -> None:
    assert PrometheusApi(given).url == shown


def test_the_library_is_not_imported_before_the_first_question() -> None:
    code = (
        "import sys, speccli.core.poll_prometheus as p, speccli.core.stats.window as w;"
        "p.open_prometheus('http://x', w.Settings());"
        "print(sorted({'requests', 'prometheus_api_client', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
