"""What a command imports: nobody pays for a library that is not used."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from speccli.main import COMMANDS
from tests.support.golden import FOLDER
from tests.support.processes import environment, python

HEAVY = (
    "textual",
    "rich",
    "aiohttp",
    "requests",
    "kubernetes",
    "pydantic",
    "prometheus_api_client",
    "prometheus_client",
    "genai_prices",
    "yaml",
    "zstandard",
    "hypothesis",
)
LOADED = """
import shlex, sys
from speccli.main import main
for line in sys.argv[1:]:
    sys.argv = ["specctl", *shlex.split(line)]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code, (line, leaving.code)
    names = sorted({name.partition(".")[0] for name in sys.modules})
    print("LOADED", *names, file=sys.stderr)
"""


def loaded(*lines: str) -> list[set[str]]:
    """Top-level names that were imported by the end of each of the command lines, one by one."""
    done = python(LOADED, *lines)
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stderr.splitlines()]
    found = [set(words[1:]) for words in said if words[0] == "LOADED"]
    assert len(found) == len(lines)
    return found


def test_no_help_imports_anything_heavy() -> None:
    lines = ["--version", "--help", "status --help", *(f"{name} --help" for name in COMMANDS)]
    for line, names in zip(lines, loaded(*lines), strict=True):
        assert not names & set(HEAVY), line


def test_a_status_in_json_paints_nothing() -> None:
    (found,) = loaded(f"status --replay {FOLDER / 'fleet.jsonl'} -o json")
    assert not found & {"textual", "rich", "yaml", "requests", "prometheus_api_client"}


def test_a_status_in_a_table_opens_no_screen() -> None:
    (found,) = loaded(f"status --replay {FOLDER / 'fleet.jsonl'}")
    assert "rich" in found
    assert not found & {"textual", "yaml", "requests", "genai_prices", "pydantic"}


def test_the_core_needs_no_painter() -> None:
    done = python(
        "import sys, speccli.core.oneshot, speccli.core.recorder, speccli.core.demo\n"
        "print(sorted({'typer', 'rich', 'textual'} & set(sys.modules)))"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_measured_names_are_those_that_are_installed() -> None:
    """A name misspelled above would pass for ever."""
    missing = {name for name in HEAVY if importlib.util.find_spec(name) is None}
    assert missing <= {"kubernetes", "pydantic", "zstandard"}


def test_nothing_is_read_before_ctrl_c_is_heard() -> None:
    """Without `site`, which has read much of it already here."""
    code = "import speccli.start, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment(), check=True, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert "speccli.start" in done.stdout.split()
    assert not {"enum", "signal", "typing", "re", "__future__"} & set(done.stdout.split())
