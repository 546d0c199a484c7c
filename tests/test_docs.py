"""The documentation is checked: what it shows exists, and what exists is in it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from speccli.core.config import Settings
from speccli.core.stats.measures import Metrics
from speccli.main import COMMANDS
from tests.tui.shown import NAMES, ROOT, SHOWN, TAKEN

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shown_is_the_picture_tested(name: str) -> None:
    shown = (SHOWN / f"{name}.svg").read_bytes()
    assert shown == (TAKEN / f"{NAMES[name]}.svg").read_bytes(), "run scripts/pictures"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"`{command}`" in (ROOT / "README.md").read_text()


def test_the_readme_says_how_to_call_it_before_it_calls_it() -> None:
    text = (ROOT / "README.md").read_text()
    told = text.index(". .venv/bin/activate")
    assert ".venv/bin/specctl" in text[told : told + 100]
    assert told < text.index("\nspecctl ")
    assert re.search(r"^VENV := \.venv$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_what_make_is_told_to_make_it_makes() -> None:
    makes = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    written = [*PAGES, *(ROOT / "benchmarks").rglob("*.md"), *(ROOT / "benchmarks/lab").iterdir()]
    told = {
        (page.name, target)
        for page in written
        if page.is_file() and page.suffix in {"", ".md", ".py", ".sh"}
        for target in re.findall(r"`make ([a-z][a-z-]*)", page.read_text().replace("\\`", "`"))
    }
    assert told
    assert not {(page, target) for page, target in told if target not in makes}


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    missing = [field.name for field in fields(Settings) if f"`{field.name}`" not in text]
    assert not missing


def test_every_metric_is_in_the_contract() -> None:
    text = (ROOT / "docs" / "contracts.md").read_text()
    missing = [field.name for field in fields(Metrics) if f"`{field.name}`" not in text]
    assert not missing


def test_every_schema_is_in_the_contract() -> None:
    sources = (path.read_text() for path in (ROOT / "speccli").rglob("*.py"))
    schemas = {name for text in sources for name in re.findall(r'"(specctl\.\w+/v\d+)"', text)}
    text = (ROOT / "docs" / "contracts.md").read_text()
    assert schemas
    assert not {schema for schema in schemas if schema not in text}


def test_the_headline_figures_are_the_reports() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line[:3] == "| ◐"]
    report = (ROOT / "docs" / "report" / "README.md").read_text().splitlines()
    assert rows
    assert not [row for row in rows if row not in report]
