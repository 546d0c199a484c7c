"""docs/acceptance.md says what the committed evidence holds."""

from __future__ import annotations

import json
import re

import counted
import pytest

from speccli.core.bench.form import read

TEXT = counted.DOC.read_text(encoding="utf-8")
PROSE = re.sub(r"<!-- (\w+) -->.*?<!-- end -->", "", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("name", counted.TABLES)
def test_its_tables_are_the_evidence(name: str) -> None:
    made = "\n".join(counted.TABLES[name]())
    assert f"<!-- {name} -->\n\n{made}\n\n<!-- end -->" in TEXT


def test_its_prose_has_no_figure_that_the_evidence_has_not() -> None:
    known = " ".join(line for table in counted.TABLES.values() for line in table())
    for name in ("cpu-drift-delay.json", "cpu-lossless-one-verdict.json"):
        known += (counted.EVIDENCE / name).read_text(encoding="utf-8")
    told = set(re.findall(r"\b0\.\d{3}\b|\b[\d,]+(?= drafts)", PROSE))
    assert len(told) >= 8
    assert {figure for figure in told if figure not in known} == set()


def test_rows_are_of_the_cpu_and_of_the_same_prompts() -> None:
    asked = []
    for file in counted.EVIDENCE.glob("cpu-mixture-*.json"):
        result = read(file)
        assert not result.simulated
        assert result.provenance.gpu is None
        assert {arm.engine["version"] for arm in result.arms} == {"0.32.0"}
        assert [row.state for row in result.rows] == ["ok"] * len(result.rows)
        asked += [set(row.samples.prompt) for row in result.rows]
    assert len(asked) >= 7
    assert all(each == asked[0] for each in asked)


def test_what_answers_told_is_within_what_the_counters_showed() -> None:
    for file in counted.EVIDENCE.glob("cpu-mixture-*.json"):
        for row in read(file).rows:
            told, counters = row.acceptance, row.acceptance.counters
            assert told.source == "per-request"
            assert told.rate.reason is None, "they contradict each other"
            assert counters is not None
            own = sum(row.samples.accepted or ())
            assert own == told.accepted_tokens
            assert own < counters.accepted_tokens, "the warm-up's are none of the row's"


def test_an_interval_is_that_of_a_ratio_of_sums() -> None:
    one = {"a": (10, 30), "b": (20, 30), "c": (15, 30), "d": (15, 30)}
    other = {key: (accepted - 3, drafted) for key, (accepted, drafted) in one.items()}
    assert counted.rate(one) == 0.5
    value, width = counted.difference(one, other)
    assert value == pytest.approx(0.1)
    assert width == pytest.approx(0.0), "every prompt lost the same"
    # by hand: deviations -5, 5, 0, 0 of 120 tokens, t(3) = 3.182
    assert counted.half(counted.influence(one)) == pytest.approx(
        3.182 * (4 / 3 * 50) ** 0.5 / 120, rel=1e-3
    )


def test_no_alert_began_on_traffic_that_the_head_knows() -> None:
    told = json.loads((counted.EVIDENCE / "cpu-drift-delay.json").read_text(encoding="utf-8"))
    known = [each for each in told["phases"] if each["phase"].startswith("known")]
    assert len(known) >= 3
    assert [each["fired"] for each in known] == [None] * len(known)


def test_where_answers_part_the_baseline_has_both_tokens_level() -> None:
    text = (counted.EVIDENCE / "cpu-lossless-one-verdict.json").read_text(encoding="utf-8")
    (arm,) = json.loads(text)["arms"]
    gaps = [each["gap"] for each in arm["partings"]]
    assert arm["kinds"] == {"numeric": 10}
    assert len(gaps) == 10
    assert max(gaps) == 0.125
    assert gaps.count(0.0) == 5
