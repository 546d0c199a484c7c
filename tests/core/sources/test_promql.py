"""Selectors and expressions; that Prometheus accepts them is tested in tests/e2e."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from speccli.core.engines.registry import ADAPTERS, WANTED
from speccli.core.engines.vllm import VLLM
from speccli.core.errors import UsageError
from speccli.core.sources import promql
from speccli.core.sources.promql import RULES_VERSION, Fleet, Matcher, Selector
from speccli.core.sources.recorded import (
    recorded,
    recorded_window,
    recording_rules,
    rules_text,
)

RULES = Path(__file__).parents[3] / "manifests" / "monitoring" / "recording-rules.yaml"


@pytest.mark.parametrize(
    ("text", "braces"),
    [
        (None, ""),
        ("", ""),
        ("{}", ""),
        ('namespace="prod"', '{namespace="prod"}'),
        ('{namespace="prod", pool=~"a|b"}', '{namespace="prod",pool=~"a|b"}'),
        ('pool!="x",', '{pool!="x"}'),
        (r'path=~"a\\.b\"c,d"', r'{path=~"a\\.b\"c,d"}'),
    ],
)
def test_a_selector_is_read(text: str | None, braces: str) -> None:
    assert Selector.parse(text).braces() == braces


@pytest.mark.parametrize(
    "text", ["prod", "namespace=prod", 'namespace="prod" pool="x"', 'x="y"} or up{a="b"', 'a="b']
)
def test_what_is_no_selector_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--selector") as caught:
        Selector.parse(text)
    assert "namespace=" in (caught.value.hint or "")


def test_labels_of_engines_are_not_asked_of_targets() -> None:
    selector = Selector.parse('namespace="prod",model_name="m",engine="0"')
    assert str(selector.of_targets()) == 'namespace="prod"'


def test_rules_serve_the_labels_they_keep() -> None:
    assert Selector.parse('namespace="prod",model_name="m"').fits_rules
    assert not Selector.parse('pool="chat"').fits_rules


def test_literal_values_are_escaped_twice() -> None:
    assert str(promql.one_of("instance", ["10.0.0.7:8000"])) == r'instance=~"10\\.0\\.0\\.7:8000"'
    assert str(promql.one_of("job", ['a"b', "c\\d"])) == r'job=~"a\"b|c\\\\d"'


@pytest.mark.parametrize(
    ("seconds", "text"), [(60, "60s"), (1.5, "1500ms"), (0.0001, "1ms"), (60.001, "60001ms")]
)
def test_durations(seconds: float, text: str) -> None:
    assert promql.duration(seconds) == text


def test_raw_samples_are_asked_for_by_every_name_that_is_read() -> None:
    engines = promql.raw_engines(Selector(), 60)
    targets = promql.raw_targets(Selector(), 60, ["vllm"])
    assert all(name in f"{engines}{targets}" for name in WANTED)
    assert "up" in targets


def test_a_fleet_is_asked_with_its_selector_everywhere() -> None:
    selector = Selector((Matcher("namespace", "=", "prod"),))
    fleet = Fleet(VLLM, selector, 60)
    parts = [*fleet.speculation(), *fleet.work(), *fleet.presence(), *fleet.outliers(6)]
    parts += [part for h in VLLM.histograms for part in fleet.buckets(h)]
    for _, expression in parts:
        assert expression.count("vllm:") == expression.count('namespace="prod"')


def test_a_simulator_outside_of_the_pool_does_not_make_it_simulated() -> None:
    asked = promql.census(Selector.parse('namespace="prod",model_name="m"'))
    said = asked.partition("group(specctl_simulated")[2]
    assert said.startswith('{namespace="prod"} and on (')
    assert 'num_requests_running{namespace="prod",model_name="m"}' in said


def test_one_address_in_two_clusters_is_two_engines() -> None:
    expressions = [expression for _, expression in Fleet(VLLM).gauges()]
    running = next(each for each in expressions if "requests_running" in each)
    assert "max by (cluster,job,namespace,pod,instance,engine," in running


def test_the_rules_file_is_up_to_date() -> None:
    assert RULES.read_text() == rules_text(), "run: make rules"


def test_rules_that_specctl_reads_change_with_their_version() -> None:
    """Old ones stay loaded in a Prometheus; they are told by the number alone."""
    groups = [g for g in recording_rules()["groups"] if g["name"] != "specctl-derived"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule.get("labels", {}).pop("version", None)
    digest = hashlib.sha256(json.dumps(groups, sort_keys=True).encode()).hexdigest()[:16]
    assert {RULES_VERSION: digest} == {"2": "5cf37afed02a7d04"}, (
        "raise RULES_VERSION, make rules, and write number and digest here"
    )


def test_every_rule_says_what_it_is_once() -> None:
    rules = [rule for group in recording_rules()["groups"] for rule in group["rules"]]
    named = [(rule["record"], *sorted(rule.get("labels", {}).items())) for rule in rules]
    assert len(set(named)) == len(named)
    slots = {
        (rule["labels"]["engine_kind"], rule["labels"]["slot"])
        for rule in rules
        if "slot" in rule.get("labels", {})
    }
    for adapter in ADAPTERS:
        fleet = Fleet(adapter)
        asked = [*fleet.speculation(), *fleet.work()]
        asked += [part for h in adapter.histograms for part in fleet.buckets(h)]
        assert {(adapter.kind, slot) for slot, _ in asked} <= slots


def test_recorded_windows() -> None:
    assert recorded_window(60) == 120
    assert recorded_window(130) == 120
    assert recorded_window(600) == 600
    assert "[480s]" in recorded(Selector(), "vllm", 600)
    assert "sum_over_time" not in recorded(Selector(), "vllm", 120)
