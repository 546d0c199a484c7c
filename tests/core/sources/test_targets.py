from __future__ import annotations

import pytest

from speccli.core.errors import UsageError
from speccli.core.sources.targets import parse_target, parse_targets


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("http://h:8000", "http://h:8000", "http://h:8000/metrics"),
        ("h:8000", "http://h:8000", "http://h:8000/metrics"),
        (" h:8000 ", "http://h:8000", "http://h:8000/metrics"),
        ("https://h", "https://h", "https://h/metrics"),
        ("http://h:8000/", "http://h:8000", "http://h:8000/metrics"),
        ("http://h:8000/metrics", "http://h:8000", "http://h:8000/metrics"),
        ("http://h:8000/metrics/", "http://h:8000", "http://h:8000/metrics"),
        ("http://h/pool/a", "http://h/pool/a", "http://h/pool/a/metrics"),
        ("http://h/pool/a/metrics?x=1", "http://h/pool/a", "http://h/pool/a/metrics?x=1"),
        ("http://[::1]:8000", "http://[::1]:8000", "http://[::1]:8000/metrics"),
        ("[fd00::7]:8000/metrics", "http://[fd00::7]:8000", "http://[fd00::7]:8000/metrics"),
        ("HTTP://Host:8000", "http://host:8000", "http://host:8000/metrics"),
    ],
)
def test_an_endpoint_is_the_server_or_its_page(text: str, name: str, url: str) -> None:
    target = parse_target(text)
    assert (target.name, target.metrics_url) == (name, url)


def test_credentials_are_kept_out_of_everything_that_is_shown() -> None:
    target = parse_target("https://me:p%40ss@h:8000/metrics")
    assert (target.user, target.password) == ("me", "p@ss")
    assert target.name == "https://h:8000"
    assert target.metrics_url == "https://h:8000/metrics"


def test_a_password_alone_is_a_credential_too() -> None:
    target = parse_target("http://:secret@h:8000")
    assert (target.user, target.password) == ("", "secret")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "ftp://h:1",
        "unix:///run/vllm.sock",
        "http://h:port",
        "http://h:99999",
        "http://h:0",
        "http://ho st:8000",
        "http://h:8000/a b",
        "http://h\x00:8000",
        "http://[::1",
        "http://user:pw@",
    ],
)
def test_what_is_no_address_is_a_usage_error_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError, match="endpoint") as caught:
        parse_target(text)
    assert caught.value.hint is not None
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["http://me:hunter2@h:99999", "me:hunter2@h:x", "ftp://me:hunter2@h", "http://me:hun/ter2@h:x"],
)
def test_a_mistyped_endpoint_does_not_print_its_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert "hun" not in caught.value.message
    assert "h" in caught.value.message


def test_endpoints_that_differ_in_their_query_alone_are_refused_without_showing_it() -> None:
    with pytest.raises(UsageError, match="http://h:8000 ") as caught:
        parse_targets(["h:8000/metrics?key=hunter2", "h:8000/metrics?key=hunter3"])
    assert "hunter" not in f"{caught.value.message} {caught.value.hint}"
    assert len(parse_targets(["h:8000/metrics?a=1", "http://h:8000?a=1"])) == 1


def test_the_same_server_twice_is_one_target() -> None:
    found = parse_targets(["h:8000", "http://h:8000/metrics", "h:8001"])
    assert [target.name for target in found] == ["http://h:8000", "http://h:8001"]


def test_this_machine_by_its_several_names_is_one_target() -> None:
    found = parse_targets(["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "localhost:8001"])
    assert [target.name for target in found] == ["http://127.0.0.1:8000", "http://localhost:8001"]
    assert len(parse_targets(["http://localhost", "https://localhost", "localhost/a"])) == 3
    assert len(parse_targets(["http://localhost", "127.0.0.1:80"])) == 1
