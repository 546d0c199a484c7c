"""The driver of the ladder's gain: what it makes of what clients got, and its page."""

from __future__ import annotations

import json
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ladder_page, ladder_real
from benchmarks.ladder_faults import crossing, plain_speed
from benchmarks.ladder_figures import recovered, run_of
from tests.support.local_ladder import misnamed, with_noise

ROOT = Path(__file__).parents[2]
Object = dict[str, Any]


def sent(at: float, s: float = 1.0, failure: str = "") -> Object:
    return {"at": 1000 + at, "s": s, "tokens": 0 if failure else 100, "failure": failure}


def move(after_s: float, what: str = "done") -> Object:
    return {"what": what, "after_s": after_s, "from": "eagle3", "to": "ngram", "code": "X"}


def test_a_run_is_told_by_what_was_asked_before_after_and_at_the_end() -> None:
    every = [sent(t) for t in range(-20, 60)]
    every += [sent(t + 0.5, 0.0, "HTTP 503") for t in range(5, 15)]
    gpus = [(float(t), 4 if t < 10 else 6) for t in range(-20, 60)]
    told = run_of(every, [move(12.0)], gpus, -20.0, 1000.0, 60.0)
    assert told["before"]["tokens_per_s"] == pytest.approx(95.0)  # the first comes after a second
    assert (told["before"]["failed"], told["before"]["availability"]) == (0, 1.0)
    window = told["fault_window"]
    assert (window["requests"], window["failed"]) == (70, 10)
    assert window["availability"] == pytest.approx(60 / 70)
    assert told["before"]["gpus"] == 4
    assert told["end"]["gpus"] == 6
    assert told["end"]["usd_per_1m"] == pytest.approx(6 * 2.5 / 3600 / 100 * 1e6, rel=1e-3)
    assert told["recovered_s"] == pytest.approx(14.5)  # not at the move: requests failed after it
    assert sum(row[2] for row in told["series"]) == 10


def test_nothing_answered_is_unknown_and_not_free() -> None:
    told = run_of([sent(5.0, 0.0, "x")], [], [(6.0, 4)], -20.0, 1000.0, 60.0)
    assert told["end"]["usd_per_1m"] is None
    assert told["before"]["availability"] is None
    assert told["fault_window"]["p99_s"] is None


@pytest.mark.parametrize(
    ("failures", "moves", "at"),
    [
        pytest.param([], [], None, id="nothing-moved"),
        pytest.param([], [move(20.0)], 20.0, id="moved"),
        pytest.param([55.0], [move(20.0)], None, id="moved-and-still-failing"),
        pytest.param([], [move(20.0, "failed")], None, id="a-move-that-failed"),
        pytest.param([], [move(20.0), move(40.0)], 40.0, id="the-last-of-two"),
        pytest.param([30.0], [move(20.0), move(40.0)], 30.0, id="served-before-it-was-through"),
    ],
)
def test_recovered_once_nothing_fails_any_more_or_the_move_is_through(
    failures: list[float], moves: list[Object], at: float | None
) -> None:
    every = [{**sent(t, 0.0, "x"), "at": t} for t in failures]
    assert recovered(every, moves, 60.0) == at


def runs() -> list[Object]:
    every = [sent(t) for t in range(-20, 60)]
    bad = [*every, sent(3.0, 0.0, "HTTP 503")]
    gpus = [(float(t), 4) for t in range(-20, 60)]
    kind = {"fault": "bad"}
    return [
        {**kind, "ladder": True, **run_of(every, [move(12.0)], gpus, -20.0, 1000.0, 60.0)},
        {**kind, "ladder": False, **run_of(bad, [], gpus, -20.0, 1000.0, 60.0)},
    ]


def test_the_table_has_a_row_each_and_says_what_is_not_so() -> None:
    without, with_it = ladder_page.table(runs()).splitlines()[2:]
    assert without.startswith("| draft gone bad | without | 98.3 % | 1 of 61 |")
    assert without.endswith("| not in 60 s |")
    assert with_it.startswith("| draft gone bad | with: ngram | 100 % | 0 of 60 |")
    assert with_it.endswith("| 12 s |")


def test_a_share_is_never_rounded_up_to_all() -> None:
    (run,) = runs()[1:]
    run["fault_window"]["availability"] = 0.99999
    assert "| 99.9 % |" in ladder_page.table([run])


def test_the_page_is_written_between_its_marks_again_and_again() -> None:
    page = f"# A\n\nbefore\n\n{ladder_page.BEGIN}\nold\n{ladder_page.END}\n\nafter\n"
    once = ladder_page.written(page, runs())
    assert "old" not in once
    assert once.startswith("# A\n\nbefore\n")
    assert once.endswith("\nafter\n")
    assert ladder_page.written(once, runs()) == once
    with pytest.raises(ValueError, match="unpack"):
        ladder_page.written("no marks", runs())


def test_the_chart_is_whole_and_shows_both_runs_failures_and_the_move() -> None:
    root = ET.fromstring(ladder_page.chart(runs()))
    said = ["".join(each.itertext()) for each in root if each.tag.endswith("text")]
    assert {"with the ladder", "without", "to ngram", "x"} <= set(said)
    assert any("SIMULATED" in each for each in said)
    width = float(root.attrib["width"])
    points = " ".join(e.attrib["points"] for e in root if e.tag.endswith("polyline"))
    assert all(0 <= float(p.split(",")[0]) <= width for p in points.split())


