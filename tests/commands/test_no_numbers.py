"""NaN and infinity, which Typer takes for numbers, are refused by every option of every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from speccli.main import COMMANDS, app
from tests.support.recordings import specctl


def _options() -> Iterator[tuple[str, ...]]:
    """The words of a command and a float option of it, for every one there is."""
    root: Any = typer.main.get_command(app)
    for name in COMMANDS:
        yield from _of(root.get_command(None, name), (name,))


def _of(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _of(below, (*words, name))
    for parameter in command.params:
        if parameter.type.name.startswith("float"):
            yield (*words, parameter.opts[0])


OPTIONS = list(_options())


def test_the_walk_finds_options_of_commands_and_of_groups() -> None:
    assert {
        ("sim", "--speed"),
        ("status", "--floor"),
        ("bench", "run", "--temperature"),
        ("bench", "compare", "--target-speedup"),
        ("kernels", "check", "--soak"),
        ("draft", "train", "--minutes"),
    } <= set(OPTIONS)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_what_is_no_number_is_refused(words: tuple[str, ...], text: str) -> None:
    *command, option = words
    answer = specctl(*command, f"{option}={text}")
    assert (answer.exit_code, answer.stdout) == (64, "")
    said, hint = answer.stderr.splitlines()
    assert said.startswith(f"specctl: error: Invalid value for '{option}")
    assert hint == f"hint: try `specctl {' '.join(command)} --help`"
