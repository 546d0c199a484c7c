"""Bodies that are no page of metrics, or not a whole one: a state and a word, never a number."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.support.recordings import (
    SPEC,
    Answer,
    counter,
    failed,
    gauge,
    scraped,
    specctl,
    speculation,
    written,
)

GOOD = speculation(1000, 600, 250) + counter("vllm:generation_tokens_total", ("", 850))
LOGIN = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>…</body></html>\n"


def look(tmp_path: Path, *lines: dict[str, object]) -> Answer:
    return specctl("status", "--replay", written(tmp_path / "r.jsonl", lines), "-o", "json")


def unreadable(tmp_path: Path, line: dict[str, object], word: str) -> str:
    """The reason why the one engine is missing; the contract's exit code and no number are held."""
    answer = look(tmp_path, line)
    assert answer.exit_code == 3
    engine = answer.engine
    assert engine["state"] == "missing"
    assert engine["reason"].startswith(f"{word}: ")
    assert engine["acceptance_rate"]["state"] == "unknown"
    assert answer.fleet["acceptance_rate"]["value"] is None
    assert [f["code"] for f in answer.json["findings"]] == ["METRICS_MISSING"]
    (said, hint) = answer.stderr.splitlines()
    assert said.startswith("specctl: error: no engine in the recording")
    assert hint.startswith("hint: ")
    reason: str = engine["reason"]
    return reason


def test_t16a_a_redirect_with_an_empty_body_is_missing(tmp_path: Path) -> None:
    reason = unreadable(tmp_path, scraped(0, "", status=307), "MISSING")
    assert "307" in reason
    assert "redirect" in reason


def test_t16a_a_redirect_to_another_host_is_a_login(tmp_path: Path) -> None:
    line = scraped(0, "", status=302, note="redirects to login.example.com, perhaps a login")
    assert "login.example.com" in unreadable(tmp_path, line, "AUTH")


def test_t16b_an_html_page_is_a_login(tmp_path: Path) -> None:
    assert "HTML" in unreadable(tmp_path, scraped(0, LOGIN), "AUTH")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_a_login_too(tmp_path: Path, status: int) -> None:
    assert "--token" in unreadable(tmp_path, scraped(0, "", status=status), "AUTH")


def test_t16c_a_server_error_names_the_known_cause(tmp_path: Path) -> None:
    line = scraped(0, "Internal Server Error", status=500)
    assert "PROMETHEUS_MULTIPROC_DIR" in unreadable(tmp_path, line, "SERVER")


def test_t16d_a_body_cut_inside_a_label_is_truncated(tmp_path: Path) -> None:
    line = f'{SPEC}drafts_total{{model_name="some-mod'
    assert "label value" in unreadable(tmp_path, scraped(0, line), "TRUNCATED")


def test_t16d_what_was_read_before_the_cut_is_shown(tmp_path: Path) -> None:
    tokens = counter("vllm:generation_tokens_total", ("", 850))
    body = f'{speculation(1000, 600, 250)}{tokens}vllm:num_requests_running{{model_name="some-mod'
    answer = look(tmp_path, scraped(0, body))
    assert answer.exit_code == 0
    assert answer.engine["state"] == "partial"
    assert answer.engine["reason"].startswith("TRUNCATED: ")
    assert answer.fleet["acceptance_rate"]["value"] == 0.6
    assert answer.fleet["running"]["value"] is None


def test_t16d_a_counter_that_may_go_on_after_the_cut_is_not_summed(tmp_path: Path) -> None:
    whole = counter(f"{SPEC}drafts_total", ("", 250), (',pid="2"', 250))
    answer = look(tmp_path, scraped(0, GOOD + whole[: whole.rindex("2") - 2]))
    assert answer.engine["reason"].startswith("TRUNCATED: ")
    assert answer.fleet["acceptance_length"]["value"] is None


def test_t16e_a_page_of_22_mb_is_read_and_said_to_be_large(tmp_path: Path) -> None:
    label = "x" * 7_000_000
    config = "".join(f'vllm:cache_config_info{{i="{i}",config="{label}"}} 1\n' for i in range(3))
    answer = look(tmp_path, scraped(0, config + GOOD))
    assert answer.exit_code == 0
    assert answer.fleet["acceptance_rate"]["value"] == 0.6
    assert answer.engine["state"] == "partial"
    assert answer.engine["reason"].startswith("TOO_LARGE: a page of 21 MB")
    assert "3 line(s) over 64 KiB" in answer.engine["reason"]
    (finding,) = answer.findings("PARTIAL_DATA")
    assert finding["severity"] == "info"


