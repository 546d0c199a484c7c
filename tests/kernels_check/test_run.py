"""A run of checks: each in a process of its own, and what it concludes from how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels_check import __main__ as command
from kernels_check import mutants, payoff, plot, report, runner
from kernels_check.child import resolve
from kernels_check.manifest import MUTANTS, manifest
from kernels_check.model import Check, Context, Level, Result, Status, Wrong

FAKES = "tests.kernels_check.fakes"
ENDS = {
    "right": Status.PASSED,
    "wrong": Status.FAILED,
    "absent": Status.SKIPPED,
    "broken": Status.BROKEN,
    "sticky": Status.CRASHED,
    "crash": Status.CRASHED,
    "leave": Status.CRASHED,
    "hang": Status.HUNG,
    "not_installed": Status.SKIPPED,
    "renamed": Status.BROKEN,
}


def fake(name: str, **more: float) -> Check:
    return Check(name, f"{FAKES}:{name}", "a fake", deadline_s=more.get("deadline_s", 20))


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    checks = [fake(name, deadline_s=1.0 if name == "hang" else 20.0) for name in ENDS]
    done = runner.run(checks, seed=11, jobs=4, done=lambda result: None, preload=())
    return {result.name: result for result in done}


@pytest.mark.parametrize("name", ENDS)
def test_each_way_to_end_is_told_apart_and_the_run_goes_on(
    name: str, results: dict[str, Result]
) -> None:
    assert results[name].status is ENDS[name], results[name].evidence


def test_evidence_says_what_and_where(results: dict[str, Result]) -> None:
    assert results["right"].data == {"seed": 11}
    assert results["wrong"].evidence == "token 3, must be 4"
    assert "SIGABRT" in results["crash"].evidence
    assert "exit 7" in results["leave"].evidence
    assert "within 1 s" in results["hang"].evidence
    assert results["right"].log == ""
    assert "renamed" in results["broken"].log


def test_a_nursery_that_dies_while_importing_loses_no_check() -> None:
    done = runner.run(
        [fake("right")],
        seed=1,
        jobs=1,
        done=lambda result: None,
        preload=("tests.kernels_check.deadly_import",),
    )
    assert [result.status for result in done] == [Status.PASSED]


STARTER = """
import sys
from kernels_check import runner
from kernels_check.model import Check
check = Check("hang", "tests.kernels_check.fakes:hang_and_tell", "", options={"tell": sys.argv[1]})
runner.run([check], seed=1, jobs=1, done=print, preload=())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("whom", ["the-group", "the-process"])
def test_a_run_that_is_ended_leaves_no_check_on_the_gpu(
    tmp_path: Path, number: signal.Signals, whom: str
) -> None:
    """`timeout` and Ctrl-C signal the whole group; `kill` the process that was started."""
    told = tmp_path / "pid"
    run = subprocess.Popen([sys.executable, "-c", STARTER, str(told)], start_new_session=True)
    try:
        wait_for(lambda: told.exists() and told.read_text() != "", 120)
        check = int(told.read_text())
        os.killpg(run.pid, number) if whom == "the-group" else os.kill(run.pid, number)
        run.wait(120)
        wait_for(lambda: not alive(check), 120)
    finally:
        run.kill()


