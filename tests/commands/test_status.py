from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from tests.support.engines import Served, serving
from tests.support.recordings import counter, failed, scraped, specctl, written


def test_a_live_engine_is_watched_for_the_window() -> None:
    began = time.monotonic()
    with serving() as served:
        answer = specctl(
            "status", "-e", served.url, "--window", "0.4s", "--interval", "0.1s", "-o", "json"
        )
    took = time.monotonic() - began
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert 2 <= served.asked.count("/metrics") <= 2 + took / 0.1
    assert 0.3 <= answer.json["window_s"] <= took
    assert answer.fleet["acceptance_rate"]["value"] == pytest.approx(40 / 90)
    assert answer.engine["target"] == served.url


def test_since_start_is_one_scrape() -> None:
    with serving() as served:
        answer = specctl("status", "-e", served.url, "--since-start", "-o", "json")
    assert answer.exit_code == 0
    assert served.asked.count("/metrics") == 1
    assert answer.fleet["drafts"]["value"] == 30
    assert "since the process started" in answer.fleet["drafts"]["reason"]


def test_since_start_is_not_held_up_by_a_configured_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECCTL_WINDOW", "1h")
    with serving() as served:
        assert specctl("status", "-e", served.url, "--since-start").exit_code == 0
        assert served.asked.count("/metrics") == 1


@pytest.mark.parametrize("more", [("--window", "5s"), ("--replay", "r")])
def test_since_start_and_a_window_contradict_each_other(
    tmp_path: Path, more: tuple[str, str]
) -> None:
    written(tmp_path / "r", [])
    source = () if "--replay" in more else ("-e", "127.0.0.1:1")
    answer = specctl("status", "--since-start", *source, *more)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert "--since-start" in answer.stderr


def test_no_answer_is_3_with_what_is_known_on_stdout_and_why_on_stderr() -> None:
    answer = specctl("status", "-e", "127.0.0.1:1", "-o", "json")
    assert answer.exit_code == 3
    assert answer.engine["state"] == "down"
    error, hint = answer.stderr.splitlines()
    assert error == (
        "specctl: error: no engine could be read (http://127.0.0.1:1: connect refused)"
    )
    assert "port-forward" in hint


def test_many_dead_targets_are_not_all_in_the_line() -> None:
    targets = [word for i in range(1, 8) for word in ("-e", f"127.0.0.1:{i}")]
    answer = specctl("status", *targets)
    assert answer.exit_code == 3
    assert answer.stderr.splitlines()[0].endswith("; and 4 more)")


def test_a_recording_without_a_scrape_is_3(tmp_path: Path) -> None:
    answer = specctl("status", "--replay", written(tmp_path / "r", []))
    assert answer.exit_code == 3
    assert "it has no scrapes" in answer.stderr


def test_a_login_is_3_and_a_token_opens_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    with serving(Served(token="t0ken")) as served:
        refused = specctl("status", "-e", served.url)
        assert refused.exit_code == 3
        assert "AUTH: HTTP 401" in refused.stderr
        options = ("-e", served.url, "--since-start")
        assert specctl("status", *options, "--token", "t0ken").exit_code == 0
        assert specctl("status", *options, "--token-file", "token").exit_code == 0


def test_words_of_a_server_do_not_move_the_cursor_on_stderr(tmp_path: Path) -> None:
    recording = written(tmp_path / "r", [failed(0, "\x1b]0;title\x07\x1b[2J\nsecond line")])
    answer = specctl("status", "--replay", recording)
    assert answer.exit_code == 3
    assert "\x1b" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 2


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_words_of_a_server_are_escaped_in_json_and_yaml(tmp_path: Path, form: str) -> None:
    said = 'v\x1b]0;pwn\x07\x9b2J\x7f\u202e\u2028模型"'
    body = counter("vllm:generation_tokens_total", ("", 41))
    recording = written(tmp_path / "r", [scraped(0, body, info={"version": said})])
    answer = specctl("status", "--replay", recording, "-o", form)
    assert answer.exit_code == 0
    assert answer.stdout.replace("\n", "").isprintable()
    whole = json.loads(answer.stdout) if form == "json" else yaml.safe_load(answer.stdout)
    assert whole["engines"][0]["version"] == said
    assert "模型" in answer.stdout or form == "yaml"


def test_a_cut_recording_is_read_and_said_to_be_cut(tmp_path: Path) -> None:
    recording = written(tmp_path / "r", [failed(0, "connect refused")])
    with recording.open("a") as file:
        file.write('{"at": 17')
    answer = specctl("status", "--replay", recording, "-o", "json")
    assert answer.stderr.splitlines()[0] == (
        "specctl: note: the recording ends in a cut line (line 3), which is left out"
    )
    assert answer.findings("PARTIAL_DATA")[0]["subject"] == "fleet"
