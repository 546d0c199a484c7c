"""The lab's driver against servers that are stubs: what it takes for its own, and what it says."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from driver import main as lab
from driver import measure, phases, ready, room, servers, up
from driver.groups import GROUPS, Group
from driver.places import Places, Stop, read

ROOT = Path(__file__).parents[2]
RUN = ROOT / "benchmarks/lab/run"
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
"""The lab's servers outlive the call."""
ENGINE = f"""#!{sys.executable}
import os, sys
from pathlib import Path

words = sys.argv[1:]
after = dict(zip(words, words[1:]))
if "stand_in" in words:
    out = Path(after["--out"], "target")
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text('{{"vocab_size": 9}}')
if "serve" in words:
    method = "eagle3" if "--speculative-config" in words else "none"
    if method in os.environ.get("BROKEN", ""):
        print("INFO 1", "ValueError: No available memory", "RuntimeError: see above", sep="\\n")
        sys.exit(1)
    os.environ["PYTHONPATH"] = {str(ROOT)!r}
    sim = ["-m", "speccli", "sim", "--engines", "1", "--rate", "0", "--for", "60s"]
    sim += ["--port", after["--port"], "--method", method]
    os.execv(sys.executable, [sys.executable, *sim])
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """An engine whose servers are simulated, a model, prompts, and ports of its own."""
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "data").mkdir()
    prompts = [{"id": str(n), "prompt": f"count to {n}"} for n in range(40)]
    text = "".join(json.dumps(row) + "\n" for row in prompts)
    (tmp_path / "data/sharegpt.jsonl").write_text(text)
    question = ({"question_id": n, "turns": [f"count to {n}"], "category": "x"} for n in range(40))
    (tmp_path / "data/question.jsonl").write_text("".join(json.dumps(q) + "\n" for q in question))
    for name, value in (
        ("LAB_ENGINE", engine),
        ("LAB_PYTHON", sys.executable),
        ("LAB_MODEL", tmp_path / "model"),
        ("LAB_DATA", tmp_path / "data"),
        ("LAB_DIR", tmp_path / "work"),
        ("OUT", tmp_path / "out"),
    ):
        monkeypatch.setenv(name, str(value))
    for name in ("LAB_HEADS", "LAB_ENGINE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(up, "PORT", 10000 + os.getpid() % 1500 * 10)
    monkeypatch.setattr(up, "GOING_S", 0.0)
    made = Places(tmp_path / "work", tmp_path / "out", 600, rehearse=True)
    yield made
    for group in GROUPS.values():
        servers.stop(made, group)


def small(name: str, *arms: str) -> Group:
    """A group as a rehearsal has it, with some of its arms."""
    group = GROUPS[name]
    return replace(
        group, shape="tiny", arms=tuple(arm for arm in group.arms if arm.name in arms or not arms)
    )


class _Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def foreign(places: Places) -> Iterator[int]:
    """Another's server on the first port of the lab."""
    with ThreadingHTTPServer(("127.0.0.1", up.PORT), _Well) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield up.PORT
        server.shutdown()