def test_the_page_in_docs_is_that_of_the_data() -> None:
    root = ROOT / "docs"
    data = root / "evidence" / "ladder.json"
    told = json.loads(data.read_text())["runs"]
    page = (root / "fallback.md").read_text()
    assert ladder_page.written(page, told) == page
    assert data.with_suffix(".svg").read_text() == ladder_page.chart(told)


def test_the_runs_on_real_servers_in_docs_are_those_of_the_data() -> None:
    root = ROOT / "docs"
    data = root / "evidence" / "ladder-real.json"
    told = json.loads(data.read_text())["runs"]
    page = (root / "fallback.md").read_text()
    assert data.with_suffix(".svg").read_text() == ladder_page.real_chart(told)
    assert ladder_page.written_real(page, told) == page
    arms = {(run["fault"], run["ladder"]) for run in told}
    assert arms
    assert {(fault, not ladder) for fault, ladder in arms} == arms  # never one without the other
    assert {fault for fault, _ in arms} <= {fault.code for fault in ladder_real.FAULTS}


def test_on_real_servers_it_is_recovered_once_it_serves_and_has_moved() -> None:
    assert ladder_real.recovered(40.0, [move(90.0), move(120.0)]) == 90.0
    assert ladder_real.recovered(95.0, [move(90.0)]) == 95.0
    assert ladder_real.recovered(40.0, [move(90.0, "failed")]) is None
    assert ladder_real.recovered(None, [move(90.0)]) is None


class Cron(ladder_real.Scene):
    """One whose commands are answered by the test."""

    alive: bool
    answers: dict[str, tuple[int, Object]]
    typed: list[str]

    @property
    def here(self) -> Any:
        return types.SimpleNamespace(alive=self.alive)

    def specctl(self, *words: str) -> tuple[int, Object, str]:
        command = " ".join(words[: 1 if words[0] == "deploy" else 2])
        self.typed.append(command)
        return *self.answers[command], "said"


FAILS = (2, {"proof": None, "rollout": {"why": "it ended"}})
MOVED = (0, {"proof": {"servers": [{"method": "ngram"}]}})


@pytest.mark.parametrize(
    ("ladder", "alive", "found", "typed", "moved"),
    [
        pytest.param(False, False, (), ["deploy"], [], id="dead-without"),
        pytest.param(True, False, (), ["deploy", "fallback apply"], ["ngram"], id="dead"),
        pytest.param(False, True, ("ZERO_ACCEPTANCE",), [], [], id="bad-without"),
        pytest.param(
            *(True, True, ("ZERO_ACCEPTANCE",), ["alert check", "fallback apply"], ["ngram"]),
            id="bad",
        ),
        pytest.param(True, True, ("STALLED",), ["alert check"], [], id="no-draft-to-blame"),
    ],
)
def test_what_the_cron_types(
    ladder: bool, alive: bool, found: tuple[str, ...], typed: list[str], moved: list[str]
) -> None:
    here = Path()
    fault, lasting = ladder_real.FAULTS[0], ladder_real.Lasting()
    cron = Cron(here, here, here, here, fault, ladder, lasting, lambda _: None)
    findings = [{"code": code, "severity": "critical", "evidence": "x"} for code in found]
    cron.alive, cron.typed = alive, []
    cron.answers = {
        "deploy": FAILS,
        "alert check": (2, {"findings": findings}),
        "fallback apply": MOVED,
    }
    cron._turn("http://x")
    assert cron.typed == typed
    assert [each["to"] for each in cron.moves] == moved
    assert (lasting.seconds != ladder_real.Lasting().seconds) == bool(moved)
    cron._turn("http://x")  # at once: not before its pause is over
    assert cron.typed.count("deploy") <= 1
    assert len(cron.moves) == len(moved)


def test_the_way_back_is_told_where_there_was_one() -> None:
    back = {
        "seconds": 61.2,
        "first_position": 0.594,
        "moving": {"requests": 80, "failed": 1},
        "after": {"tokens_per_s": 41.4},
    }
    without, with_it = ({**run, "back": None, "load": [2.0, 9.4]} for run in reversed(runs()))
    page = f"# A\n{ladder_page.REAL_BEGIN}\n{ladder_page.REAL_END}\n"
    told = ladder_page.written_real(page, [without, {**with_it, "back": back}])
    assert told.count("head mended") == 1
    assert "(draft gone bad: load 2 to 9)" in told
    assert "took 61 s, in which 80 requests ended and 1 failed; then 41 tok/s, and 0.59" in told
    assert ladder_page.written_real(told, [without, {**with_it, "back": back}]) == told
    refused = {
        "seconds": 97.9,
        "why": "the engine ended by itself (ValueError: x)",
        "serves_on": True,
        "moving": {"requests": 205, "failed": 0},
    }
    both = ladder_page.written_real(page, [without, {**with_it, "refused": refused, "back": back}])
    assert (
        "head as it was: `fallback restore` refused it after 98 s (the engine ended by itself), in "
        "which 205 requests ended and 0 failed; the rung serves on.\n- draft gone bad, head mended"
    ) in both


@pytest.mark.parametrize("spoil", [with_noise, misnamed])
def test_a_spoilt_head_has_the_size_of_the_sound_one(
    spoil: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    head = ROOT / "tests" / "data" / "smollm2-135m-eagle3"
    files = [path / "model.safetensors" for path in (head, spoil(head, tmp_path / "spoilt"))]
    sound, spoilt = (path.read_bytes() for path in files)
    assert len(sound) == len(spoilt)
    assert sound != spoilt


def test_the_crossover_lies_where_the_page_says() -> None:
    told = crossing()
    assert told.simulated
    assert [row.batch for row in told.plain] == [32, 64, 128]
    assert plain_speed(128) > plain_speed(32)
