"""Numbers in windows of any width: each one whole, whatever has to go below."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from speccli.core.bench.form import read
from speccli.main import app
from speccli.tables.bench_run import run_table
from speccli.tables.kernels import kernels_table
from speccli.tables.whole import Whole

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
LAB = EVIDENCE / "lab-h200"
FLEET = Path(__file__).parents[1] / "data" / "golden" / "fleet.jsonl"
COMMANDS = {
    "compare": ("bench", "compare", str(LAB / "8b-arms.json")),
    "compare of sets": ("bench", "compare", str(LAB / "32b-sets.json")),
    "schedule": ("bench", "schedule", str(EVIDENCE / "bench-cpu-135m-k.json")),
    "lossless": ("bench", "lossless", str(LAB / "8b-lossless.json")),
    "plan": ("plan", "llama-3.3-70b-eagle3-h200"),
    "plan measured": (
        *("plan", "llama-3.3-70b-eagle3-h200", "--set", "draft.K=5"),
        *("--measured", str(LAB / "70b-fp8.json")),
        *("--measured", str(LAB / "70b-eagle3-fp8.json")),
    ),
    "recipes": ("recipes", "list"),
    "cost": ("cost", "--replay", str(FLEET), "--gpu-hour-usd", "3.5"),
    "baselines": ("baseline", "list"),
}


def _numbers(text: str) -> set[str]:
    """Words that are numbers, with their signs, brackets and units; names with a digit are none."""
    held = re.sub(r"\x1b\[[\d;]*m", "", text).split()
    return {each for each in held if re.fullmatch(r"[^\w/]*\d[^a-zA-Z/-]*", each)}


def _drawn(what: object, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(what)
    return out.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_cuts_a_number(name: str) -> None:
    def shown(width: int) -> str:
        return CliRunner().invoke(app, COMMANDS[name], env={"COLUMNS": str(width)}).stdout

    whole = _numbers(shown(240))
    assert len(whole) > 5
    for width in (120, 80, 60, 40):
        text = shown(width)
        assert whole <= _numbers(text), (width, whole - _numbers(text))
        assert text.count("…") <= shown(240).count("…")


def test_a_bench_and_kernel_checks_cut_none() -> None:
    document = json.loads((LAB / "kernels.json").read_text())
    for made in (run_table(read(LAB / "8b-arms.json")), kernels_table(document)):
        whole = _numbers(_drawn(made, 240))
        for width in (80, 60, 40):
            assert whole <= _numbers(_drawn(made, width)), whole - _numbers(_drawn(made, width))


def _table(keys: int = 1) -> Whole:
    made = Whole(keys=keys, box=None, padding=(0, 2, 0, 0))
    made.add_column("name", no_wrap=True)
    for name in ("first", "second"):
        made.add_column(name, justify="right")
    made.add_column("why")
    made.add_row("alpha", Text("1.78 [1.49, 2.12]"), "−126 [−234, −20]", "because of it")
    return made


def test_where_there_is_room_nothing_moves() -> None:
    assert len(_drawn(_table(), 60).splitlines()) == 2


def test_columns_go_below_with_their_row_named_again() -> None:
    text = _drawn(_table(), 30)
    assert [line.split()[0] for line in text.splitlines() if line[:1].strip()] == [
        *("name", "alpha") * 3
    ]
    assert _numbers(text) == _numbers(_drawn(_table(), 200))


def test_where_no_number_fits_beside_its_name_a_row_is_a_paragraph() -> None:
    text = _drawn(_table(), 20)
    assert "first  1.78" in text
    assert _numbers(text) == _numbers(_drawn(_table(), 200))
