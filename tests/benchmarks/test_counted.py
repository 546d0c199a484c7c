"""docs/acceptance.md says what the committed evidence holds."""

from __future__ import annotations

import json
import re

import counted
import pytest

from speccli.core.bench.form import read

TEXT = counted.DOC.read_text(encoding="utf-8")
PROSE = re.sub(r"<!-- (\w+) -->.*?<!-- end -->", "", TEXT, flags=re.DOTALL)


NUMBER = r"(?<![\d.,])\d[\d,]*(?:\.\d+)?(?![\d])"


@pytest.mark.parametrize("name", counted.TABLES)
def test_its_tables_are_the_evidence(name: str) -> None:
    made = "\n".join(counted.TABLES[name]())
    assert f"<!-- {name} -->\n\n{made}\n\n<!-- end -->" in TEXT


def _plain(number: str) -> str:
    return f"{float(number):.3f}" if "." in number else number


def _known() -> set[str]:
    """Every number of the tables, and of the files that prose tells of, whole and to 3 decimals."""
    tables = " ".join(line for table in counted.TABLES.values() for line in table())
    found = set(re.findall(NUMBER, tables))
    for name in ("cpu-drift-delay.json", "cpu-lossless-one-verdict.json"):
        text = (counted.EVIDENCE / name).read_text(encoding="utf-8")
        found |= {_plain(each) for each in re.findall(NUMBER, text)}
    return found


def _untold(prose: str) -> set[str]:
    known = _known()
    told = set(re.findall(rf"\b0\.\d{{3}}\b|{NUMBER}(?= drafts)", prose))
    assert len(told) >= 8
    return {figure for figure in told if figure not in known}


def test_its_prose_has_no_figure_that_the_evidence_has_not() -> None:
    assert _untold(PROSE) == set()


@pytest.mark.parametrize("wrong", ["0.124", "29 drafts", "3,97 drafts", "721,4 drafts"])
def test_a_part_of_a_number_is_not_a_number_of_the_evidence(wrong: str) -> None:
    assert _untold(f"{PROSE} {wrong}") == {wrong.removesuffix(" drafts")}


def test_a_difference_stands_in_prose_with_the_interval_that_the_tables_give_it() -> None:
    """No equality is told beyond its interval."""
    tables = " ".join(line for table in counted.TABLES.values() for line in table())
    pairs = re.findall(r"[-+]?\d\.\d{3} ± \d\.\d{3}", PROSE)
    assert len(pairs) >= 5
    assert [each for each in pairs if f" {each} " not in tables] == []
    assert "as much" not in PROSE.partition("## How soon")[0].replace(
        "by as much as its logits", ""
    )


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
