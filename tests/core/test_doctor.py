"""Doctor against real servers, and what it makes of this machine."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

from speccli.core.config import Settings
from speccli.core.doctor import Asked, Check, exit_code, run
from speccli.core.doctor import machine as local
from speccli.core.doctor.machine import Surroundings
from speccli.core.doctor.probe import skew_of
from speccli.core.sim import Fault, build_fleet
from speccli.core.sim.server import SimServer
from speccli.core.sources.certificate import expiry
from speccli.core.sources.promql import RULES_VERSION

Handler = Callable[[web.Request], object]
STARTED = 1_795_000_000


def around(tmp_path: Path, **environment: str) -> Surroundings:
    home = {"HOME": str(tmp_path / "home")}
    return Surroundings({**home, **environment}, tmp_path)


def page(
    *,
    started: float | None = STARTED,
    tokens: int = 1000,
    spec: bool = True,
    first_bucket: float = 0.3,
    extra: str = "",
    version: str = "",
) -> str:
    labels = f'engine="0",model_name="m"{version}{extra}'
    lines = [
        f"vllm:num_requests_running{{{labels}}} 1",
        f"vllm:num_requests_waiting{{{labels}}} 0",
        f"vllm:generation_tokens_total{{{labels}}} {tokens}",
        f'vllm:request_queue_time_seconds_bucket{{{labels},le="{first_bucket}"}} 9',
        f'vllm:request_queue_time_seconds_bucket{{{labels},le="+Inf"}} 9',
        f"vllm:request_queue_time_seconds_count{{{labels}}} 9",
        f"vllm:request_queue_time_seconds_sum{{{labels}}} 0.1",
    ]
    if spec:
        lines += [
            f"vllm:spec_decode_num_drafts_total{{{labels}}} 100",
            f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} 300",
            f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} 200",
        ]
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def serving(
    metrics: Handler | str,
    *,
    tls: ssl.SSLContext | None = None,
    routes: Iterable[tuple[str, Handler]] = (),
) -> AsyncIterator[str]:
    """A server whose /metrics is this text, or what this handler gives."""

    async def text(_: web.Request) -> web.Response:
        return web.Response(text=str(metrics))

    app = web.Application()
    app.router.add_get("/metrics", text if isinstance(metrics, str) else metrics)  # type: ignore[arg-type]
    for path, handler in routes:
        app.router.add_get(path, handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def look(tmp_path: Path, *, whole_s: float | None = None, **settings: object) -> list[Check]:
    """The checks of sources alone."""
    asked = Asked(Settings(**{"deadline": "2s", **settings}))  # type: ignore[arg-type]
    return await run(asked, around(tmp_path), whole_s=whole_s, machine=())


def one(checks: Iterable[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


def names(checks: Iterable[Check]) -> list[str]:
    return [check.name for check in checks]


# ---- servers that are scraped ----


async def test_a_healthy_engine_is_looked_at_from_every_side(tmp_path: Path) -> None:
    fleet = build_fleet(1, method="p-eagle", k=4, warmup_s=5)
    async with SimServer(fleet) as server:
        checks = await look(tmp_path, endpoint=(server.urls[0],))
    assert {c.subject for c in checks} == set(server.urls)
    assert one(checks, "metrics").what == "readable, 1 engine, SIMULATED"
    assert one(checks, "engine").what == "vllm 0.32.0, SIMULATED/llama-3.3-70b"
    assert one(checks, "speculation").what.startswith("p-eagle, K=4")
    assert one(checks, "one process").state == "ok"
    assert one(checks, "clock").state == "ok"
    assert one(checks, "scrape").state == "ok"
    coarse = one(checks, "buckets")
    assert (coarse.state, "--custom-histogram-buckets" in coarse.fix) == ("warn", True)
    assert exit_code(checks) == 1


async def test_fine_buckets_need_no_advice(tmp_path: Path) -> None:
    async with serving(page(first_bucket=0.005)) as url:
        checks = await look(tmp_path, endpoint=(url,))
    assert one(checks, "buckets").what == "request latencies are resolved from 5 ms on"


async def test_buckets_that_cannot_be_set_are_told_but_no_warning(tmp_path: Path) -> None:
    async def version(_: web.Request) -> web.Response:
        return web.json_response({"version": "0.28.0"})

    async with serving(page(), routes=[("/version", version)]) as url:
        checks = await look(tmp_path, endpoint=(url,))
    assert one(checks, "engine").what == "vllm 0.28.0, m"
    assert one(checks, "buckets").state == "ok"
    assert one(checks, "buckets").fix == "0.32 can set them"


async def test_a_method_that_is_not_told_says_how_to_tell_it(tmp_path: Path) -> None:
    async with serving(page()) as url:
        untold = one(await look(tmp_path, endpoint=(url,)), "speculation")
        told = one(await look(tmp_path, endpoint=(url,), method="eagle3"), "speculation")
    assert untold.state == "warn"
    assert "VLLM_SERVER_DEV_MODE=1" in untold.fix
    assert "--method" in untold.fix
    assert (told.state, told.what) == ("ok", "eagle3")


async def test_no_speculation_is_a_warning_unless_the_server_says_it_is_meant(
    tmp_path: Path,
) -> None:
    async def info(_: web.Request) -> web.Response:
        return web.json_response({"vllm_config": {"speculative_config": None}})

    async with serving(page(spec=False)) as url:
        assert one(await look(tmp_path, endpoint=(url,)), "speculation").state == "warn"
    async with serving(page(spec=False), routes=[("/server_info", info)]) as url:
        assert one(await look(tmp_path, endpoint=(url,)), "speculation").state == "ok"


async def test_a_method_without_any_metric_of_it_is_wrong(tmp_path: Path) -> None:
    async def info(_: web.Request) -> web.Response:
        config = {"method": "eagle3", "num_speculative_tokens": 3}
        return web.json_response({"vllm_config": {"speculative_config": config}})

    async with serving(page(spec=False), routes=[("/server_info", info)]) as url:
        check = one(await look(tmp_path, endpoint=(url,)), "speculation")
    assert (check.state, check.why) == ("fail", "it is not active")


async def test_a_load_balancer_shows_by_the_start_of_its_processes(tmp_path: Path) -> None:
    asked = 0

    async def by_turns(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=page(started=STARTED + asked % 2))

    async with serving(by_turns) as url:
        checks = await look(tmp_path, endpoint=(url,))
    check = one(checks, "one process")
    assert (check.state, check.what) == ("fail", "2 processes answered")
    assert "each server behind it" in check.fix
    assert exit_code(checks) == 2


async def test_a_load_balancer_shows_by_counters_where_no_start_is_told(tmp_path: Path) -> None:
    asked = 0

    async def by_turns(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=page(started=None, tokens=1000 if asked % 2 else 500))

    async with serving(by_turns) as url:
        check = one(await look(tmp_path, endpoint=(url,)), "one process")
    assert (check.state, check.what) == ("fail", "its counters run backwards")


async def test_several_api_servers_are_told(tmp_path: Path) -> None:
    async with serving(page(extra=',pid="7"')) as url:
        check = one(await look(tmp_path, endpoint=(url,)), "API servers")
    assert check.state == "warn"
    assert "#51329" in check.why


@pytest.mark.parametrize(
    ("ahead_s", "state", "says"),
    [
        pytest.param(0.0, "ok", "within", id="agrees"),
        pytest.param(4.0, "ok", "within", id="under-the-limit"),
        pytest.param(90.0, "warn", "90 s ahead of", id="ahead"),
        pytest.param(-3600.0, "warn", "60 min behind", id="behind"),
    ],
)
async def test_a_clock_that_is_off_is_told(
    tmp_path: Path, ahead_s: float, state: str, says: str
) -> None:
    async def dated(_: web.Request) -> web.Response:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
        return web.Response(text=page(), headers={"Date": date})

    async with serving(dated) as url:
        check = one(await look(tmp_path, endpoint=(url,)), "clock")
    assert check.state == state
    assert says in check.what


def test_the_skew_is_read_within_its_own_error() -> None:
    skew, error = skew_of("Sun, 29 Nov 2026 12:00:00 GMT", 1_795_953_600.0, 0.2)
    assert skew == pytest.approx(0.4)
    assert error == pytest.approx(0.6)
    assert skew_of(None, 0.0, 0.0)[0] is None
    assert skew_of("yesterday", 0.0, 0.0)[0] is None


async def test_a_slow_page_is_told(tmp_path: Path) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.6)
        return web.Response(text=page())

    async with serving(slow) as url:
        check = one(await look(tmp_path, endpoint=(url,)), "scrape")
    assert (check.state, check.fix) == ("warn", "give --interval 5s, or ask a Prometheus")


async def test_a_huge_page_is_told(tmp_path: Path) -> None:
    huge = page() + "# " + "x" * 6_000_000 + "\n"
    async with serving(huge) as url:
        check = one(await look(tmp_path, endpoint=(url,)), "scrape")
    assert check.state == "warn"
    assert "6,0" in check.what


async def test_a_refused_port_is_unknown(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    checks = await look(tmp_path, endpoint=(f"127.0.0.1:{port}",))
    assert [(c.name, c.state, c.what) for c in checks] == [("reach", "unknown", "connect refused")]
    assert exit_code(checks) == 3


async def test_a_name_that_does_not_resolve_is_unknown(tmp_path: Path) -> None:
    checks = await look(tmp_path, endpoint=("http://no-such-host.invalid:8000",))
    check = one(checks, "name")
    assert (check.state, exit_code(checks)) == ("unknown", 3)
    assert check.what.startswith("no-such-host.invalid: ")


async def test_a_hanging_server_is_unknown_within_the_deadline(tmp_path: Path) -> None:
    fleet = build_fleet(1)
    fleet.replicas[0].fault = Fault.HANG
    began = time.monotonic()
    async with SimServer(fleet) as server:
        checks = await look(tmp_path, endpoint=(server.urls[0],), deadline="0.3s")
    assert one(checks, "reach").what == "no answer within 0.3 s"
    assert exit_code(checks) == 3
    assert time.monotonic() - began < 30


async def test_the_whole_has_a_deadline_whatever_its_steps_have(tmp_path: Path) -> None:
    fleet = build_fleet(1)
    fleet.replicas[0].fault = Fault.HANG
    began = time.monotonic()
    async with SimServer(fleet) as server:
        checks = await look(tmp_path, endpoint=(server.urls[0],), deadline="60s", whole_s=0.3)
    assert one(checks, "reach").what == "no answer before the deadline"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param(Fault.ERROR_500, "SERVER: HTTP 500", id="500"),
        pytest.param(Fault.HTML, "AUTH: an HTML page", id="login-page"),
        pytest.param(Fault.EMPTY, "MISSING: the body is empty", id="empty"),
    ],
)
async def test_a_page_without_metrics_is_wrong(tmp_path: Path, fault: Fault, says: str) -> None:
    fleet = build_fleet(1)
    fleet.replicas[0].fault = fault
    async with SimServer(fleet) as server:
        checks = await look(tmp_path, endpoint=(server.urls[0],))
    check = one(checks, "metrics")
    assert check.state == "fail"
    assert check.what.startswith(says)
    assert exit_code(checks) == 2


async def test_one_bad_server_does_not_hide_the_others(tmp_path: Path) -> None:
    async with serving(page()) as url:
        checks = await look(tmp_path, endpoint=(url, "http://127.0.0.1:9"))
    assert {c.subject for c in checks} == {url, "http://127.0.0.1:9"}
    assert one(checks, "reach").subject == "http://127.0.0.1:9"
    assert "speculation" in names(checks)


# ---- TLS ----


def certificate(folder: Path, *validity: str) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS with a certificate of its own making for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
        + list(validity),
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def expired(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """The same, but it ended on 2021-01-01 (`req -x509` has no dates before OpenSSL 3.2)."""
    _, cert = certificate(folder)
    key, request = folder / "key.pem", folder / "request.pem"
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=d\n[d]\n"
        f"database={folder}/index.txt\nserial={folder}/serial\nnew_certs_dir={folder}\n"
        "default_md=sha256\npolicy=p\nx509_extensions=e\n"
        "[p]\ncommonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1\n"
    )
    for command in (
        ["req", "-new", "-key", str(key), "-subj", "/CN=127.0.0.1", "-out", str(request)],
        ["ca", "-batch", "-selfsign", "-config", str(folder / "ca.cnf"), "-keyfile", str(key)]
        + ["-in", str(request), "-out", str(cert), "-notext"]
        + ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"],
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


async def test_an_expired_certificate_says_since_when(tmp_path: Path) -> None:
    tls, cert = expired(tmp_path)
    async with serving(page(), tls=tls) as url:
        checks = await look(tmp_path, endpoint=(url,), ca=str(cert))
    check = one(checks, "TLS")
    assert check.state == "fail"
    assert check.what.startswith("certificate expired: ends 2021-01-01 00:00 UTC")
    assert exit_code(checks) == 2


async def test_a_certificate_of_unknown_authority_says_what_to_give(tmp_path: Path) -> None:
    tls, cert = certificate(tmp_path, "-days", "90")
    async with serving(page(), tls=tls) as url:
        refused = one(await look(tmp_path, endpoint=(url,)), "TLS")
        accepted = await look(tmp_path, endpoint=(url,), ca=str(cert))
        unverified = one(await look(tmp_path, endpoint=(url,), insecure=True), "TLS")
    assert (refused.state, "--ca" in refused.fix) == ("fail", True)
    assert "self-signed certificate" in refused.what.replace("self signed", "self-signed")
    assert one(accepted, "TLS").state == "ok"
    assert one(accepted, "metrics").state == "ok"
    assert (unverified.state, "not verified" in unverified.what) == ("warn", True)


async def test_a_certificate_that_ends_soon_is_told(tmp_path: Path) -> None:
    tls, cert = certificate(tmp_path, "-days", "3")
    async with serving(page(), tls=tls) as url:
        check = one(await look(tmp_path, endpoint=(url,), ca=str(cert)), "TLS")
    assert (check.state, check.fix) == ("warn", "renew it")
    assert "in 3 d" in check.what or "in 2 d" in check.what or "h" in check.what


async def test_https_where_the_server_speaks_http(tmp_path: Path) -> None:
    async with serving(page()) as url:
        checks = await look(tmp_path, endpoint=(url.replace("http", "https"),))
    assert (one(checks, "TLS").state, "http://" in one(checks, "TLS").fix) == ("fail", True)


def test_the_end_of_any_certificate_of_openssl_is_read(tmp_path: Path) -> None:
    _, cert = certificate(tmp_path, "-days", "36500")  # past 2049 it is a GeneralizedTime
    der = ssl.PEM_cert_to_DER_cert(cert.read_text())
    told = expiry(der)
    assert told is not None
    assert abs(told - datetime.now(UTC) - timedelta(days=36500)) < timedelta(hours=1)
    for rubbish in (None, b"", b"\x30", der[:40], b"\x30\x03\x02\x01\x01"):
        assert expiry(rubbish) is None


# ---- a Prometheus ----


def answering(values: dict[str, float | None], rules: Sequence[str] = ()) -> Handler:
    """PromQL by the beginning of the expression; versions of the recording rules there."""

    async def query(request: web.Request) -> web.Response:
        form = {**request.query, **dict(await request.post())}
        expression = str(form["query"])
        value = next((v for begins, v in values.items() if expression.startswith(begins)), None)
        now = time.time()
        result = [] if value is None else [{"metric": {}, "value": [now, str(value)]}]
        if expression.startswith("group by (version"):
            of = ({"version": v, "engine_kind": "vllm"} for v in rules)
            result = [{"metric": metric, "value": [now, "1"]} for metric in of]
        data = {"resultType": "vector", "result": result}
        return web.json_response({"status": "success", "data": data})

    return query


async def prometheus(
    tmp_path: Path, values: dict[str, float | None], rules: Sequence[str] = ()
) -> list[Check]:
    async with serving("", routes=[("/api/v1/query", answering(values, rules))]) as url:
        return await look(tmp_path, prometheus=url, selector='namespace="prod"')


async def test_a_prometheus_that_knows_the_pool(tmp_path: Path) -> None:
    told: dict[str, float | None] = {"vector(time())": time.time(), "count(": 12, "min(": 7}
    checks = await prometheus(tmp_path, told)
    assert [c.state for c in checks] == ["ok"] * 4
    assert one(checks, "engines").what == '12 with namespace="prod"'
    assert one(checks, "freshness").what == "the newest sample is 7 s old"


@pytest.mark.parametrize(
    ("rules", "state", "what", "fix"),
    [
        pytest.param([RULES_VERSION], "ok", f"version {RULES_VERSION}, as", "", id="ours"),
        pytest.param(["1"], "warn", "there are version 1, this", "alert rules", id="older"),
        pytest.param(["1", RULES_VERSION], "warn", "versions 1 and", "unload version 1", id="both"),
        pytest.param(
            [RULES_VERSION, "1"], "warn", "versions 1 and", "unload version 1", id="both2"
        ),
    ],
)
async def test_recording_rules_of_another_version_are_told(
    rules: list[str], state: str, what: str, fix: str, tmp_path: Path
) -> None:
    told: dict[str, float | None] = {"vector(time())": time.time(), "count(": 12, "min(": 7}
    check = one(await prometheus(tmp_path, told, rules), "rules")
    assert check.state == state
    assert what in check.what
    assert fix in check.fix
    assert bool(check.fix) == (state == "warn")


async def test_a_prometheus_that_knows_no_engine(tmp_path: Path) -> None:
    checks = await prometheus(tmp_path, {"vector(time())": time.time()})
    assert one(checks, "engines").state == "fail"
    assert exit_code(checks) == 2


async def test_a_prometheus_with_old_samples_and_another_clock(tmp_path: Path) -> None:
    told: dict[str, float | None] = {"vector(time())": time.time() - 60, "count(": 1, "min(": 900}
    checks = await prometheus(tmp_path, told)
    assert one(checks, "freshness").state == "warn"
    assert one(checks, "clock").what == "the server is 60 s behind this machine"


async def test_a_prometheus_that_is_none(tmp_path: Path) -> None:
    async with serving(page()) as url:
        checks = await look(tmp_path, prometheus=url)
    assert one(checks, "reach").state == "fail"
    checks = await look(tmp_path, prometheus="http://127.0.0.1:9")
    assert (one(checks, "reach").state, exit_code(checks)) == ("unknown", 3)


# ---- no source, settings, this machine ----


async def test_without_a_source_that_part_is_skipped(tmp_path: Path) -> None:
    (check,) = await look(tmp_path)
    assert (check.state, check.what) == ("skip", "no source given")
    assert exit_code([check]) == 0


async def test_files_that_let_us_in_are_looked_at_first(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-token")
    checks = await look(tmp_path, endpoint=("http://127.0.0.1:9",), token_file=missing)
    assert [(c.name, c.state) for c in checks] == [("token", "fail")]


async def test_an_endpoint_that_is_no_url_is_wrong(tmp_path: Path) -> None:
    checks = await look(tmp_path, endpoint=("ftp://host",))
    assert [(c.name, c.state) for c in checks] == [("URL", "fail")]


async def test_a_recording_is_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    head = '{"schema": "specctl.recording/v1", "created": "x", "interval_s": 1, "source": "scrape"}'
    file.write_text(
        f'{head}\n{{"at": 1, "target": "http://a", "error": "refused"}}\n{{"at": 2, "ta'
    )
    checks = await run(Asked(Settings(), file), around(tmp_path), machine=())
    check = one(checks, "recording")
    assert (check.state, check.what[:38]) == ("warn", "1 scrapes of 1 targets, 0 answered; th")
    checks = await run(Asked(Settings(), tmp_path / "none"), around(tmp_path), machine=())
    assert one(checks, "recording").state == "fail"


def test_a_broken_configuration_names_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "specctl.toml").write_text('endpoint = "http://a:1"\n[profile.prod]\nflor = 0.3\n')
    (check,) = local.files(around(tmp_path))
    assert check.state == "fail"
    assert check.what == "unknown key profile.prod.flor; did you mean floor?"
    assert check.subject.endswith("specctl.toml")


def test_a_valid_configuration_lists_its_profiles(tmp_path: Path) -> None:
    (tmp_path / "specctl.toml").write_text('window = "5m"\n[profile.b]\n[profile.a]\nfloor = 0.3\n')
    (check,) = local.files(around(tmp_path))
    assert (check.state, check.what) == ("ok", "valid, profiles: a, b")
    missing = Surroundings({"HOME": "/none"}, tmp_path, profile="c")
    assert [c.state for c in local.files(missing)] == ["ok", "fail"]


def test_no_configuration_is_fine(tmp_path: Path) -> None:
    assert [c.state for c in local.files(around(tmp_path))] == ["skip"]
    gone = around(tmp_path, SPECCTL_CONFIG=str(tmp_path / "gone.toml"))
    assert [c.state for c in local.files(gone)] == ["fail"]


def test_variables_that_mean_nothing_or_cannot_be_read(tmp_path: Path) -> None:
    (warned, fine) = local.variables(around(tmp_path, SPECCTL_ENDPIONT="x"))
    assert (warned.state, warned.fix) == ("warn", "rename it to SPECCTL_ENDPOINT")
    assert fine.state == "ok"
    (failed,) = local.variables(around(tmp_path, SPECCTL_FLOOR="high"))
    assert (failed.state, "SPECCTL_FLOOR='high'" in failed.what) == ("fail", True)
    assert [c.state for c in local.variables(around(tmp_path))] == ["skip"]


@pytest.mark.parametrize(
    ("environment", "size", "state", "says"),
    [
        pytest.param({"TERM": "xterm-256color"}, (120, 40), "ok", "120×40", id="good"),
        pytest.param({}, (120, 40), "warn", "TERM is not set", id="no-term"),
        pytest.param({"TERM": "dumb"}, (120, 40), "warn", "TERM is dumb", id="dumb"),
        pytest.param({"TERM": "xterm"}, (60, 40), "warn", "60×40", id="narrow"),
        pytest.param({"TERM": "xterm"}, (80, 20), "warn", "80×20", id="low"),
    ],
)
def test_what_the_screen_will_be(
    tmp_path: Path, environment: dict[str, str], size: tuple[int, int], state: str, says: str
) -> None:
    here = Surroundings(environment, tmp_path, is_terminal=True, size=size)
    (check,) = local.terminal(here)
    assert check.state == state
    assert says in check.what


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        pytest.param({"COLORTERM": "truecolor"}, "16 million", id="true"),
        pytest.param({"TERM": "screen-256color"}, "256, by TERM", id="256"),
        pytest.param({"TERM": "linux"}, "16, by TERM", id="16"),
        pytest.param({"NO_COLOR": "1", "COLORTERM": "truecolor"}, "none", id="none"),
        pytest.param(
            {"TERM": "xterm-256color", "SSH_TTY": "/dev/pts/1"}, "not forward COLORTERM", id="ssh"
        ),
    ],
)
def test_how_many_colours(tmp_path: Path, environment: dict[str, str], says: str) -> None:
    (check,) = local.colours(Surroundings(environment, tmp_path, is_terminal=True))
    assert says in check.what
    assert check.state == "ok"


def test_without_a_terminal_the_screen_is_skipped(tmp_path: Path) -> None:
    here = Surroundings({}, tmp_path)
    assert [c.state for c in local.terminal(here)] == ["skip"]
    assert list(local.colours(here)) == []


@pytest.mark.parametrize(("name", "state"), [("utf-8", "ok"), ("UTF8", "ok"), ("ascii", "warn")])
def test_the_encoding_of_the_terminal(tmp_path: Path, name: str, state: str) -> None:
    (check,) = local.characters(Surroundings({}, tmp_path, encoding=name))
    assert check.state == state


def test_an_old_python_fails(tmp_path: Path) -> None:
    (check,) = local.python(Surroundings({}, tmp_path, python=(3, 10, 4)))
    assert (check.state, check.what) == ("fail", "Python 3.10.4")


def test_packages_tell_their_versions(tmp_path: Path) -> None:
    checks = list(local.packages(around(tmp_path)))
    assert {c.name for c in checks} >= {"prometheus-api-client", "zstandard", "genai-prices"}
    assert all(c.state == "ok" and c.what[0].isdigit() for c in checks)


def test_a_package_that_does_not_import_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_PACKAGES", (("no_such_package", "no-such-package", "nothing"),))
    (check,) = local.packages(around(tmp_path))
    assert (check.state, check.fix[:11]) == ("fail", "pip install")


def test_a_vllm_that_is_none(tmp_path: Path) -> None:
    (check,) = local.vllm(around(tmp_path, SPECCTL_VLLM_PYTHON=str(tmp_path / "python")))
    assert check.state == "warn"
    stand_in = tmp_path / "vllm-python"
    stand_in.write_text("#!/bin/sh\necho 0.99.0\n")
    stand_in.chmod(0o755)
    (check,) = local.vllm(around(tmp_path, SPECCTL_VLLM_PYTHON=str(stand_in)))
    assert (check.state, check.what) == ("ok", f"0.99.0, {stand_in}")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (check,) = local.disk(Surroundings({}, tmp_path))
    assert check.state == "ok"
    (check,) = local.disk(Surroundings({}, tmp_path / "gone"))
    assert (check.state, check.what[:17]) == ("warn", "cannot write here")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        pytest.param((), 0, id="nothing"),
        pytest.param(("ok", "skip"), 0, id="ok"),
        pytest.param(("ok", "warn"), 1, id="warning"),
        pytest.param(("warn", "unknown"), 3, id="unreachable"),
        pytest.param(("unknown", "fail", "warn"), 2, id="wrong-beats-unreachable"),
    ],
)
def test_the_exit_code_is_that_of_the_worst(states: tuple[str, ...], code: int) -> None:
    checks = [Check("machine", "x", state, "") for state in states]  # type: ignore[arg-type]
    assert exit_code(checks) == code