def test_t16e_a_long_line_that_is_read_takes_its_sum_with_it(tmp_path: Path) -> None:
    label = "x" * 7_000_000
    long = f'{SPEC}drafts_total{{model_name="m",pid="{label}"}} 250\n'
    answer = look(tmp_path, scraped(0, GOOD + long))
    assert answer.engine["state"] == "partial"
    assert "TOO_LARGE" in answer.engine["reason"]
    assert answer.fleet["acceptance_rate"]["value"] == 0.6
    assert answer.fleet["acceptance_length"]["value"] is None


def test_t16e_past_32_mib_reading_stops_and_says_so(tmp_path: Path) -> None:
    rest = f"# {'x' * 997}\n" * 34_000
    answer = look(tmp_path, scraped(0, GOOD + rest))
    assert answer.exit_code == 0
    assert answer.engine["state"] == "partial"
    assert answer.engine["reason"].startswith("TOO_LARGE: reading stopped after 32 MiB")


def test_t16f_an_empty_200_is_missing(tmp_path: Path) -> None:
    assert "empty" in unreadable(tmp_path, scraped(0, ""), "MISSING")


def test_a_page_of_another_service_is_missing(tmp_path: Path) -> None:
    reason = unreadable(tmp_path, scraped(0, "go_goroutines 12\n"), "MISSING")
    assert "none of an engine" in reason


def test_a_json_answer_is_missing_and_shown(tmp_path: Path) -> None:
    reason = unreadable(tmp_path, scraped(0, '{"detail":"Not Found"}'), "MISSING")
    assert "detail" in reason


def test_t16g_values_that_are_not_numbers_are_dropped_and_counted(tmp_path: Path) -> None:
    bad = (
        gauge("vllm:kv_cache_usage_perc", ("", math.nan))
        + gauge("vllm:num_requests_running", ("", math.inf)).replace("inf", "+Inf")
        + gauge("vllm:num_requests_waiting", ("", -math.inf)).replace("-inf", "-Inf")
    )
    answer = look(tmp_path, scraped(0, GOOD + bad))
    assert answer.exit_code == 0
    assert answer.engine["state"] == "partial"
    assert answer.engine["reason"].startswith("NAN: 3 value(s) not finite, dropped")
    for name in ("kv_cache_usage", "running", "waiting"):
        assert answer.fleet[name]["value"] is None
    assert answer.fleet["acceptance_rate"]["value"] == 0.6
    assert "NaN" not in answer.stdout, "JSON has no such number"


def test_t16h_a_sample_given_twice_with_two_values_is_dropped(tmp_path: Path) -> None:
    twice = gauge("vllm:num_requests_running", ("", 1), ("", 2))
    answer = look(tmp_path, scraped(0, GOOD + twice))
    assert answer.engine["state"] == "partial"
    assert answer.engine["reason"].startswith("CONFLICT: vllm:num_requests_running")
    assert answer.fleet["running"]["value"] is None
    assert answer.fleet["acceptance_rate"]["value"] == 0.6


def test_no_answer_is_down_with_its_reason(tmp_path: Path) -> None:
    answer = look(tmp_path, failed(0, "connect refused"))
    assert answer.exit_code == 3
    assert answer.engine["state"] == "down"
    assert answer.engine["reason"] == "connect refused"
    assert [f["code"] for f in answer.json["findings"]] == ["ENGINE_DOWN"]


def test_one_engine_that_can_be_read_is_enough_for_exit_0(tmp_path: Path) -> None:
    other = "http://10.0.0.8:8000"
    answer = look(tmp_path, scraped(0, GOOD), failed(0, "connect refused", other))
    assert answer.exit_code == 0
    assert answer.stderr == ""
    assert {e["target"]: e["state"] for e in answer.json["engines"]}[other] == "down"


def test_no_word_of_a_page_moves_the_cursor(tmp_path: Path) -> None:
    page = gauge("vllm:num_requests_running", ("", 1)).replace('"m"', '"\x1b[2Jmodel\x07"')
    recording = written(
        tmp_path / "r", [scraped(0, page), failed(1, "\x1b]0;title\x07", "http://b")]
    )
    answer = specctl("status", "--replay", recording)
    assert "\x1b" not in answer.stdout + answer.stderr
    assert "\x07" not in answer.stdout + answer.stderr
