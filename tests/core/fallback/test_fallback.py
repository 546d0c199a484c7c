"""Falling back and coming back, on a cluster that is played."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speccli.core.deploy.remove import restored
from speccli.core.errors import ExitCode, UsageError
from speccli.core.fallback import rungs, ways
from speccli.core.fallback.ladder import choose, ladder
from speccli.core.kube.record import Record, Revision, plain_recipe
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Draft, Pool, PoolName, Recipe
from tests.core.deploy.fake_cluster import FakeCluster
from tests.core.deploy.test_cluster import RECIPE, Heard, asked, deploy, record

EAGLE = load(RECIPE)
NGRAM = replace(EAGLE, draft=Draft(method="ngram", k=3, prompt_lookup_min=2, prompt_lookup_max=4))
NONE = replace(EAGLE, draft=Draft())


def _record(*recipes: Recipe) -> Record:
    """A history, newest first."""
    count = len(recipes)
    made = [
        Revision(
            number=count - at,
            recipe=plain_recipe(recipe),
            options={},
            objects_hash="",
            objects=(),
            image=None,
            state="ready",
            at="",
            by="",
            tool="",
        )
        for at, recipe in enumerate(recipes)
    ]
    return Record("chat", made[0], tuple(made[1:]))


def test_a_head_can_fall_back_to_ngram_or_to_none() -> None:
    found = ladder(_record(EAGLE))
    assert [step.name for step in found.down] == ["k1", "ngram", "none"]
    assert found.back is None
    assert choose(found, None).method == "ngram"
    none = choose(found, "none")
    assert none.recipe == NONE
    assert "--speculative-config" not in none.plan.line.command
    assert none.gained_tokens is not None
    assert none.gained_tokens > 0


def test_ngram_keeps_k_and_needs_no_weights() -> None:
    step = choose(ladder(_record(EAGLE)), "ngram")
    assert step.recipe.draft.k == EAGLE.draft.k
    assert step.recipe.draft.model is None
    assert not step.refusals


def test_at_the_bottom_there_is_no_way_down() -> None:
    found = ladder(_record(NONE, NGRAM, EAGLE))
    assert found.down == ()
    with pytest.raises(UsageError, match="nothing to fall back to") as caught:
        choose(found, None)
    assert caught.value.hint == "specctl fallback restore chat"


def test_what_is_to_be_typed_names_the_namespace_of_a_cluster() -> None:
    """Without it a command of the context's namespace, or a local engine of that name, is meant."""
    here = _record(NONE, NGRAM, EAGLE)
    told = replace(here, current=replace(here.current, options={"namespace": "llm"}))
    assert ladder(here).typed == "chat"
    with pytest.raises(UsageError) as caught:
        choose(ladder(told), None)
    assert caught.value.hint == "specctl fallback restore chat -n llm"
    with pytest.raises(UsageError) as caught:
        ways.back(ladder(replace(told, previous=())))
    assert caught.value.hint == "specctl rollback chat -n llm brings any former revision back"


def test_a_step_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="ngram is no step down"):
        choose(ladder(_record(NGRAM, EAGLE)), "ngram")


@pytest.mark.parametrize(
    ("history", "number"),
    [
        ((NGRAM, EAGLE), 1),
        ((NONE, NGRAM, EAGLE), 1),
        ((NONE, EAGLE), 1),
        ((EAGLE, NONE, EAGLE), None),
        ((NONE, NONE), None),
        ((NGRAM, EAGLE, NONE), 2),
        ((NONE, replace(EAGLE, serving=replace(EAGLE.serving, max_num_seqs=7))), None),
    ],
)
def test_the_way_back_is_where_the_fallbacks_began(
    history: tuple[Recipe, ...], number: int | None
) -> None:
    found = ladder(_record(*history))
    assert (found.back.number if found.back else None) == number
    if number is None:
        with pytest.raises(UsageError, match="no fallback led"):
            ways.back(found)
    else:
        assert ways.back(found) == number


def test_down_and_back_are_revisions_of_one_deployment() -> None:
    fake, heard = FakeCluster(), Heard()
    deploy(fake, heard, asked())
    found, place = ways.on_cluster(fake, None, "chat")  # type: ignore[arg-type]

    fake.stubborn = {"chat"}
    outcome = deploy(fake, heard, ways.down(found, "none", place))
    assert outcome.record.current.number == 2
    # The played engine drafts whatever it is told: the proof must not take that for none.
    assert outcome.exit_code is ExitCode.CRITICAL
    words = str(fake.objects["Deployment", "chat"])
    assert "--speculative-config" not in words

    found, place = ways.on_cluster(fake, None, "chat")  # type: ignore[arg-type]
    again = restored(fake, place, "chat", ways.back(found))  # type: ignore[arg-type]
    deploy(fake, heard, again)
    assert record(fake).current.restores == 1
    assert "--speculative-config" in str(fake.objects["Deployment", "chat"])


def test_what_is_not_deployed_cannot_fall_back() -> None:
    with pytest.raises(UsageError, match="no deployment chat"):
        ways.on_cluster(FakeCluster(), None, "chat")  # type: ignore[arg-type]


def _begun(told: Record, **changes: Any) -> Record:
    return told.with_current(state="applying", **changes)


def test_a_step_that_was_cut_short_is_completed_and_not_taken_twice() -> None:
    found = ladder(_begun(_record(NGRAM, EAGLE)))
    assert ways.down(found, None, "ns").recipe == NGRAM
    assert ways.down(found, "none", "ns").recipe == NONE
    done = ladder(_record(NGRAM, EAGLE))
    assert ways.down(done, None, "ns").recipe == NONE


def test_a_restore_that_was_cut_short_is_completed() -> None:
    found = ladder(_begun(_record(EAGLE, NGRAM, EAGLE), restores=1))
    assert ways.back(found) == 1


def test_pools_do_not_keep_a_bad_draft_of_their_own() -> None:
    pools: dict[PoolName, Pool] = {
        "structured": Pool(draft=EAGLE.draft),
        "canary": Pool(draft=EAGLE.draft),
    }
    drafting = replace(EAGLE, pools=pools)
    for method in rungs.STEPS:
        lesser = rungs.lessened(drafting, method)
        assert all(pool.draft is None for pool in lesser.pools.values())
    assert ladder(_record(rungs.lessened(drafting, "none"), drafting)).back is not None
    half = ladder(_record(replace(drafting, draft=Draft())))
    assert [step.method for step in half.down] == ["none"]


def test_a_folder_of_this_machine_is_fine_for_a_local_deployment() -> None:
    local = replace(EAGLE, target=replace(EAGLE.target, model="/models/target"))
    found = ladder(_record(local))
    asked_for = ways.down(found, "none", None)
    assert asked_for.recipe.draft.method == "none"
    with pytest.raises(UsageError, match="lies on a claim or image"):
        ways.down(found, "none", "ns")
