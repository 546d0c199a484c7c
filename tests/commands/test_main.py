"""The command line as a whole: help, exit codes, what goes to which stream."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core import open as open_
from speccli.core.errors import (
    DeadlineError,
    NotAuthorisedError,
    RecordingError,
    SourceError,
    SpecctlError,
    UnreachableError,
    UsageError,
)
from speccli.main import COMMANDS, EXIT_CODES
from tests.support.golden import FOLDER
from tests.support.processes import ROOT, environment, python, shell, started
from tests.support.recordings import specctl

RECORDING = FOLDER / "fleet.jsonl"
CODES = {0, 1, 2, 3, 64, 70, 130}


# ---- help ------------------------------------------------------------------------------------


def test_specctl_alone_prints_help() -> None:
    answer = specctl()
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.startswith("Usage: specctl ")
    assert answer.stdout == specctl("--help").stdout


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)], ids=lambda w: "-".join(w))
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_help_prints_the_exit_codes(words: tuple[str, ...], flag: str) -> None:
    answer = specctl(*words, flag)
    assert (answer.exit_code, answer.stderr) == (0, "")
    text = " ".join(answer.stdout.split())
    assert "Exit codes: 0 ok · " in text
    assert "64 usage · 70 a bug in specctl · 130 interrupted." in text
    assert words or " ".join(EXIT_CODES.split()) in text
    assert max(map(len, answer.stdout.splitlines())) <= 120


def test_help_lists_every_command_in_order() -> None:
    lines = specctl("--help").stdout.partition("Commands:")[2].splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ") and line.split()]
    assert [name for name in named if name in COMMANDS] == list(COMMANDS)


def test_the_version_is_printed() -> None:
    answer = specctl("--version")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.startswith("specctl ")


JUDGES = {"--floor", "--hold"}
PRICES = {"--gpu-hour-usd", "--gpus-per-engine", "--baseline-cost"}
READS = {
    *("--endpoint", "--prometheus", "--selector", "--replay", "--interval", "--deadline"),
    *("--token", "--token-file", "--ca", "--cert", "--key", "--insecure"),
}
EVERY = JUDGES | PRICES | READS | {"--profile", "--window", "--method"}


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        ("status", set()),
        ("top", set()),
        ("replay", READS),
        ("record", JUDGES | PRICES | {"--method"}),
        ("cost", JUDGES | {"--method"}),
        ("doctor", JUDGES | PRICES | {"--window", "--interval"}),
    ],
)
def test_a_command_has_the_options_that_act_and_no_others(command: str, lacks: set[str]) -> None:
    text = specctl(command, "--help").stdout
    told = set(re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", text, re.MULTILINE))
    assert told & EVERY == EVERY - lacks


def test_a_recording_is_replayed_whatever_source_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECCTL_ENDPOINT", "127.0.0.1:1")
    assert specctl("replay", RECORDING, "--once", "--floor", "0.5").exit_code == 0
    for other in (("--replay", "other"), ("-e", "h:1")):
        answer = specctl("replay", RECORDING, "--once", *other)
        assert answer.exit_code == 64
        assert f"No such option: {other[0]}" in answer.stderr


@pytest.mark.parametrize("window", ["0", "0s", "0.0m"])
@pytest.mark.parametrize("command", ["status", "top", "cost"])
def test_a_window_of_nothing_is_refused(command: str, window: str) -> None:
    once = ("--once",) if command == "top" else ()
    answer = specctl(command, *once, "--replay", RECORDING, "--window", window)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert f"--window {window} looks back over nothing" in answer.stderr


# ---- usage errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stauts",), "No such command 'stauts'. Did you mean"),
        (("status", "--endpont", "h:1"), "No such option: --endpont"),
        (("status", "one", "two"), "unexpected extra argument"),
        (("status", "--floor", "2"), "Invalid value for '--floor'"),
        (("status", "--floor", "nan"), "'--floor': nan is not a finite number"),
        (("status", "-o", "xml"), "Invalid value for '--output' / '-o'"),
        (("status", "--endpoint"), "requires an argument"),
        (("status",), "no source of metrics"),
        (("status", "-e", "ftp://h"), "scheme 'ftp' is not http(s)"),
        (("status", "-e", "h:1", "--replay", "r"), "--endpoint and --replay together"),
        (("status", "-e", "h:1", "--interval", "fast"), "--interval 'fast' is not a duration"),
        (("status", "-e", "h:1", "--profile", "prod"), "no profile 'prod'"),
        (("status", "--replay", "no-such-file"), "cannot read no-such-file: No such file"),
        (("status", "--replay", "."), "cannot read .: Is a directory"),
        (("status", "-e", "https://h", "--ca", "none.pem"), "certificate file none.pem"),
        (("status", "-e", "h:1", "--token-file", "none"), "token file none: No such file"),
        (("record",), "Missing argument 'FILE'"),
        (("replay",), "Missing argument 'FILE'"),
        (("top", "--replay", str(RECORDING)), "top needs a terminal"),
        (("sim", "--scenario", "stedy"), "did you mean 'steady'?"),
    ],
    ids=lambda part: " ".join(part)[:40] if isinstance(part, tuple) else "",
)
def test_a_usage_error_is_64_with_a_line_and_a_hint(words: tuple[str, ...], said: str) -> None:
    answer = specctl(*words)
    assert answer.exit_code == 64
    assert answer.stdout == ""
    first, *rest = answer.stderr.splitlines()
    assert first.startswith("specctl: error: ")
    assert said in first
    assert not first.endswith(".")
    assert len(rest) <= 1
    assert all(line.startswith("hint: ") for line in rest)


def test_an_unknown_variable_is_a_note_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCTL_ENDPIONT", "h:1")
    answer = specctl("status", "--replay", RECORDING, "-o", "json")
    assert answer.exit_code == 0
    assert answer.stderr == (
        "specctl: note: SPECCTL_ENDPIONT is not a setting; did you mean SPECCTL_ENDPOINT?\n"
    )
    assert answer.json["schema"] == "specctl.status/v1"


def test_settings_reach_a_command_from_the_environment_and_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECCTL_GPU_HOUR_USD", "2.5")
    (tmp_path / "specctl.toml").write_text("gpus_per_engine = 4\nfloor = 0.5\nhold = '30s'\n")
    answer = specctl("status", "--replay", RECORDING, "-o", "json")
    assert answer.fleet["cost_per_1m_output_usd"]["value"] == pytest.approx(121.8, rel=0.01)
    assert answer.findings("LOW_ACCEPTANCE")
    typed = specctl("status", "--replay", RECORDING, "-o", "json", "--floor", "0.1")
    assert not typed.findings("LOW_ACCEPTANCE")


# ---- errors on purpose, bugs, signals --------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecctlError, 3),
        (SourceError, 3),
        (UnreachableError, 3),
        (DeadlineError, 3),
        (NotAuthorisedError, 3),
        (UsageError, 64),
        (RecordingError, 64),
    ],
)
def test_an_error_on_purpose_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: type[SpecctlError], code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("no answer from http://h:1/metrics", hint="is the port-forward up?")

    monkeypatch.setattr(open_, "open_source", refuse)
    answer = specctl("status", "-e", "h:1")
    assert (answer.exit_code, answer.stdout) == (code, "")
    assert answer.stderr == (
        "specctl: error: no answer from http://h:1/metrics\nhint: is the port-forward up?\n"
    )


def test_every_error_class_has_a_code_of_the_contract() -> None:
    classes = [SpecctlError]
    for each in classes:
        classes += each.__subclasses__()
    assert {int(each.exit_code) for each in classes} <= CODES - {0, 70}


BUG = """
import sys
from speccli.core import open as open_
def broken(*_, **__):
    raise ValueError("a fault\\nof two lines")