def test_another_groups_server_is_not_measured_as_this_ones(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main(["serve", "8b", "--arms", "baseline", "--rehearse"]) == 0
    assert up.left(places) == ["8b"]
    capsys.readouterr()
    assert lab.main(["do", "8b-k", "--arms", "baseline,k1", "--rehearse"]) == 2
    assert f"8b/baseline is up still, on port {up.PORT}: run stop 8b" in capsys.readouterr().err
    assert measure.measure(places, small("8b-k", "baseline")) == 2
    assert not list((places.work / "results").glob("8b-k-*"))
    assert lab.main(["stop", "8b"]) == 0
    assert up.left(places) == []


def test_a_port_that_nobody_of_the_lab_holds_is_refused(places: Places, foreign: int) -> None:
    with pytest.raises(Stop, match=f"port {foreign} is taken"):
        servers.start(places, small("8b", "baseline"))
    assert measure.measure(places, small("8b", "baseline")) == 2
    assert not measure.result(places, GROUPS["8b"], GROUPS["8b"].benches[0]).exists()


def test_a_process_that_came_to_a_number_later_is_none_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "x.pid"
    up.keep(file, os.getpid())
    assert up.alive(file)
    file.write_text(f"{os.getpid()} 1")
    assert up.pid(file) is None
    assert not up.alive(file)


def test_an_arm_has_its_port_whichever_others_are_asked_for() -> None:
    group = small("8b", "eagle3", "ngram")
    assert [up.port(group, arm) - up.PORT for arm in group.arms] == [1, 3]


def test_servers_that_are_up_keep_what_was_said_of_their_start(places: Places) -> None:
    group = small("8b", "baseline")
    assert servers.start(places, group) == []
    file = places.work / "results/servers-8b.json"
    first = json.loads(file.read_text())
    assert first["commands"]["baseline"]
    assert first["ready_s"] > 0
    assert servers.start(places, group) == []
    assert json.loads(file.read_text())["commands"] == first["commands"]
    assert json.loads(file.read_text())["ready_s"] == first["ready_s"]


def test_an_arm_that_fails_says_its_first_error_and_the_others_go_on(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "eagle3")
    (wrong,) = servers.start(places, small("8b", "baseline", "eagle3"))
    log = places.work / "servers/8b/eagle3.log"
    assert wrong == f"eagle3: ended while starting: ValueError: No available memory ({log})"
    assert up.is_up(places, GROUPS["8b"], GROUPS["8b"].arms[0])


def kept(places: Places, bench: str, **told: Any) -> Path:
    file = places.work / "results" / f"{bench}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told))
    return file


def rows(*states: str) -> list[dict[str, str]]:
    return [{"state": state} for state in states]


ARMS = [{"name": "baseline"}, {"name": "k1"}]


def test_what_is_measured_starts_nothing(places: Places) -> None:
    kept(places, "8b-k-sweep", complete=True, arms=ARMS, rows=rows("ok"))
    assert lab.main(["do", "8b-k", "--arms", "baseline, k1", "--rehearse"]) == 0
    assert not (places.work / "servers").exists()


@pytest.mark.parametrize(
    "told",
    [
        {"complete": True, "arms": ARMS, "rows": rows("ok", "contaminated")},
        {
            "complete": True,
            "arms": ARMS,
            "rows": [{"state": "partial", "errors": 4, "requests": 96}],
        },
        {"complete": True, "arms": ARMS[:1], "rows": rows("ok")},
        {"complete": False, "arms": ARMS, "rows": rows("ok")},
    ],
    ids=["contaminated", "its server ended", "an arm is missing", "not complete"],
)
def test_what_is_not_final_is_measured_again(places: Places, told: dict[str, Any]) -> None:
    kept(places, "8b-k-sweep", **told)
    group = small("8b-k", "baseline", "k1")
    assert not measure.done(places, group, group.benches[0])


def test_contaminated_rows_are_said_and_are_more_to_do(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoilt(*_: object, **__: object) -> tuple[int, str]:
        kept(places, "8b-k-sweep", complete=True, arms=ARMS, rows=rows("ok", "contaminated"))
        return 1, ""

    monkeypatch.setattr(measure, "specctl", spoilt)
    monkeypatch.setattr(up, "is_up", lambda *_: True)
    assert measure.measure(places, small("8b-k", "baseline", "k1")) == 1
    assert "1 rows are contaminated" in capsys.readouterr().out


def test_a_row_that_breaks_off_each_time_is_measured_once_more_and_then_left(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prompts that are too long for a server are so at each call."""
    measured, healthy = [], False

    def too_long(*_: object, **__: object) -> tuple[int, str]:
        measured.append(1)
        row = {"arm": "k1", "batch": 8, "rate": None, "dataset": "sharegpt", "repeat": 0}
        row |= {"state": "partial", "errors": 4, "requests": 96, "error_kinds": {"HTTP 400": 4}}
        row |= {"state": "ok", "errors": 0} if healthy else {}
        row["started"] = f"{len(measured)}"
        kept(places, "8b-k-sweep", complete=True, arms=ARMS, rows=[row, *rows("ok")])
        return 1, ""

    monkeypatch.setattr(measure, "specctl", too_long)
    monkeypatch.setattr(up, "is_up", lambda *_: True)
    group = small("8b-k", "baseline", "k1")
    assert [measure.measure(places, group) for _ in range(4)] == [1, 2, 2, 2]
    assert len(measured) == 2
    said = capsys.readouterr().out
    assert said.count("1 rows are contaminated or broke off") == 1
    assert said.count("1 rows break off each time (HTTP 400) and are left") == 3
    assert said.count("measured before; 1 rows") == 2
    assert measure.done(places, group, group.benches[0])
    noted = places.work / "given-up/8b-k-sweep.json"
    assert f"remove {noted}" in said
    (places.work / "results/8b-k-sweep.json").unlink()  # measured anew, it may break off once
    assert measure.measure(places, group) == 1
    assert not noted.exists()
    healthy = True
    assert measure.measure(places, group) == 0
    assert len(measured) == 4


def test_a_row_that_was_not_measured_again_is_not_given_up(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose time is up before it comes to it."""
    row = {"state": "partial", "errors": 4, "requests": 96, "started": "1"}
    kept(places, "8b-k-sweep", complete=True, arms=ARMS, rows=[row])
    monkeypatch.setattr(measure, "specctl", lambda *_, **__: (130, ""))
    monkeypatch.setattr(up, "is_up", lambda *_: True)
    group = small("8b-k", "baseline", "k1")
    assert [measure.measure(places, group) for _ in range(3)] == [1, 1, 1]
    assert not measure.done(places, group, group.benches[0])


@pytest.mark.parametrize("text", ['{"complete": tr', "[]"])
def test_a_result_that_is_not_whole_is_named(
    places: Places, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kept(places, "8b-k-sweep")
    file.write_text(text)
    assert lab.main(["do", "8b-k", "--rehearse"]) == 2
    assert str(file) in capsys.readouterr().err
    assert not (places.work / "servers").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["do", "8b", "--only", "nope"], "8b has no bench 'nope': there are arms, sets"),
        (["do", "8b", "--arms", "baseline,nope"], "8b has no arm 'nope': there are baseline"),
        (["do"], "do what?: there are 8b,"),
        (["lossless", "32b"], "32b has no such bench: 8b, 8b-graphs, mixture, cpu"),
        (["drift", "8b", "--arms", "baseline"], "no arm of 8b that was asked for"),
    ],
)
def test_what_is_not_there_is_a_usage_error(
    places: Places, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main([*words, "--rehearse"]) == 64
    assert said in capsys.readouterr().err


def test_an_unknown_phase_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ended:
        lab.main(["nope"])
    assert ended.value.code == 64


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LAB_PYTHON", "/nonexistent", "LAB_PYTHON: /nonexistent: No such file"),
        ("LAB_PYTHON", "/bin/false", "LAB_PYTHON: /bin/false cannot run specctl"),
        ("LAB_ENGINE", "/nonexistent", "LAB_ENGINE: /nonexistent: No such file"),
        ("LAB_ENGINE", "/bin/false", "LAB_ENGINE: /bin/false has no vllm"),
        ("LAB_MODEL", "/nonexistent", "LAB_MODEL: no config.json in /nonexistent"),
        ("LAB_DATA", "/nonexistent", "LAB_DATA: no sharegpt.jsonl in /nonexistent"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(
    places: Places,
    name: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert lab.main(["do", "8b", "--only", "arms", "--rehearse"]) == 2
    assert said in capsys.readouterr().err
    assert not (places.work / "servers").exists()


def test_a_folder_that_cannot_be_is_said(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main(["collect", "--out", "/proc/nope"]) == 2
    assert "lab: /proc/nope: " in capsys.readouterr().err


def test_an_arm_without_its_head_is_left_out(places: Places) -> None:
    kept_, without = ready.heads(places, small("8b"))
    assert [arm.name for arm in kept_.arms] == ["baseline", "eagle3", "ngram", "draft-model"]
    assert "train --method p-eagle makes one" in without[0]


@pytest.mark.parametrize(
    ("mib", "fit"),
    [
        ("143771", ["baseline", "eagle3", "p-eagle", "ngram", "draft-model"]),
        ("81559", ["baseline", "eagle3", "p-eagle"]),
        ("16000", []),
    ],
)
def test_a_smaller_gpu_gets_the_arms_that_fit(
    places: Places, mib: str, fit: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "smi", lambda *_: [mib])
    group, without = room.that_fits(replace(places, rehearse=False), GROUPS["8b"])
    assert [arm.name for arm in group.arms] == fit
    assert len(without) == 5 - len(fit)


def test_a_server_over_two_gpus_wants_both(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "smi", lambda *_: ["143771"])
    with pytest.raises(Stop, match="over 2 GPUs, here is 1"):
        room.that_fits(replace(places, rehearse=False), GROUPS["70b-tp2"])


def test_drift_without_its_server_leaves_nothing(places: Places) -> None:
    with pytest.raises(Stop, match="8b/eagle3 is not up"):
        phases.drift(places, small("8b"))
    assert not list((places.work / "results").glob("*drift*"))


def stubbed(
    places: Places, monkeypatch: pytest.MonkeyPatch, code: int, took_s: float
) -> tuple[Path, Path]:
    """A drift whose benches are stubs; its recording and what it says of it."""
    group = small("8b", "baseline", "eagle3")
    assert servers.start(places, group) == []

    def bench(*_: object, **__: object) -> tuple[int, str]:
        time.sleep(took_s)
        return code, ""

    monkeypatch.setattr(phases, "specctl", bench)
    results = places.work / "results"
    return results / "8b-drift.jsonl.gz", results / "8b-drift.json"


def test_a_drift_is_recorded_until_its_last_phase_has_ended(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, told = stubbed(places, monkeypatch, 0, 1.3)
    assert phases.drift(places, small("8b")) == 0
    said = json.loads(told.read_text())["phases"]
    assert [phase["phase"] for phase in said] == ["known", "other", "sampled"]
    times = [row["at"] for row in scrapes(recording)]
    assert times[0] < said[0]["ended"]
    assert said[2]["ended"] - times[-1] < 1.2
    assert phases.drift(places, small("8b")) == 0  # was recorded before


def scrapes(recording: Path) -> list[dict[str, Any]]:
    with gzip.open(recording, "rt") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "at" in line]


def test_a_drift_whose_bench_failed_leaves_nothing_as_done(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, told = stubbed(places, monkeypatch, 2, 0.3)
    with pytest.raises(Stop, match="ended with 2"):
        phases.drift(places, small("8b"))
    assert not recording.exists()
    assert not told.exists()


def verdict(**kinds: int) -> str:
    arm = {
        "arm": "eagle3",
        "kinds": kinds,
        "beside_baseline": {"same": 60, "pairs": 64},
        "unlocated": 0,
        "partings": [{}] if kinds else [],
    }
    return json.dumps({"arms": [arm], "why_none": None})


@pytest.mark.parametrize(
    ("kinds", "code", "asked"),
    [({}, 0, 1), ({"numeric": 4}, 0, 2), ({"wrong": 1}, 2, 2), ({"unknown": 4}, 3, 2)],
)
def test_losslessness_is_judged_and_said(
    places: Places,
    kinds: dict[str, int],
    code: int,
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept(places, "8b-lossless", complete=True)
    os.utime(places.work / "results/8b-lossless.json", (1, 1))
    lines: list[list[str]] = []

    def judged(_: Places, words: list[str], **__: object) -> tuple[int, str]:
        lines.append(list(words))
        return 2, verdict(**kinds)

    monkeypatch.setattr(phases, "specctl", judged)
    monkeypatch.setattr(up, "is_up", lambda *_: True)
    assert phases.lossless(places, GROUPS["8b"]) == code
    assert len(lines) == asked
    assert (f"http://127.0.0.1:{up.PORT}" in lines[-1]) == (asked == 2)
    # The answers stay in the bench, for a report of it.
    assert (lines[-1][-2:] == ["--out", lines[0][2]]) == (asked == 2)
    assert "60 of 64 answers are the baseline's" in capsys.readouterr().out
    assert phases.lossless(places, GROUPS["8b"]) == code
    assert len(lines) == asked  # said again, not asked again


def test_losslessness_without_its_baseline_is_not_judged(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(places, "8b-lossless", complete=True)
    monkeypatch.setattr(phases, "specctl", lambda *_, **__: (3, verdict(unknown=4)))
    assert phases.lossless(places, GROUPS["8b"]) == 1
    assert not (places.work / "results/8b-lossless-verdict.json").exists()


def test_a_report_leaves_out_what_is_not_whole_or_has_no_baseline(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = kept(places, "8b-arms", arms=[{"name": "baseline"}])
    kept(places, "70b-eagle3-fp8", arms=[{"name": "eagle3"}])
    kept(places, "32b-arms").write_text("{")
    lines: list[list[str]] = []

    def reported(_: Places, words: list[str], **__: object) -> tuple[int, str]:
        lines.append(list(words))
        return 0, ""

    monkeypatch.setattr(phases, "specctl", reported)
    monkeypatch.setattr(phases, "_estimates", lambda *_: [])
    assert phases.report(places) == 1
    assert [word for word in lines[0] if "--each" in word] == [f"--each=8b={whole}"]
    said = capsys.readouterr().out
    assert "70b-fp8: no baseline was measured yet, only eagle3" in said
    assert "32b-arms.json is not whole" in said
    assert str(places.work / "report") in said


def test_ctrl_c_ends_the_bench_and_says_what_is_up(places: Places) -> None:
    """Of the driver alone: a terminal tells the bench too."""
    env = os.environ | {"PYTHONPATH": str(RUN.parent)}
    code = (
        f"import sys; sys.path.insert(0, {str(RUN.parent)!r})\n"
        f"from driver import main, places, up; up.PORT = {up.PORT}; places.GRACE_S = 0.2\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    words = ["do", "8b", "--arms", "baseline", "--only", "arms", "--rehearse"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        with closing(run.stderr):
            for line in run.stderr:
                if "[1/" in line:
                    break
            run.send_signal(signal.SIGINT)
            told = run.stderr.read()
        assert run.wait(timeout=30) == 130
    assert "lab: interrupted" in told
    assert "8b's servers are up; run stop 8b ends them" in told
    assert "Traceback" not in told
    benches = subprocess.run(
        ["pgrep", "-f", f"speccli bench run --out {places.work}"], capture_output=True, check=False
    )
    assert benches.returncode == 1
    assert not read(places.work / "results/8b-arms.json")["complete"]
    assert (places.out / "lab.tar.gz").exists()


def test_list_says_what_a_group_needs_and_makes_nothing(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main(["list"]) == 0
    said = capsys.readouterr().out
    assert "GPU GiB" in said.splitlines()[0]
    assert "2 x 86" in said
    assert not places.work.exists()


def test_a_check_needs_no_gpu_in_a_rehearsal(places: Places) -> None:
    assert lab.main(["check", "--rehearse"]) == 0


def test_reading_what_is_not_there_gives_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "x.json") == {}
