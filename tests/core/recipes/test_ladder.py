"""The section `fallback`: one clear line for each way to get it wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.errors import UsageError
from speccli.core.recipes.load import load

BASE = "llama-3.3-70b-eagle3-h200"


def _load(tmp_path: Path, fallback: dict[str, Any], **more: Any) -> Any:
    file = tmp_path / "pool.yaml"
    given = {"extends": BASE, **more, "fallback": fallback}
    file.write_text(yaml.safe_dump(given, sort_keys=False))
    return load(str(file))


@pytest.mark.parametrize(
    ("fallback", "words"),
    [
        ({"cool_down": "soon"}, "fallback.cool_down is 'soon', which is no duration"),
        ({"hold": "5 weeks"}, "fallback.hold is '5 weeks', which is no duration"),
        ({"restore_after": ""}, "fallback.restore_after is '', which is no duration"),
        ({"quiet": ["22-06"]}, "fallback.quiet.0 is '22-06'; write HH:MM-HH:MM"),
        ({"quiet": ["01:00-02:00", "25:00-26:00"]}, "fallback.quiet.1 is '25:00-26:00'"),
        ({"time_zone": "Europe/Atlantis"}, "fallback.time_zone is 'Europe/Atlantis', which is not"),
        ({"rungs": [{"K": 3}]}, "fallback.rungs.0 is the recipe's draft itself; write a K under"),
        ({"rungs": [{"K": 5}]}, "fallback.rungs.0 is the recipe's draft itself"),
        ({"rungs": [{"method": "eagle3"}]}, "fallback.rungs.0 is the recipe's draft itself"),
        (
            {"rungs": [{"schedule": [[1, 16, 5], [17, 64, 1]]}]},
            "fallback.rungs.0 drafts 5 tokens at most, and draft.K is 3",
        ),
        ({"rungs": [{"schedule": [[2, 16, 3]]}]}, "has a schedule that no engine takes"),
        ({"rungs": [{"method": "none", "K": 1}]}, "fallback.rungs.0 is no speculation"),
        ({"rungs": [{"method": "ngram", "model": "x"}]}, "is ngram, which has no model"),
        ({"rungs": [{"method": "draft_model"}]}, "is draft_model and names no model"),
        (
            {"rungs": [{"method": "none"}, {"method": "ngram"}]},
            "fallback.rungs.1 is ngram after none; from the smallest retreat to the largest",
        ),
        ({"rungs": [{"method": "ngram"}, {"K": 1}]}, "is eagle3 with K = 1 after ngram"),
        ({"rungs": [{"K": 1}, {"K": 2}]}, "fallback.rungs.1 has no smaller K than the rung before"),
        (
            {"rungs": [{"method": "none"}, {"method": "none"}]},
            "fallback.rungs.1 is none a second time",
        ),
        ({"standby": "suffix"}, "fallback.standby is suffix, which is none of the rungs; one of"),
        (
            {"rungs": [{"method": "none"}], "standby": "ngram"},
            "fallback.standby is ngram, which is none of the rungs; one of none",
        ),
        ({"rungs": [{"k": 1}]}, "unknown key fallback.rungs.0.k; did you mean K?"),
        ({"moves_per_hour": 0}, "fallback.moves_per_hour is 0; at least 1"),
    ],
)
def test_a_wrong_ladder_is_one_clear_line(
    tmp_path: Path, fallback: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _load(tmp_path, fallback)
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert "pool.yaml:" in caught.value.message


@pytest.mark.parametrize(
    "fallback",
    [
        {"rungs": [{"K": 2}, {"K": 1}, {"method": "ngram", "K": 5}, {"method": "none"}]},
        {"rungs": [{"schedule": [[1, 32, 3], [33, 128, 0]]}, {"K": 1}, {"method": "none"}]},
        {"rungs": [{"method": "draft_model", "model": "small"}, {"method": "ngram"}]},
        {"rungs": [{"K": 1}, {"method": "none"}], "standby": "eagle3"},
        {"quiet": ["22:00-06:00", "12:00-13:00"], "time_zone": "Europe/Berlin"},
        {"hold": "90", "cool_down": "1.5h", "restore_after": "1d"},
        {"standby": "none"},
    ],
)
def test_a_ladder_that_descends_is_taken(tmp_path: Path, fallback: dict[str, Any]) -> None:
    assert _load(tmp_path, fallback).speculates


def test_the_standby_is_told_once(tmp_path: Path) -> None:
    pools = {"standby": {"draft": {"method": "none"}}}
    with pytest.raises(UsageError, match="is ngram, and pools.standby.draft none: write one"):
        _load(tmp_path, {"standby": "ngram"}, pools=pools)


def test_a_head_is_no_retreat_from_ngram(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is eagle3, which is no retreat from ngram"):
        _load(
            tmp_path,
            {"rungs": [{"method": "eagle3", "model": "head"}]},
            extends="llama-3.3-70b-ngram-h200",
        )


def test_a_recipe_without_a_draft_may_extend_one_with_rungs(tmp_path: Path) -> None:
    rungs = {"rungs": [{"K": 1}, {"method": "none"}]}
    assert not _load(tmp_path, rungs, draft={"method": "none", "K": 0}).speculates