open_.open_source = broken
from speccli.main import main
sys.argv = ["specctl", "status", "-e", "h:1", "--token", "hunter2"]
main()
"""


def test_a_bug_is_70_with_one_line_and_a_report(tmp_path: Path) -> None:
    done = python(BUG, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (70, "")
    said, where = done.stderr.splitlines()
    assert said == "specctl: bug in specctl: ValueError: a fault (<string>:5)"
    report = Path(where.removeprefix("report: "))
    assert report.parent == tmp_path
    text = report.read_text()
    assert "Traceback" in text
    assert "of two lines" in text
    assert "command: status" in text
    assert "hunter2" not in text


def test_a_bug_without_a_place_for_its_report_is_no_traceback_either() -> None:
    code = BUG.replace("import sys", "import sys, tempfile").replace(
        "main()\n", "tempfile.tempdir = '/no/such/folder'\nmain()\n"
    )
    done = python(code)
    assert done.returncode == 70
    assert "Traceback" not in done.stderr
    assert "set TMPDIR" in done.stderr


def test_ctrl_c_is_130_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with started("status", "-e", address, "--deadline", "30s") as process:
            server.settimeout(30)
            connection, _ = server.accept()  # it is waiting for the answer now
            with connection:
                process.send_signal(signal.SIGINT)
                stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout, stderr) == (130, "", "specctl: interrupted\n")


def test_ctrl_c_before_a_command_has_begun_is_130_too(tmp_path: Path) -> None:
    """What the command imports at its start stands still here, so that the moment is certain."""
    (tmp_path / "typer").mkdir()
    (tmp_path / "typer" / "__init__.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "speccli", "status", "-e", "h:1"],
        env=environment(PYTHONPATH=f"{tmp_path}:{ROOT}"),
        check=False, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "specctl: interrupted\n")


ENDING = """
import atexit, os, signal, sys
def once_more():
    os.kill(os.getpid(), signal.SIGINT)
