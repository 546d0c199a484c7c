"""Every code has its section in the docs, every rule file its place in the register."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import Field, fields
from pathlib import Path

import pytest

from speccli.core import findings
from speccli.core.findings import CODES, RULES, Thresholds
from speccli.core.findings.base import Rule

DOCS = (Path(__file__).parents[3] / "docs" / "findings.md").read_text()
CONTRACT = [
    "SPEC_NOT_ACTIVE",
    "ZERO_ACCEPTANCE",
    "LOW_ACCEPTANCE",
    "ACCEPTANCE_DRIFT",
    "ACCEPTANCE_SLOPE",
    "PARALLEL_DRAFT_CLIFF",
    "DRAFT_BEHIND_TARGET",
    "BASELINE_KEY_MISMATCH",
    "BATCH_COLLAPSE",
    "QUEUE_WAIT",
    "P99_REGRESSION",
    "COST_OVER",
    "STALLED",
    "ENGINE_DOWN",
    "METRICS_MISSING",
    "METRICS_INCONSISTENT",
    "VERSION_SKEW",
    "NO_TRAFFIC",
    "PARTIAL_DATA",
]
"""Other programs rely on these; a code, once shipped, keeps its meaning."""


def section(code: str) -> str:
    """The text under a code's heading."""
    found = re.search(rf"^## {code}\n(.*?)(?=^## |\Z)", DOCS, re.DOTALL | re.MULTILINE)
    return found.group(1) if found else ""


def test_the_codes_are_the_contracts() -> None:
    assert list(CODES) == CONTRACT


@pytest.mark.parametrize("code", CONTRACT)
def test_every_code_says_what_it_means_how_it_is_decided_and_what_to_do(code: str) -> None:
    text = section(code)
    for part in ("**Means.**", "**Decided.**", "**Do.**"):
        assert part in text, f"docs/findings.md: {code} lacks {part}"


def test_the_docs_know_no_other_code() -> None:
    headings = re.findall(r"^## ([A-Z0-9_]{4,})$", DOCS, re.MULTILINE)
    assert sorted(headings) == sorted(CONTRACT)


def test_every_rule_emits_a_documented_code_once() -> None:
    emitted = [rule.code for rule in RULES]
    assert set(emitted) <= set(CODES)
    assert len(set(emitted)) == len(emitted)


def test_a_code_without_a_rule_says_so() -> None:
    for code in set(CODES) - {rule.code for rule in RULES}:
        assert "Not raised yet" in section(code), code
    for rule in RULES:
        assert "Not raised yet" not in section(rule.code), rule.code


def test_every_rule_file_is_registered_under_its_own_name() -> None:
    names = [module.name for module in pkgutil.iter_modules(findings.__path__)]
    files = [name for name in names if not name.startswith("_") and name != "base"]
    for name in files:
        rule = importlib.import_module(f"speccli.core.findings.{name}").RULE
        assert isinstance(rule, Rule)
        assert rule in RULES, f"{name}.py is not in RULES"
        assert rule.code == name.upper()
    assert len(files) == len(RULES)


@pytest.mark.parametrize("field", fields(Thresholds), ids=lambda field: field.name)
def test_every_threshold_is_in_the_docs_with_its_default(field: Field[object]) -> None:
    row = re.search(rf"^\| `{field.name}` \| ([^|]+) \|", DOCS, re.MULTILINE)
    assert row, f"docs/findings.md has no row for {field.name}"
    default = f"{field.default:g}" if isinstance(field.default, int | float) else "none"
    assert row.group(1) == default
