"""A deployment's record: what comes back is what was written, and what a rollback goes to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.kube import record
from speccli.core.kube.record import KEPT, Record, RecordError, Revision
from speccli.core.kube.refs import Ref
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load

NAME = "llama-3.3-70b-eagle3-h100"
OTHER = "llama-3.3-70b-none-h100"


def revision(number: int, recipe: str = NAME, **changes: Any) -> Revision:
    made = Revision(
        number=number,
        recipe=record.plain_recipe(load(recipe)),
        options={"namespace": "llm"},
        objects_hash="h",
        objects=(Ref("apps/v1", "Deployment", "chat", "llm"), Ref("v1", "ConfigMap", "x", "llm")),
        image="vllm:1",
        state="ready",
        at="2026-01-01T00:00:00+00:00",
        by="ops@bastion",
        tool="0.1",
    )
    return replace(made, **changes)


def test_a_record_comes_back_as_it_was_written() -> None:
    proof = {"verdict": "proven", "servers": []}
    told = Record("chat", revision(2, proof=proof, accepted=("PAIR_VOCAB",)), (revision(1),))
    value = json.loads(json.dumps(record.as_object(told, "llm")))
    assert record.from_object(value) == told
    assert value["metadata"]["labels"]["specctl.dev/record"] == "true"


@pytest.mark.parametrize("name", catalog.names())
def test_every_recipe_comes_back_from_its_plain_form(name: str) -> None:
    assert record.recipe_of(revision(1, name)) == load(name)


def test_the_same_recipe_is_the_same_whatever_form_wrote_it() -> None:
    recipe = load(NAME)
    older = revision(1)
    short = {key: value for key, value in older.recipe.items() if key != "workload"}
    assert older.is_for(recipe, {"namespace": "llm"}, "h")
    assert not older.is_for(recipe, {"namespace": "llm"}, "other objects")
    assert not older.is_for(recipe, {}, "h")
    assert not older.is_for(load(NAME, ["draft.K=5"]), {"namespace": "llm"}, "h")
    default = load(NAME, ["workload.prompt_tokens=1024", "workload.output_tokens=512"])
    assert replace(older, recipe=short).is_for(default, {"namespace": "llm"}, "h")


def test_a_record_that_was_broken_by_hand_is_named() -> None:
    value = record.as_object(Record("chat", revision(1)), "llm")
    value["data"]["record.json"] = value["data"]["record.json"].replace('"ready"', '"great"')
    with pytest.raises(RecordError, match="chat-specctl"):
        record.from_object(value)
    with pytest.raises(RecordError, match="holds no"):
        record.from_object({**value, "data": {}})


def test_a_record_of_a_newer_form_is_not_guessed_at() -> None:
    value = record.as_object(Record("chat", revision(1)), "llm")
    value["data"]["record.json"] = value["data"]["record.json"].replace("/v1", "/v9")
    with pytest.raises(RecordError, match="v9"):
        record.from_object(value)


def test_ten_former_revisions_are_kept() -> None:
    told = Record("chat", revision(1))
    for number in range(2, 20):
        told = told.with_next(revision(number))
    assert told.current.number == 19
    assert [each.number for each in told.previous] == list(range(18, 18 - KEPT, -1))


def test_canaries_are_forgotten_before_what_they_were_tried_for() -> None:
    told = Record("chat", revision(2, OTHER), (revision(1),))
    for number in range(3, 40, 2):
        told = told.with_next(revision(number, trial={"of": 1, "from": 2}))
        told = told.with_next(revision(number + 1, OTHER, restores=2))
    kept = [each.number for each in told.previous]
    assert kept[-2:] == [2, 1]
    assert len(kept) == KEPT
    assert told.previous[0].trial is not None


PROVEN = {"verdict": "proven"}
REFUTED = {"verdict": "refuted"}


@pytest.mark.parametrize(
    ("previous", "chosen"),
    [
        pytest.param((revision(2, OTHER), revision(1, OTHER, proof=PROVEN)), 1, id="proven-first"),
        pytest.param((revision(2, OTHER), revision(1, OTHER)), 2, id="else-the-newest-ready"),
        pytest.param(
            (revision(2, OTHER, state="applying"), revision(1, OTHER)), 1, id="not-an-unfinished"
        ),
        pytest.param(
            (revision(2, OTHER, proof=REFUTED), revision(1, OTHER)), 1, id="not-a-refuted"
        ),
        pytest.param((revision(2), revision(1, OTHER)), 1, id="not-the-same-again"),
        pytest.param(
            (revision(2, OTHER, trial={}, proof=PROVEN), revision(1, OTHER)), 1, id="not-a-canary"
        ),
        pytest.param(
            (revision(2, options={"autoscaler": "none"}), revision(1, OTHER)), 2, id="other-options"
        ),
    ],
)
def test_a_rollback_goes_to_the_newest_that_was_in_order(
    previous: tuple[Revision, ...], chosen: int
) -> None:
    assert record.to_restore(Record("chat", revision(3), previous), None).number == chosen


@pytest.mark.parametrize("state", ["applying", "applied", "failed"])
def test_a_rollback_that_is_not_through_is_completed(state: Any) -> None:
    former = (revision(3), revision(2, OTHER), revision(1))
    begun = revision(4, OTHER, state=state, restores=2)
    assert record.to_restore(Record("chat", begun, former), None).number == 2
    assert record.to_restore(Record("chat", begun, former[:1]), None).number == 4, "forgotten"
    through = replace(begun, state="ready")
    assert record.to_restore(Record("chat", through, former), None).number == 3


def test_a_rollback_without_anything_to_go_to_says_so() -> None:
    with pytest.raises(RecordError, match="no former revision"):
        record.to_restore(Record("chat", revision(1)), None)
    with pytest.raises(RecordError, match="no revision 7"):
        record.to_restore(Record("chat", revision(2), (revision(1),)), 7)
