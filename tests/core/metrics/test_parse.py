"""Sample lines, with prometheus_client's own parser as the oracle."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from speccli.core.metrics.parse import LineError, name_of, parse_sample, parse_value
from tests.core.pages import Engine, page

SPACE = st.sampled_from([" ", "  ", "\t", " \t"])
MAYBE_SPACE = st.sampled_from(["", "", " ", "\t"])
NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name != "__name__"
)
# What breaks parsers is likelier here than in any real label.
LABEL_VALUES = st.text(
    st.one_of(
        st.sampled_from(list('\\"n\n{},=# \t')),
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]),
    ),
    max_size=12,
)
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.integers(-(2**60), 2**60).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Inf", "1e0", "1E5", "+1.5e-3", ".5", "5.", "-0.0"]),
)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@st.composite
def lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=4))
    name = draw(NAMES)
    text = name
    empty: bool = draw(st.booleans())
    if labels or empty:
        pairs = [
            f"{draw(MAYBE_SPACE)}{key}{draw(MAYBE_SPACE)}={draw(MAYBE_SPACE)}"
            f'"{escaped(value)}"{draw(MAYBE_SPACE)}'
            for key, value in labels.items()
        ]
        trailing: bool = draw(st.booleans())
        comma = "," if pairs and trailing else ""
        text += f"{draw(MAYBE_SPACE)}{{{','.join(pairs)}{comma}}}{draw(MAYBE_SPACE)}"
        text += "" if draw(st.booleans()) else " "
    else:
        text += draw(SPACE)
    text += draw(NUMBERS)
    if draw(st.booleans()):
        text += draw(SPACE) + str(draw(st.integers(-(10**14), 10**14)))
    return text + draw(MAYBE_SPACE)


def oracle(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@given(lines())
@example('a{b="\\\\n"} 1')
@example('a{b="\\\\\\n\\""} 1')
@example('a{b="}",c="{,="} 1')
@example('a{b="x y",} NaN 1790000000000')
def test_a_line_reads_as_prometheus_client_reads_it(line: str) -> None:
    [(name, labels, value)] = oracle(line + "\n")
    series, ours = parse_sample(line.encode())
    assert (series.name, series.labels) == (name, labels)
    assert same(ours, value)


@given(lines())
def test_a_name_is_known_without_reading_its_line(line: str) -> None:
    assert name_of(line.encode()).decode() == parse_sample(line.encode())[0].name


@given(st.text(), st.binary())
def test_rubbish_is_a_line_error_and_nothing_else(text: str, raw: bytes) -> None:
    for line in (text.encode("utf-8", "surrogatepass"), raw):
        try:
            series, value = parse_sample(line)
        except LineError:
            continue
        assert series.name
        assert isinstance(value, float)


@given(lines(), st.data())
def test_a_line_without_its_end_is_refused_or_the_same_but_for_the_number(
    line: str, data: st.DataObject
) -> None:
    raw = line.encode()
    series, _ = parse_sample(raw)
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        cut_series, _ = parse_sample(cut)
    except LineError:
        return
    assert cut_series == series  # the number is why a reader must know whether a body is whole


def test_a_whole_page_reads_as_prometheus_client_reads_it() -> None:
    engines = [Engine(engine="0"), Engine(engine="1", k=5, model='a "b" {c}, \\d')]
    for engine in engines:
        engine.model = escaped(engine.model)
        engine.serve(random.Random(1), 20, 4)
    body = page(*engines)
    expected = oracle(body.decode())
    ours = []
    for line in body.splitlines():
        if name_of(line):
            series, value = parse_sample(line)
            ours.append((series.name, series.labels, value))
    assert sorted(ours, key=repr) == sorted(expected, key=repr)
    assert len(ours) > 100


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(b"1_000", None, id="python-underscores"),
        pytest.param(b"0x10", None, id="hexadecimal"),
        pytest.param(b"infinity", None, id="a-word-of-c-not-of-prometheus"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"1e", None, id="an-exponent-cut-off"),
        pytest.param(b"--1", None, id="two-signs"),
        pytest.param(b"\xd9\xa1", None, id="an-arabic-digit"),
        pytest.param(b"+Inf", math.inf, id="plus-inf"),
        pytest.param(b"-Inf", -math.inf, id="minus-inf"),
        pytest.param(b"1e0", 1.0, id="exponent"),
        pytest.param(b"1e999", math.inf, id="more-than-a-double-holds"),
    ],
)
def test_a_value_is_a_number_of_the_format(text: bytes, value: float | None) -> None:
    if value is None:
        with pytest.raises(LineError, match="is not a number"):
            parse_value(text)
    else:
        assert parse_value(text) == value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(b'a{b="c', "ends inside a label value", id="cut-in-a-label-value"),
        pytest.param(b'a{b="c"', "ends inside the labels", id="cut-after-a-label"),
        pytest.param(b"<!DOCTYPE html>", "is not a sample", id="html"),
        pytest.param(b"a", "is not a sample", id="no-value"),
        pytest.param(b'a{b="c" d="e"} 1', "cannot be read", id="no-comma"),
        pytest.param(b"a{b=c} 1", "cannot be read", id="no-quotes"),
        pytest.param(b"a 1 2 3", "is not a sample", id="too-much"),
        pytest.param(b"a one", "is not a number", id="a-word-for-a-number"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, words: str) -> None:
    with pytest.raises(LineError, match=words):
        parse_sample(line)


def test_a_label_of_megabytes_takes_no_more_than_a_moment() -> None:
    value = b"x" * 7_000_000
    series, _ = parse_sample(b'a{b="' + value + b'"} 1')
    assert len(series.labels["b"]) == len(value)
    with pytest.raises(LineError, match="ends inside a label value") as caught:
        parse_sample(b'a{b="' + value)
    assert len(str(caught.value)) < 200
