"""On a terminal: Ctrl-C as it is typed, and a terminal that can place no text."""

from __future__ import annotations

import json
import re
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


@pytest.fixture(scope="module")
def busy() -> Iterator[str]:
    with simulated_fleet(1, ("-k", "3", "--speed", "20")) as urls:
        yield urls[0]


@pytest.fixture(scope="module")
def idle() -> Iterator[str]:
    with simulated_fleet(1, ("-k", "3", "--rate", "0")) as urls:
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


def test_a_bench_tells_how_long_its_first_row_has_been_running(url: str, tmp_path: Path) -> None:
    words = f"bench run --arm a={url} --batch 1 --requests 100000 --max-tokens 8 --repeats 1"
    with on_a_terminal(*words.split(), "--warmup", "100000", folder=tmp_path) as terminal:
        terminal.until(lambda text: bool(re.search(r": running, \d+ s", text)))
        terminal.type("\x03")
        assert terminal.ended() == 130
    assert "specctl: interrupted: nothing was measured yet" in terminal.shown


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_no_screen_opens_where_text_cannot_be_placed(term: str, url: str, tmp_path: Path) -> None:
    with on_a_terminal("top", "--endpoint", url, folder=tmp_path, term=term) as terminal:
        assert terminal.ended() == 64
    assert "specctl status" in terminal.shown
    assert ESCAPE not in terminal.shown


def test_status_has_no_codes_where_text_cannot_be_placed(url: str, tmp_path: Path) -> None:
    with on_a_terminal("status", "--endpoint", url, folder=tmp_path, term="dumb") as terminal:
        assert terminal.ended() == 0
    assert "SIMULATED" in terminal.shown
    assert ESCAPE not in terminal.shown


@pytest.mark.parametrize(
    ("least", "code", "said"),
    [
        pytest.param(2000, 0, "baseline early kept in", id="enough-is-kept-on-purpose"),
        pytest.param(0, 130, "error: nothing kept", id="too-little-is-interrupted"),
    ],
)
def test_ctrl_c_ends_a_baseline_early_and_says_what_came_of_it(
    least: int, code: int, said: str, busy: str, idle: str, tmp_path: Path
) -> None:
    endpoint = busy if least else idle
    words = f"baseline record early --endpoint {endpoint} --for 10m --interval 0.2s"
    with on_a_terminal(*words.split(), "--state", str(tmp_path), folder=tmp_path) as terminal:
        terminal.until(lambda text: any(seen >= least for seen in _drafts(text)))
        terminal.type("\x03")
        ended = terminal.ended()
    assert ended == code, terminal.shown
    assert said in terminal.shown
    assert re.search(r"stopped after \d+ s of 10m", terminal.shown)
    assert (tmp_path / "baselines" / "early.json").is_file() == (code == 0)


def test_ctrl_c_twice_still_says_what_a_baseline_kept(busy: str, tmp_path: Path) -> None:
    words = f"baseline record early --endpoint {busy} --for 10m --interval 0.2s"
    with on_a_terminal(*words.split(), "--state", str(tmp_path), folder=tmp_path) as terminal:
        terminal.until(lambda text: any(seen >= 2000 for seen in _drafts(text)))
        terminal.type("\x03")
        terminal.until(lambda _: (tmp_path / "baselines" / "early.json").exists())
        terminal.type("\x03")
        ended = terminal.ended()
    assert ended == 0, terminal.shown
    assert "baseline early kept in" in terminal.shown


def _drafts(shown: str) -> list[int]:
    """Each count of drafts that was shown."""
    return [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) drafts so far", shown)]
