"""A baseline and its file say the same; keys differ by named parts."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.baseline import Baseline, Key, differences
from speccli.core.baseline.model import BatchLatency, BatchSpeed, dumps, loads
from speccli.core.baseline.reference import REFERENCES
from speccli.core.errors import UsageError
from speccli.core.state import StateError, ensure_writable, state_folder, write_atomic
from speccli.core.stats.drift import Dispersion
from speccli.core.stats.mix import PromptBin
from tests.support.golden import FOLDER, assert_golden

RATES = st.floats(0, 1)
SIZES = st.floats(1, 1e12)
WORDS = st.none() | st.text(min_size=1, max_size=5)
SPEEDS = st.lists(st.builds(BatchSpeed, SIZES, SIZES, SIZES), max_size=2).map(tuple)
PAIRS = st.none() | st.tuples(SIZES, SIZES)
SCATTER = st.builds(Dispersion, st.floats(1e-4, 1), SIZES, RATES, SIZES, st.integers(0, 99), SIZES)
KEYS = st.builds(Key, version=WORDS, target=WORDS, draft=WORDS, k=st.none() | st.integers(1, 9))
BASELINES = st.builds(
    Baseline,
    name=st.text(),
    key=KEYS,
    rate=RATES,
    length=SIZES,
    positions=st.lists(RATES, max_size=4).map(tuple),
    drafts=SIZES,
    tolerance=st.none() | RATES,
    prompt_tokens=st.none() | SIZES,
    bins=st.lists(st.builds(PromptBin, SIZES, SIZES, SIZES, RATES, SIZES, st.integers(1, 9)))
    .filter(lambda bins: len(bins) < 4)
    .map(tuple),
    fleet=SCATTER,
    engine=SCATTER,
    latency=st.lists(
        st.builds(BatchLatency, st.just("1-2"), st.integers(0, 9), PAIRS, PAIRS, PAIRS), max_size=2
    ).map(tuple),
    speed=SPEEDS,
    plain=SPEEDS,
)


@given(BASELINES)
def test_its_file_is_all_of_it(baseline: Baseline) -> None:
    assert loads(dumps(baseline), "x") == baseline


WHOLE = Baseline(
    name="prod",
    key=Key("vllm", "0.32.0", "v1", "m", "a1", "m-eagle3", "b2", "eagle3", 3, "temperature=0"),
    rate=0.5625,
    length=2.6875,
    positions=(0.75, 0.5625, 0.375),
    drafts=1_000_000,
    created="2026-11-18T00:00:00+00:00",
    source="scrape",
    prompt_tokens=512.5,
    output_tokens=128.0,
    bins=(PromptBin(430.5, 512.0, 480.0, 0.575, 400_000, 40),),
    fleet=Dispersion(0.125, 4.0, 0.0075, 50_000, 288, 86_400),
    engine=Dispersion(0.125, 5.0, 0.01, 10_000, 1152, 86_400),
    latency=(BatchLatency("9-16", 5000, (0.01, 0.02), (0.05, 0.1), (0.2, 0.5)),),
    speed=(BatchSpeed(12.5, 1500.0, 3600.0),),
    plain=(BatchSpeed(12.0, 900.0, 600.0),),
)


def test_the_form_on_disk_is_the_contracts() -> None:
    """Other machines keep such files: what is written today must be read for ever."""
    assert_golden("baseline.json", dumps(WHOLE))
    assert loads((FOLDER / "baseline.json").read_text(), "x") == WHOLE


@pytest.mark.parametrize("each", REFERENCES, ids=lambda each: each.name)
def test_the_references_agree_with_themselves(each: Baseline) -> None:
    assert loads(dumps(each), "x") == each
    assert sum(each.positions) + 1 == pytest.approx(each.length, rel=0.01)
    assert "public reference" in each.source


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    ),
    st.sampled_from(["acceptance", "key", "by_prompt", "dispersion", "traffic", "speed", "name"]),
)
def test_a_file_that_is_wrong_somewhere_is_at_most_a_usage_error(value: object, part: str) -> None:
    whole = json.loads(dumps(REFERENCES[0])) | {part: value}
    with suppress(UsageError):
        loads(json.dumps(whole), "x")


def test_only_what_both_tell_is_compared() -> None:
    was, now = Key(version="1", k=3, draft="d"), Key(version="2", k=3, runner="v2")
    assert list(map(str, differences(was, now))) == ["version 1 -> 2"]


def test_the_state_folder(tmp_path: Path) -> None:
    assert state_folder(tmp_path, {"SPECCTL_STATE": "/b"}) == tmp_path
    assert state_folder(None, {"SPECCTL_STATE": "/b", "HOME": "/h"}) == Path("/b")
    assert state_folder(None, {"XDG_STATE_HOME": "/c"}) == Path("/c/specctl")
    assert state_folder(None, {"HOME": "/h"}) == Path("/h/.local/state/specctl")
    with pytest.raises(UsageError, match="HOME is not set"):
        state_folder(None, {})


@pytest.mark.parametrize(
    ("happens", "told", "words"),
    [
        (OSError(28, "No space left on device"), StateError, "No space left"),
        (KeyboardInterrupt("told"), KeyboardInterrupt, "told"),
    ],
    ids=["full", "ctrl-c"],
)
def test_a_write_that_fails_leaves_what_was_there(
    happens: BaseException,
    told: type[BaseException],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, "old")

    def fails(handle: int) -> None:
        raise happens

    monkeypatch.setattr("speccli.core.state.os.fsync", fails)
    with pytest.raises(told, match=words):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_place_is_tried_before_the_work_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "x.json"
    ensure_writable(path)
    assert list(path.parent.iterdir()) == []
    path.write_text("kept")
    ensure_writable(path)
    assert path.read_text() == "kept"
    with pytest.raises(UsageError, match=r"cannot write .*new: Is a directory"):
        ensure_writable(path.parent)
    with pytest.raises(UsageError, match="Not a directory"):
        ensure_writable(path / "below")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("speccli.core.state.os.fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*x\.json: No space left on device"):
        ensure_writable(path)
    assert [each.name for each in path.parent.iterdir()] == ["x.json"]