def alive(process: int) -> bool:
    """Whether it runs; where nobody waits for orphans they stay as zombies."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        pytest.param([Status.PASSED, Status.SKIPPED], 0, id="passed"),
        pytest.param([Status.PASSED, Status.BROKEN], 1, id="not-carried-out-is-a-warning"),
        pytest.param([Status.PASSED, Status.FAILED], 2, id="wrong"),
        pytest.param([Status.PASSED, Status.HUNG], 2, id="hung"),
        pytest.param([Status.SKIPPED, Status.SKIPPED], 3, id="nothing-looked-at-is-unknown"),
    ],
)
def test_exit_codes(statuses: list[Status], code: int) -> None:
    checks = [Check(str(i), "x:y", "") for i in range(len(statuses))]
    results = [Result(str(i), status, 1.0, "e") for i, status in enumerate(statuses)]
    said = report.as_json(
        checks, results, seed=1, at="2025-11-29T00:00:00+00:00", seconds=1, environment={},
        whole=True,
    )  # fmt: skip
    assert said["exit"] == code
    assert said["verdict"] == report.VERDICTS[code]
    assert len(said["findings"]) == sum(
        status not in {Status.PASSED, Status.SKIPPED} for status in statuses
    )
    for finding in said["findings"]:
        assert list(finding) == [
            "code", "severity", "subject", "evidence", "cause", "action", "since",
        ]  # fmt: skip


def test_every_code_a_check_can_raise_has_a_cause_and_an_action() -> None:
    codes = {check.code for check in manifest()} | set(report.CODES.values())
    assert codes <= set(report.CAUSES)
    assert set(report.CAUSES) == set(report.ACTIONS)


def test_names_are_unique_and_targets_exist() -> None:
    checks = manifest()
    assert len({check.name for check in checks}) == len(checks)
    for check in checks:
        if check.level is not Level.HIDDEN:
            assert callable(resolve(check))


def test_what_a_guard_finds_is_told_as_out_of_bounds() -> None:
    found = {check.code for check in manifest() if check.target.startswith("guard:")}
    assert found == {"KERNEL_OUT_OF_BOUNDS"}


def test_every_mutant_has_a_check_meant_for_it() -> None:
    for name, target, reason, _ in MUTANTS:
        assert callable(resolve(Check(name, target, ""))), name
        assert reason


def test_a_mutant_that_nothing_catches_is_a_failure_of_the_check() -> None:
    options = {"target": f"{FAKES}:wrong", "reason": "must be 4"}
    assert mutants.caught(Context(1, options)).evidence.startswith("caught")
    with pytest.raises(Wrong, match="another reason"):
        mutants.caught(Context(1, {**options, "reason": "bonus"}))
    with pytest.raises(Wrong, match="not caught"):
        mutants.caught(Context(1, {**options, "target": f"{FAKES}:catches_nothing"}))


def test_without_a_cuda_device_it_says_so_in_one_line_and_exits_3() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernels_check"], capture_output=True, text=True, check=False
    )
    if "no CUDA device" not in done.stderr:
        pytest.skip("this machine has a CUDA device")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "kernels_check: no CUDA device\n")


def test_usage_errors_never_look_like_an_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "no.such.check"]) == 64
    assert command.main(["--only", "gemm", "--only", "nosuch"]) == 64  # not the others alone
    with pytest.raises(SystemExit) as left:
        command.main(["--nonsense"])
    assert left.value.code == 64
    assert capsys.readouterr().out == ""


def test_levels_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    plain = capsys.readouterr().out
    assert "rejection.vllm-v2.random" in plain
    assert "mutant." not in plain
    assert command.main(["--list", "--mutants", "--cost", "--soak", "1"]) == 0
    full = capsys.readouterr().out
    assert {"mutant.", "cost.", "soak"} <= {
        part for part in ("mutant.", "cost.", "soak") if part in full
    }


def test_the_package_needs_no_torch_to_be_asked() -> None:
    code = "import sys, kernels_check.__main__; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


MEASURED: dict[str, Any] = {
    "ms": {
        "1": {"0": 10.0, "1": 10.5, "3": 11.0, "7": 12.0},
        "8": {"0": 10.0, "1": 14.0, "3": 25.0, "7": 50.0},
        "32": {"0": 10.0, "1": 14.0, "3": 25.0, "7": 50.0},
        "128": {"0": 10.0, "1": 16.0, "3": 32.0, "7": 64.0},
    },
    "draft_ms_per_token": {"1": 0.5, "8": 0.5, "32": 0.5, "128": 0.5},
}


def test_payoff_counts_the_drafting_and_says_where_a_k_loses() -> None:
    assert payoff.length(0.5, 2) == 1.75
    assert payoff.speed_up(MEASURED, 0.5, "1", "1") == pytest.approx(1.5 * 10 / 11.0)
    found = payoff.crossover(MEASURED, 0.5)
    assert found["best"]["1"]["k"] == 3
    assert found["no_gain_at"] == [128]
    assert found["loses_by_k"]["7"] == [8, 32, 128]
    assert payoff.words(MEASURED, 0.5, "7") == "loses at 8, 32, 128"
    assert payoff.words(MEASURED, 0.9, "1") == "pays at every batch"


def test_curves_are_drawn_from_a_runs_json() -> None:
    ms = {
        b: {str(k): row["0"] * (1 + 0.3 * k) for k in range(8)} for b, row in MEASURED["ms"].items()
    }
    data = {**MEASURED, "ms": ms, "model": "a <model>", "context": 2048}
    document = {
        "environment": {"gpu": "G", "driver": "1", "versions": {"vllm": "0.25.1"}},
        "checks": [{"name": "cost.x", "data": data}],
    }
    drawn = plot.curves(json.loads(json.dumps(document)))
    assert drawn.count("<polyline") == 5
    loses = payoff.crossover(data, plot.CHANCE)["loses_by_k"]
    lost = sum(len(loses[str(k)]) for k in plot.SHOWN)
    assert 0 < lost < 5 * len(ms)
    assert drawn.count('r="3.5" fill="#fff"') == lost
    assert "a &lt;model&gt;" in drawn
    assert "K 7, 50% accepted" in drawn


def test_the_cost_data_is_made_from_the_samples_alone() -> None:
    facts = {"shape": "x", "model": "m", "layers": 3, "context": 2048}
    points = [
        {**facts, "what": "step", "batch": int(b), "k": int(k), "samples_ms": [v + 1, v, v - 1]}
        for b, row in MEASURED["ms"].items()
        for k, v in row.items()
    ]
    points += [
        {**facts, "what": "draft", "batch": int(b), "k": 1, "samples_ms": [v]}
        for b, v in MEASURED["draft_ms_per_token"].items()
    ]
    found = payoff.from_raw("\n".join(json.dumps(point) for point in points))["cost.x"]
    assert found["ms"] == MEASURED["ms"]
    assert found["crossover"]["0.5"] == payoff.crossover(MEASURED, 0.5)


def test_a_planted_mutant_is_a_check_in_the_middle_of_the_others() -> None:
    options = command.parser().parse_args(["--plant", "read-one-to-the-right", "--plant", "fault"])
    names = [check.name for check in command.select(options)]
    plain = [check.name for check in command.select(command.parser().parse_args([]))]
    assert set(names) - set(plain) == {"planted.read-one-to-the-right", "planted.fault"}
    assert 5 < names.index("planted.fault") < len(names) - 5
    with pytest.raises(SystemExit):
        command.select(command.parser().parse_args(["--plant", "nothing-like-that"]))


def test_beside_an_engine_nothing_is_timed() -> None:
    chosen = command.select(command.parser().parse_args(["--shared"]))
    assert [check.name for check in chosen if check.alone] == ["chip.health"]