from speccli.core import open as open_
def interrupt(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
open_.open_source = interrupt
from speccli import start
sys.argv = ["specctl", "status", "-e", "h:1"]
{when}
start.main()
"""


@pytest.mark.parametrize(
    "when",
    [
        pytest.param("atexit.register(once_more)", id="at-the-exit"),
        pytest.param(
            "from speccli import diagnostics; say = diagnostics.say\n"
            "diagnostics.say = lambda text: (say(text), once_more())",
            id="when-it-was-said",
        ),
        pytest.param(
            "class Last:\n"
            "    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, 2)\n"
            "last = Last()",
            id="after-everything",
        ),
    ],
)
def test_ctrl_c_twice_is_130_too(when: str) -> None:
    done = python(ENDING.format(when=when))
    assert (done.returncode, done.stdout) == (130, "")
    assert set(done.stderr.splitlines()) == {"specctl: interrupted"}


def test_an_interrupt_anywhere_in_a_command_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(open_, "open_source", interrupt)
    answer = specctl("status", "-e", "h:1")
    assert (answer.exit_code, answer.stderr) == (130, "specctl: interrupted\n")


def test_an_interrupt_says_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        stopped = KeyboardInterrupt()
        stopped.add_note("half of it is kept")
        raise stopped

    monkeypatch.setattr(open_, "open_source", interrupt)
    answer = specctl("status", "-e", "h:1")
    assert (answer.exit_code, answer.stderr) == (130, "specctl: interrupted: half of it is kept\n")


def test_an_interrupt_while_a_class_is_made_is_130_and_no_signal(tmp_path: Path) -> None:
    """A dataclass is made by code from a string, and commands import many when they run."""
    (tmp_path / "starts.py").write_text(
        "import sys\nfrom speccli.core import open as open_\nfrom speccli.main import main\n"
        "open_.open_source = lambda *_, **__: exec('raise KeyboardInterrupt')\n"
        "sys.argv = ['specctl', 'status', '-e', 'h:1']\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "starts"],
        env=environment(PYTHONPATH=f"{tmp_path}:{ROOT}"),
        check=False, capture_output=True, timeout=180,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, b"")


# ---- streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["--help", f"status --replay {RECORDING}", f"status --replay {RECORDING} -o json"],
    ids=["help", "table", "json"],
)
def test_a_reader_that_leaves_early_is_no_error(command: str) -> None:
    done = shell(f"specctl {command} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_reader_that_leaves_early_does_not_hide_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"schema": "specctl.recording/v1"}\n')
    done = shell(f"specctl status --replay {tmp_path / 'r'} | true; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == "3\n"
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        *("--version", "plan --help", "recipes list"),
        *(f"status --replay {RECORDING}{form}" for form in ("", " -o json", " -o yaml")),
    ],
)
def test_a_full_disk_behind_stdout_is_one_line(command: str) -> None:
    done = shell(f"specctl {command} > /dev/full")
    assert done.returncode == 3
    assert done.stderr == (
        "specctl: error: cannot write to standard output: No space left on device\n"
        "hint: is the disk full?\n"
    )


@pytest.mark.parametrize("more", ["", " -o json"])
@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_a_verdict_that_stdout_does_not_take_is_still_the_exit_code(more: str, where: str) -> None:
    """And is on stderr, where it was lost; what is closed asked for none."""
    done = shell(f"specctl alert check --replay {RECORDING}{more} >{where}")
    assert (done.returncode, done.stdout) == (1, "")
    if where == "&-":
        assert done.stderr == ""
        return
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "specctl: note: standard output takes no more (No space left on device): "
        "SPECCTL WARNING - VERSION_SKEW fleet"
    )


@pytest.mark.parametrize("command", ["check --window 0.2s", "probe"])
def test_unknown_is_its_own_exit_code_too_where_stdout_is_full(
    command: str, tmp_path: Path
) -> None:
    done = shell(f"specctl alert {command} -e 127.0.0.1:9 > /dev/full", SPECCTL_STATE=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("standard output takes no more") == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_another_file_that_takes_no_more_is_not_called_standard_output(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(open_, "open_source", refuse)
    answer = specctl("status", "-e", "h:1")
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert answer.stderr == (
        f"specctl: error: cannot write a file: {os.strerror(number)}\nhint: is the disk full?\n"
    )


def test_closed_streams_are_no_bug() -> None:
    assert shell(f"specctl status --replay {RECORDING} >&- 2>&-").returncode == 0
    assert shell("specctl status >&- 2>&-").returncode == 64


def test_a_terminal_without_unicode_gets_what_it_can_show() -> None:
    done = shell(f"specctl status --replay {RECORDING}", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "! WARNING VERSION_SKEW" in done.stdout
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    done = shell(f"specctl status --replay {RECORDING} -o yaml", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_no_line_of_a_table_ends_in_blanks() -> None:
    for command in (f"cost --replay {RECORDING}", f"status --replay {RECORDING}", "doctor"):
        done = shell(f"specctl {command}")
        assert done.stdout
        assert [row for row in done.stdout.split("\n") if row != row.rstrip()] == []


def test_no_colour_reaches_a_file() -> None:
    done = shell(
        f"specctl status --replay {RECORDING}", TERM="xterm-256color", COLORTERM="truecolor"
    )
    assert "\x1b" not in done.stdout


def test_a_width_of_zero_is_none() -> None:
    done = shell(f"specctl status --replay {RECORDING} | head -1", COLUMNS="0")
    assert done.stdout.startswith("3 engines")


# ---- whatever is typed -----------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("status", "top", "replay", "--replay", "--once", "-o", "json", "yaml", "table", "--help"),
        *("--window", "--floor", "--hold", "--method", "--profile", "--token-file", "--selector"),
        *("0", "-1", "5s", "1h", "0.5", "nan", "inf", "", "-", "--", "-x", "=", "a" * 300),
        *("\x01", "\x1b[2J", "模型", "no-such-file", "/dev/null", ".", str(RECORDING)),
    ]
)


@settings(deadline=None)  # a command is imported when it is first run
@given(st.lists(WORDS, max_size=6))
def test_whatever_is_typed_ends_in_a_code_of_the_contract(words: list[str]) -> None:
    answer = specctl(*words)
    assert answer.exit_code in CODES - {70}
    assert "Traceback" not in answer.stdout + answer.stderr
    assert "\x1b" not in answer.stderr
    if answer.exit_code == 64:
        assert answer.stdout == ""
        assert len(answer.stderr.splitlines()) <= 2


def test_help_has_one_default_of_a_deadline() -> None:
    told = " ".join(specctl("alert", "check", "--help").stdout.split())
    assert "Wall clock for one answer. [default: (30s)]" in told
    assert "5s; 10s" not in told
    status = " ".join(specctl("status", "--help").stdout.split())
    assert "[default: (5s; 10s with --prometheus)]" in status
