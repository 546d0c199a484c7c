"""Who is told what: once, its end too, and never at the price of the verdict."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import pytest

from speccli.core.alert.notify import Notifier, channels_of
from speccli.core.alert.notify.alertmanager import LIFETIME_S, alert_name
from speccli.core.alert.notify.notice import Channel, News, NotTold
from speccli.core.alert.verdict import Verdict
from speccli.core.errors import UsageError
from speccli.core.findings.base import Finding
from tests.core.findings.bodies import A, answer, begun, good, silence, snapshot

AT = 1_795_975_000.0
ZERO = Finding("ZERO_ACCEPTANCE", "critical", "a:8000/0", "accepted 0", "garbage", "restart")
SLOW = Finding("QUEUE_WAIT", "warning", "fleet", "500 ms", "too few", "add replicas")
READ = snapshot([answer(0, A, begun(good()))], [answer(60, A, good())])
UNREAD = snapshot([silence(0, A)])


def verdict(*findings: Finding, seen: Any = READ) -> Verdict:
    return Verdict("critical" if findings else "ok", "words", findings, snapshot=seen)


@dataclass
class Listener:
    """A channel that writes down what it is told."""

    name: str = "listener"
    mark: str = "listener"
    repeats: bool = False
    deaf: bool = False
    heard: list[News] = field(default_factory=list)

    async def unusable(self) -> str | None:
        return "deaf" if self.deaf else None

    async def tell(self, news: News) -> None:
        if self.deaf:
            raise NotTold("deaf")
        self.heard.append(news)

    @property
    def lines(self) -> list[list[str]]:
        return [[line.split(":")[0] for line in news.lines] for news in self.heard]


def tell(notifier: Notifier, *verdicts: Verdict) -> list[str]:
    return [
        line
        for i, each in enumerate(verdicts)
        for line in asyncio.run(notifier.tell(each, AT + 60 * i))
    ]


def test_a_finding_is_told_once_and_then_its_end() -> None:
    listener = Listener()
    notifier = Notifier([listener], "prod")
    assert tell(notifier, verdict(ZERO), verdict(ZERO), verdict(), verdict()) == []
    assert listener.lines == [
        ["FIRING critical ZERO_ACCEPTANCE a"],
        ["RESOLVED critical ZERO_ACCEPTANCE a"],
    ]


def test_another_process_goes_on_where_the_last_one_ended() -> None:
    listener = Listener()
    first = Notifier([listener], "prod")
    tell(first, verdict(ZERO))
    state = json.loads(json.dumps(first.to_json()))
    tell(Notifier([listener], "prod", state), verdict(ZERO), verdict())
    assert [len(lines) for lines in listener.lines] == [1, 1]


def test_what_could_not_be_told_is_said_and_tried_again() -> None:
    listener = Listener(deaf=True)
    notifier = Notifier([listener], "prod")
    assert tell(notifier, verdict(ZERO)) == ["listener was not told (1 to tell): deaf"]
    listener.deaf = False
    tell(notifier, verdict(ZERO))
    assert listener.lines == [["FIRING critical ZERO_ACCEPTANCE a"]]


def test_an_end_that_could_not_be_told_is_tried_again() -> None:
    listener = Listener()
    notifier = Notifier([listener], "prod")
    tell(notifier, verdict(ZERO))
    listener.deaf = True
    tell(notifier, verdict())
    listener.deaf = False
    tell(notifier, verdict())
    assert listener.lines[-1] == ["RESOLVED critical ZERO_ACCEPTANCE a"]


def test_one_channel_that_fails_keeps_nothing_from_the_others() -> None:
    deaf, listener = Listener(mark="deaf", deaf=True), Listener()
    tell(Notifier([deaf, listener], "prod"), verdict(ZERO))
    assert len(listener.heard) == 1


def test_a_note_is_told_to_nobody() -> None:
    listener = Listener()
    tell(Notifier([listener], "prod"), verdict(replace(ZERO, severity="info")))
    assert listener.heard == []


def test_nothing_is_over_because_nothing_can_be_read() -> None:
    listener = Listener()
    notifier = Notifier([listener], "prod")
    tell(notifier, verdict(ZERO), verdict(seen=UNREAD), Verdict("unknown", "no Prometheus"))
    assert listener.lines == [
        ["FIRING critical ZERO_ACCEPTANCE a"],
        ["FIRING unknown METRICS_MISSING fleet"],
    ]
    tell(notifier, verdict(ZERO))
    assert listener.lines[-1] == ["RESOLVED unknown METRICS_MISSING fleet"]


def test_a_dry_run_tells_nobody_and_says_what_it_would() -> None:
    listener = Listener()
    notifier = Notifier([listener], "prod", dry=True)
    (line,) = tell(notifier, verdict(ZERO))
    assert line.startswith("dry run: listener would be told: FIRING critical ZERO_ACCEPTANCE")
    assert listener.heard == []
    assert notifier.to_json() == {}


def test_a_channel_that_cannot_be_used_is_said_at_every_check_that_has_nothing_to_tell() -> None:
    listener = Listener(deaf=True)
    notifier = Notifier([listener, Listener(mark="other")], "prod")
    said = tell(notifier, verdict(), verdict())
    assert said == ["listener cannot be told anything: deaf"] * 2


def test_a_dry_run_does_not_claim_that_such_a_channel_would_be_told() -> None:
    notifier = Notifier([Listener(deaf=True)], "prod", dry=True)
    assert tell(notifier, verdict(ZERO), verdict()) == [
        "dry run: listener cannot be told anything (1 to tell): deaf",
        "dry run: listener cannot be told anything: deaf",
    ]


@pytest.mark.parametrize("state", [7, [], "x", {"listener": 3}, {"listener": [[1, 2]]}, None])
def test_a_state_that_is_none_is_dropped(state: object) -> None:
    listener = Listener()
    tell(Notifier([listener], "prod", state), verdict(ZERO))
    assert len(listener.heard) == 1


# Alertmanager ---------------------------------------------------------------------------------


@dataclass
class Receiver:
    """An HTTP server that answers as it is told to."""

    status: int = 200
    url: str = ""
    posts: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - http.server's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posts.append((self.path, json.loads(body)))
            receiver.headers.append(dict(self.headers))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"said")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    receiver.url = f"127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def one(url: str) -> Channel:
    (channel,) = channels_of([url], [])
    return channel


def times(alert: dict[str, Any]) -> tuple[str, str]:
    return alert["startsAt"], alert["endsAt"]


def test_alertmanager_hears_of_it_at_every_check_and_of_its_end() -> None:
    with receiving() as receiver:
        notifier = Notifier([one(f"http://{receiver.url}/am/")], "prod")
        assert tell(notifier, verdict(ZERO), verdict(ZERO), verdict(), verdict()) == []
    assert [path for path, _ in receiver.posts] == ["/am/api/v2/alerts"] * 3
    first, again, last = (alerts[0] for _, alerts in receiver.posts)
    assert first["labels"] == again["labels"] == last["labels"]
    assert first["labels"] == {
        "alertname": "SpecctlZeroAcceptance",
        "code": "ZERO_ACCEPTANCE",
        "severity": "critical",
        "subject": "a:8000/0",
        "deployment": "prod",
        "source": "specctl",
    }
    assert first["annotations"]["summary"] == "ZERO_ACCEPTANCE a:8000/0: accepted 0"
    assert first["startsAt"] == again["startsAt"] == last["startsAt"]
    assert first["endsAt"] < again["endsAt"]  # LIFETIME_S from each
    assert last["endsAt"] < first["endsAt"]
    assert LIFETIME_S > 600


def test_alertmanager_knows_another_severity_as_another_alert() -> None:
    with receiving() as receiver:
        notifier = Notifier([one(receiver.url)], "prod")
        tell(notifier, verdict(SLOW), verdict(replace(SLOW, severity="critical")))
    _, alerts = receiver.posts[1]
    ends = {alert["labels"]["severity"]: alert["endsAt"] for alert in alerts}
    assert ends["warning"] < ends["critical"]


@pytest.mark.parametrize("status", [301, 400, 401, 500])
def test_an_alertmanager_that_does_not_take_it_is_said_without_its_password(status: int) -> None:
    with receiving() as receiver:
        receiver.status = status
        notifier = Notifier([one(f"http://user:secret@{receiver.url}")], "prod")
        (line,) = tell(notifier, verdict(ZERO))
    assert f"HTTP {status} said" in line
    assert "secret" not in line
    given = base64.b64encode(b"user:secret").decode()
    assert receiver.headers[0]["Authorization"] == f"Basic {given}"
    assert "secret" not in json.dumps(notifier.to_json())


def test_an_alertmanager_that_is_not_there_is_said() -> None:
    (line,) = tell(Notifier([one("http://127.0.0.1:9")], "prod"), verdict(ZERO))
    assert line.endswith("was not told (1 to tell): connect refused")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(socket.gaierror(socket.EAI_NONAME, "no"), ["name not found"], id="no-host"),
        pytest.param(UnicodeError("label too long"), ["name not found"], id="no-name"),
        pytest.param(TimeoutError(), [], id="a-slow-name-server"),
        pytest.param(None, [], id="a-host"),
    ],
)
def test_an_alertmanager_of_no_known_host_is_said_with_nothing_to_tell(
    found: Exception | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def look_up(_: object, host: str, *__: object, **___: object) -> list[object]:
        asked.append(host)
        if found is not None:
            raise found
        return []

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    lines = tell(Notifier([one("nope")], "prod"), verdict())
    assert asked == ["nope"]
    assert lines == [f"Alertmanager http://nope cannot be told anything: {why}" for why in said]


def test_alert_names_are_those_of_the_generated_rules() -> None:
    assert alert_name("LOW_ACCEPTANCE") == "SpecctlLowAcceptance"


# apprise --------------------------------------------------------------------------------------


def _apprise(monkeypatch: pytest.MonkeyPatch, *, takes: bool = True) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    class Box:
        def add(self, url: str) -> bool:
            if url.startswith("breaks"):
                raise LookupError(url)
            return not url.startswith("nonsense")

        def notify(self, **message: Any) -> bool:
            sent.append(message)
            return takes

    module = ModuleType("apprise")
    module.Apprise = Box  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "apprise", module)
    return sent


def test_apprise_gets_one_message_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = _apprise(monkeypatch)
    notifier = Notifier(channels_of([], ["mailto://me"]), "prod")
    assert tell(notifier, verdict(ZERO, SLOW), verdict(ZERO, SLOW), verdict(SLOW)) == []
    assert [(m["title"], m["notify_type"]) for m in sent] == [
        ("specctl prod: CRITICAL", "failure"),
        ("specctl prod: RESOLVED", "success"),
    ]
    assert "CRITICAL ZERO_ACCEPTANCE a:8000/0: accepted 0" in sent[0]["body"]
    assert "Do: restart" in sent[0]["body"]
    assert sent[1]["body"].endswith("1 more known before.")


def test_a_worse_severity_is_news_and_not_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = _apprise(monkeypatch)
    notifier = Notifier(channels_of([], ["mailto://me"]), "prod")
    tell(notifier, verdict(SLOW), verdict(replace(SLOW, severity="critical")))
    assert "RESOLVED" not in sent[1]["body"]


@pytest.mark.parametrize(
    ("url", "takes", "why"),
    [
        ("nonsense://x", True, "does not know this URL"),
        ("mailto://me:secret@x", False, "not delivered"),
    ],
)
def test_what_apprise_does_not_deliver_is_said_without_the_url(
    monkeypatch: pytest.MonkeyPatch, url: str, takes: bool, why: str
) -> None:
    _apprise(monkeypatch, takes=takes)
    (line,) = tell(Notifier(channels_of([], [url]), "prod"), verdict(ZERO))
    assert why in line
    assert "secret" not in line


def test_without_apprise_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    (line,) = tell(Notifier(channels_of([], ["mailto://me"]), "prod"), verdict(ZERO))
    assert line.endswith("apprise is not installed: pip install 'specctl[notify]'")


def test_an_apprise_that_cannot_be_used_is_said_with_nothing_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = _apprise(monkeypatch)
    usable, unknown, breaks = "mailto://me:secret@x", "nonsense://secret", "breaks://secret"
    said = tell(Notifier(channels_of([], [usable, unknown, breaks]), "prod"), verdict())
    assert said == [
        "apprise nonsense://… cannot be told anything: apprise does not know this URL",
        "apprise breaks://… cannot be told anything: LookupError in apprise",
    ]
    monkeypatch.setitem(sys.modules, "apprise", None)
    for dry in (False, True):
        (line,) = tell(Notifier(channels_of([], [usable]), "prod", dry=dry), verdict())
        assert line.endswith(
            "apprise mailto://… cannot be told anything: apprise is not installed: "
            "pip install 'specctl[notify]'"
        )
    assert sent == []


@pytest.mark.parametrize(
    ("alertmanagers", "urls"),
    [(["ftp://x"], []), (["http://"], []), (["http://x:y"], []), ([], ["mail"]), ([], ["://x"])],
)
def test_an_address_that_cannot_be_one_is_refused(
    alertmanagers: list[str], urls: list[str]
) -> None:
    with pytest.raises(UsageError):
        channels_of(alertmanagers, urls)
