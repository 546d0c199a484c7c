"""What is no value is refused everywhere: NaN and infinity as a number, the empty text as any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from speccli.main import COMMANDS, app
from tests.support.recordings import specctl


def _parameters() -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of a command and a parameter of it, for every one there is."""
    root: Any = typer.main.get_command(app)
    for name in COMMANDS:
        yield from _of(root.get_command(None, name), (name,))


def _of(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _of(below, (*words, name))
    for parameter in command.params:
        yield words, parameter


EVERY = [(words, each) for words, each in _parameters() if not getattr(each, "is_flag", False)]
OPTIONS = [(*words, each.opts[0]) for words, each in EVERY if each.type.name.startswith("float")]
ARGUMENTS = [words for words, each in EVERY if each.param_type_name == "argument"]
TEXTS = [(*words, each.opts[0]) for words, each in EVERY if each.param_type_name == "option"]


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


@pytest.mark.parametrize("text", ["", " "], ids=["empty", "blank"])
@pytest.mark.parametrize("words", ARGUMENTS, ids=" ".join)
def test_an_empty_argument_is_refused(words: tuple[str, ...], text: str) -> None:
    answer = specctl(*words, text, "m") if words == ("draft", "check") else specctl(*words, text)
    assert (answer.exit_code, answer.stdout) == (64, "")
    said, hint = answer.stderr.splitlines()
    assert said.startswith("specctl: error: Invalid value for '")
    assert said.endswith(": it is empty. Leave it out, or say which")
    assert hint == f"hint: try `specctl {' '.join(words)} --help`"


@pytest.mark.parametrize("words", TEXTS, ids=" ".join)
def test_an_empty_option_is_refused(words: tuple[str, ...]) -> None:
    answer = specctl(*words, "")
    assert (answer.exit_code, answer.stdout) == (64, "")
    said, _ = answer.stderr.splitlines()
    assert said.startswith("specctl: error: ")
    assert "it is empty" in said or "Missing" in said


def test_a_command_that_takes_none_names_the_empty_one() -> None:
    assert "unexpected extra argument ''" in specctl("list", "").stderr
