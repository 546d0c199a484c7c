"""On a terminal: Ctrl-C as it is typed, and a terminal that can place no text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from speccli.core.sim.process import simulated_fleet
from tests.support.terminal import on_a_terminal

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulated_fleet(1, ("-k", "3")) as urls:
        yield urls[0]


def test_ctrl_c_ends_a_bench_with_130_and_keeps_its_rows(url: str, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    words = f"bench run --arm a={url} --batch 1,2 --requests 2,100000 --max-tokens 8 --repeats 1"
    with on_a_terminal(*words.split(), "--out", str(out), folder=tmp_path) as terminal:
        terminal.until(lambda _: out.exists() and bool(json.loads(out.read_text())["rows"]))
        terminal.type("\x03")
        code = terminal.ended()
    assert code == 130, terminal.shown
    assert [row["requests"] for row in json.loads(out.read_text())["rows"]] == [2]
    assert "--resume" in terminal.shown


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_no_screen_opens_where_text_cannot_be_placed(term: str, url: str, tmp_path: Path) -> None:
    with on_a_terminal("top", "--endpoint", url, folder=tmp_path, term=term) as terminal:
        assert terminal.ended() == 64
    assert "specctl status" in terminal.shown
    assert ESCAPE not in terminal.shown


def test_status_has_no_codes_where_text_cannot_be_placed(url: str, tmp_path: Path) -> None:
    with on_a_terminal("status", "--endpoint", url, folder=tmp_path, term="dumb") as terminal:
        terminal.ended()
    assert "SIMULATED" in terminal.shown
    assert ESCAPE not in terminal.shown


def test_a_baseline_says_that_it_was_cut_short(url: str, tmp_path: Path) -> None:
    words = f"baseline record early --endpoint {url} --for 10m --state {tmp_path}"
    with on_a_terminal(*words.split(), folder=tmp_path) as terminal:
        terminal.until(lambda text: "drafts so far" in text)
        terminal.type("\x03")
        code = terminal.ended()
    assert "stopped after" in terminal.shown, terminal.shown
    assert "of 10m" in terminal.shown
    assert code in (0, 130)
