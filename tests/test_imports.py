"""What a command imports: nobody pays for a library that is not used."""

from __future__ import annotations

import importlib.util

import pytest

from speccli.main import COMMANDS
from tests.support.golden import FOLDER
from tests.support.processes import python

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
import sys
from speccli.main import main
try:
    main()
except SystemExit as leaving:
    assert not leaving.code, leaving.code
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def loaded(*words: str) -> set[str]:
    """Top-level names of what a command line has imported by its end."""
    done = python(LOADED, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), *((name, "--help") for name in COMMANDS)], ids=" ".join
)
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    assert not loaded(*words) & set(HEAVY)


def test_a_status_in_json_paints_nothing() -> None:
    found = loaded("status", "--replay", str(FOLDER / "fleet.jsonl"), "-o", "json")
    assert not found & {"textual", "rich", "yaml", "requests", "prometheus_api_client"}


def test_a_status_in_a_table_opens_no_screen() -> None:
    found = loaded("status", "--replay", str(FOLDER / "fleet.jsonl"))
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
