"""When recording rules are read, and what their series come to where their version changed."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.sources.census import take_census
from speccli.core.sources.past import _expressions
from speccli.core.sources.promapi import Answer, Series
from speccli.core.sources.promql import RULES_VERSION, Matcher, Selector
from speccli.core.sources.recorded import complete, recorded
from tests.support.real import absent

OLD, NEW = "1", "3"
RATE = 'specctl:drafts:rate2m{slot="drafts",engine_kind="vllm"}'
INFO = "specctl:recording_rules:info"


def info(values: str, version: str = RULES_VERSION, kind: str = "vllm") -> dict[str, str]:
    return {"series": f'{INFO}{{version="{version}",engine_kind="{kind}"}}', "values": values}


# Every 30 s. The file of version 1 was replaced after 12.5 minutes, and the rates went on.
CHANGED = [info("1x25 stale", OLD), info("_x26 1x90")]
BOTH = [info("1x120", OLD), info("1x120")]


def proven(
    folder: Path, given: Sequence[dict[str, str]], *cases: tuple[str, str, float | None]
) -> None:
    """promtool: an expression, a time, and the one value it must have then (None: none)."""
    tool = shutil.which("promtool")
    if tool is None:
        absent("promtool is not installed: apt-get install prometheus")
    asked: list[dict[str, Any]] = [
        {
            "expr": expression,
            "eval_time": at,
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expression, at, value in cases
    ]
    rates = {"series": RATE, "values": "1000x120"}
    test = {"interval": "30s", "input_series": [rates, *given], "promql_expr_test": asked}
    tests = {"rule_files": [], "evaluation_interval": "30s", "tests": [test]}
    (folder / "t.yaml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [tool, "test", "rules", "t.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real_prometheus
@pytest.mark.parametrize("given", [CHANGED, [info("1x120")]], ids=["changed", "as-ever"])
def test_a_rate_is_itself_over_any_window_whatever_version_recorded_it(
    given: list[dict[str, str]], tmp_path: Path
) -> None:
    windows = [180.0, 300.0, 600.0, 960.0]
    asked = [f"sum({recorded(Selector(), 'vllm', window_s)})" for window_s in windows]
    proven(tmp_path, given, *((each, "20m", 1000.0) for each in asked))


@pytest.mark.real_prometheus
def test_a_model_that_came_in_the_middle_counts_as_nothing_before(tmp_path: Path) -> None:
    late = RATE.replace("}", ',model_name="late"}')
    given = [*CHANGED, {"series": late, "values": "_x31 1000x60"}]
    selector = Selector((Matcher("model_name", "=", "late"),))
    asked = f"sum({recorded(selector, 'vllm', 960)})"
    # There at 10 of the 29 evaluations from 6 to 20 minutes.
    proven(tmp_path, given, (f"round({asked},0.1)", "20m", 344.8))


MINUTE = 60.0


@pytest.mark.real_prometheus
@pytest.mark.parametrize(
    ("given", "window_s", "asked"),
    [
        pytest.param([info("1x120")], 120, {"30s": 30, "20m": 1200}, id="new-and-short"),
        pytest.param([info("1x120")], 960, {"14m": None, "15m": 900}, id="new-and-long"),
        pytest.param(
            CHANGED, 120, {"12m": None, "13m": None, "18m": None, "19m": 19 * MINUTE}, id="short"
        ),
        pytest.param(
            CHANGED, 960, {"20m": None, "29m": None, "32m": None, "33m": 33 * MINUTE}, id="long"
        ),
        pytest.param(BOTH, 120, {"10m": None, "50m": None}, id="both"),
        pytest.param([info("1x120", OLD)], 120, {"50m": None}, id="old"),
        pytest.param([info("1x120", NEW)], 120, {"50m": None}, id="newer"),
        pytest.param([], 120, {"50m": None}, id="none"),
        pytest.param(
            [info("1x120"), info("_x40 1x60", kind="sglang")],
            600,
            {"25m": None, "29m": 29 * MINUTE},
            id="a-kind-that-came-later",
        ),
    ],
)
def test_rules_are_read_once_ours_cover_the_window_and_no_others_are_in_it(
    given: list[dict[str, str]], window_s: float, asked: dict[str, float | None], tmp_path: Path
) -> None:
    proven(tmp_path, given, *((complete(window_s), at, value) for at, value in asked.items()))


@pytest.mark.real_prometheus
def test_charts_begin_where_our_version_does(tmp_path: Path) -> None:
    (asked,) = _expressions(Selector(), [], 30.0, rules=True)
    points = f"sum(count_over_time(({asked})[15m:30s]))"
    proven(tmp_path, CHANGED, (points, "12m", None), (points, "15m", 5.0), (points, "35m", 31.0))


Loaded = tuple[str, str]
"""Version and kind."""


class Prometheus:
    """Knows an engine, and rules in the order given."""

    def __init__(self, *rules: Loaded, engines: Sequence[str] = ("vllm",)) -> None:
        self._series = [
            *({"slot": f"engines.{kind}"} for kind in engines),
            *({"slot": "rules", "version": v, "engine_kind": kind} for v, kind in rules),
        ]

    async def query(self, _: str, **__: object) -> Answer:
        return Answer(tuple(Series(labels, [(0.0, "1")]) for labels in self._series))


OURS = ((RULES_VERSION, "vllm"), (RULES_VERSION, "sglang"))
THEIRS = ((OLD, "vllm"), (OLD, "sglang"))
WRITTEN = "`specctl alert rules --out DIR` writes the file to load instead"


def orders(rules: Sequence[Loaded]) -> list[tuple[Loaded, ...]]:
    return list(itertools.permutations(rules))


@pytest.mark.parametrize("rules", orders(OURS))
async def test_rules_of_our_version_are_read(rules: tuple[Loaded, ...]) -> None:
    census = await take_census(Prometheus(*rules), Selector())  # type: ignore[arg-type]
    assert (census.rules, census.rules_note) == (True, None)


@pytest.mark.parametrize("rules", orders((*OURS, *THEIRS)))
async def test_with_another_version_beside_them_they_are_not_in_any_order(
    rules: tuple[Loaded, ...],
) -> None:
    census = await take_census(Prometheus(*rules), Selector())  # type: ignore[arg-type]
    assert not census.rules
    assert census.rules_note == (
        f"recording rules there are versions {OLD} and {RULES_VERSION}, "
        f"this specctl reads {RULES_VERSION}: unload version {OLD}"
    )


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_rules_of_another_version_alone_are_told_with_what_to_do(version: str) -> None:
    census = await take_census(Prometheus((version, "vllm")), Selector())  # type: ignore[arg-type]
    assert not census.rules
    assert census.rules_note == (
        f"recording rules there are version {version}, this specctl reads {RULES_VERSION}: "
        f"{WRITTEN}"
    )
    assert census.note is None, "it would make every engine partial"


async def test_without_rules_there_is_nothing_to_say() -> None:
    census = await take_census(Prometheus(), Selector())  # type: ignore[arg-type]
    assert (census.rules, census.rules_note) == (False, None)


async def test_rules_that_lack_a_kind_that_is_there_are_not_read() -> None:
    there = Prometheus((RULES_VERSION, "vllm"), engines=("vllm", "sglang"))
    assert not (await take_census(there, Selector())).rules  # type: ignore[arg-type]


async def test_a_selector_that_no_rules_fit_hears_nothing_of_them() -> None:
    selector = Selector((Matcher("pool", "=", "a"),))
    census = await take_census(Prometheus(*THEIRS), selector)  # type: ignore[arg-type]
    assert (census.rules, census.rules_note) == (False, None)
