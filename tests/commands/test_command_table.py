"""The table that `specctl --help` prints without importing the commands in it."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from speccli import commands
from speccli.main import COMMANDS, app


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_commands_own_help(name: str) -> None:
    module = import_module(f"speccli.commands.{name}")
    told = inspect.getdoc(module.command) if hasattr(module, "command") else module.app.info.help
    assert told is not None
    assert told.splitlines()[0] == COMMANDS[name]


def test_every_command_module_is_in_the_table() -> None:
    (folder,) = commands.__path__
    modules = {path.stem for path in Path(folder).glob("*.py") if not path.stem.startswith("_")}
    assert modules == set(COMMANDS)


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    result = CliRunner().invoke(app, ["stauts"])
    assert result.exit_code == 64
    assert result.stdout == ""
    assert "Did you mean status?" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("baseline", "recrod"), "No such command 'recrod'. Did you mean 'record'?"),
        (("recipes", "lst"), "No such command 'lst'. Did you mean 'list'?"),
        (("baseline", "doctor"), "No such command 'doctor'"),
    ],
)
def test_a_mistyped_command_of_a_group_is_answered_from_the_group(
    words: tuple[str, ...], said: str
) -> None:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 64
    assert result.stderr.splitlines()[0] == f"specctl: error: {said}"
