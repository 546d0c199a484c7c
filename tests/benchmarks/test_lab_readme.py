"""What the lab's README names is there, and what there is it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driver import room
from driver.groups import GROUPS
from driver.main import PHASES

ROOT = Path(__file__).parents[2]
LAB = ROOT / "benchmarks/lab"
README = (LAB / "README.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    table = README.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [row.split("|")[1:-1] for row in table.splitlines()[2:]]


def first_cells(heading: str) -> str:
    """Its first column."""
    return " ".join(cells[0] for cells in rows(heading))


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_is_explained(phase: str) -> None:
    assert re.search(rf"`{phase}( GROUP)?`", first_cells("phase"))


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_is_in_the_table(group: str) -> None:
    assert f"`{group}`" in first_cells("group")


def test_groups_take_the_memory_that_the_table_says() -> None:
    for names, gib, *_ in rows("group"):
        groups = [GROUPS[name] for name in re.findall(r"`([^`]+)`", names)]
        told = [int(size) for size in re.findall(r"(?:2 × )?(\d+)", gib)]
        assert told == [round(room.need(group)) for group in groups]
        assert ("2 ×" in gib) == (groups[0].gpus == 2)


def test_every_variable_is_in_the_table() -> None:
    sources = [*LAB.rglob("*.py"), LAB / "run", LAB / "pack", LAB / "unpack"]
    read = {name for file in sources for name in re.findall(r"\bLAB_[A-Z_]+", file.read_text())}
    assert {"LAB_DIR", "LAB_ENGINE_PATH"} <= read
    assert {name for name in read if f"`{name}`" not in first_cells("variable")} == set()


def test_programs_and_folders_that_it_names_are_there() -> None:
    named = set(re.findall(r"(?:benchmarks/lab|scripts|docs)/[\w./-]*\w", README))
    assert "benchmarks/lab/published.py" in named
    assert {path for path in named if not (ROOT / path).exists()} == set()
