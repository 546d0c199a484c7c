"""What would be done: which rung for which finding, and everything that must be said beforehand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from speccli.core.bench.results import Result
from speccli.core.errors import UsageError
from speccli.core.fallback.ladder import Ladder, ladder
from speccli.core.fallback.means import Means, Start
from speccli.core.fallback.measured import Bench
from speccli.core.fallback.moves import Planned, plan_move
from speccli.core.fallback.present import Heard, Present, with_codes
from speccli.core.fallback.rungs import Step, lessened
from speccli.core.findings.base import Finding, Severity
from speccli.core.kube.record import Record, Revision, plain_recipe
from speccli.core.recipes.load import load
from speccli.core.recipes.model import Recipe
from speccli.core.values import Number
from speccli.core.views import fallback as view
from tests.support.benches import PLAIN, Noise, Planted, bench

EAGLE = load("llama-3.3-70b-eagle3-h200", ["cost.gpu_hour_usd=3.6"])
QUIET = Noise(run=0.002, drift=0.005, prompt=0.02, request=0.01)


@cache
def measured() -> Result:
    arms = [
        PLAIN,
        Planted("eagle3", {8: 1.7, 64: 1.24, 128: 0.77}),
        Planted("eagle3-k1", {8: 1.4, 64: 1.2, 128: 0.9}, k=1),
        Planted("ngram", {8: 1.1, 64: 0.9, 128: 0.8}, "ngram", 3),
    ]
    return bench(arms, batches=(8, 64, 128), noise=QUIET, prompts=40)


def record(*recipes: Recipe, **options: Any) -> Record:
    """A history, newest first."""
    made = [
        Revision(
            number=len(recipes) - at,
            recipe=plain_recipe(recipe),
            options=options if at == 0 else {},
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


class Played:
    """A cluster that keeps one rung warm, or none."""

    def __init__(self, warm: str | None = None, **means: Any) -> None:
        self._warm, self._means = warm, means

    def warm(self) -> str | None:
        return self._warm

    def means(self, step: Step) -> Means:
        start = Start(140.0, 170.0, "measured", "2 pods that serve now")
        traffic = step.name == self._warm
        usual: dict[str, Any] = {
            "mechanism": "traffic" if traffic else "rolling",
            "words": "traffic goes to chat-standby" if traffic else "one after the other",
            "gpus": 0,
            "free": 2,
            "starts": 0 if traffic else 2,
            "start": start,
        }
        return Means(**(usual | self._means))


def found_now(code: str, severity: Severity = "warning", source: str = "live") -> Heard:
    return Heard(Finding(code, severity, "fleet", "as it was seen", "c", "a"), source)


def planned(
    *findings: Heard,
    batch: float | None = None,
    warm: str | None = None,
    found: Ladder | None = None,
    rung: str | None = None,
    result: Result | None = None,
    supply: Any = None,
) -> Planned:
    number = Number.unknown("no engine tells") if batch is None else Number.known(batch)
    now = Present(findings, number, number)
    found = found or ladder(record(EAGLE))
    return plan_move(found, now, Bench(result, EAGLE, number), supply or Played(warm), rung)


@pytest.mark.parametrize(
    ("code", "rung"),
    [
        ("ZERO_ACCEPTANCE", "ngram"),
        ("LOW_ACCEPTANCE", "k1"),
        ("ACCEPTANCE_DRIFT", "k1"),
        ("PARALLEL_DRAFT_CLIFF", "k1"),
        ("BATCH_COLLAPSE", "k1"),
        ("SPEC_NOT_ACTIVE", "none"),
        ("ENGINE_DOWN", "none"),
    ],
)
def test_each_finding_leads_to_the_smallest_retreat_that_helps(code: str, rung: str) -> None:
    made = planned(found_now(code, "critical"))
    assert made.advised
    assert made.move is not None
    assert made.move.step.name == rung
    assert made.words.startswith("Move chat from eagle3, K = 3 to ")
    assert code in made.words
    assert made.command == f"specctl fallback apply chat --rung {rung}"


def test_servers_that_lost_their_configuration_are_no_reason_to_leave_the_draft() -> None:
    lost = found_now("SPEC_NOT_ACTIVE", "critical")
    cause = "the server says that it runs without a speculative configuration"
    made = planned(replace(lost, finding=replace(lost.finding, cause=cause)))
    assert not made.advised
    assert "deploy what the recipe says" in made.words


def test_a_warm_standby_is_gone_to_before_anything_that_must_start() -> None:
    made = planned(found_now("LOW_ACCEPTANCE"), warm="ngram")
    assert made.move is not None
    assert made.move.step.name == "ngram"
    assert isinstance(made.move.means, Means)
    assert made.move.means.seconds == (0, 0)
    batch = planned(found_now("BATCH_COLLAPSE"), warm="ngram")
    assert batch.move is not None
    assert batch.move.step.name == "k1", "n-gram's verification costs as much at that batch"


def test_the_worst_finding_decides() -> None:
    made = planned(found_now("LOW_ACCEPTANCE"), found_now("ZERO_ACCEPTANCE", "critical"))
    assert made.move is not None
    assert made.move.heard is not None
    assert made.move.heard.finding.code == "ZERO_ACCEPTANCE"
    assert [line for line in view.others(made) if "LOW_ACCEPTANCE" in line]


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ((), "Leave chat at eagle3, K = 3: nothing speaks against it"),
        (
            (found_now("QUEUE_WAIT"),),
            "Leave chat at eagle3, K = 3: QUEUE_WAIT moves nothing: that is the autoscaler's",
        ),
        ((found_now("LOW_ACCEPTANCE", "info"),), "Leave chat at eagle3, K = 3: nothing speaks"),
    ],
)
def test_without_a_reason_nothing_is_advised(findings: tuple[Heard, ...], words: str) -> None:
    made = planned(*findings)
    assert not made.advised
    assert made.words.startswith(words)
    assert made.move is not None, "what would be done is told all the same"
    assert made.move.step.name == "ngram"
    assert view.marks(made.places[1], made) == "would be"


def test_what_nobody_looked_for_is_not_nothing() -> None:
    now = Present.nothing("no answer within 5 s")
    bench_ = Bench(None, EAGLE, now.batch)
    made = plan_move(ladder(record(EAGLE)), now, bench_, Played())
    assert made.words.startswith("Whether chat should leave eagle3, K = 3 is not known: no answer")
    assert not made.advised
    by_hand = plan_move(
        ladder(record(EAGLE)), with_codes(now, ["ZERO_ACCEPTANCE"]), bench_, Played()
    )
    assert by_hand.advised
    assert "ZERO_ACCEPTANCE, named by hand" in by_hand.words


def test_at_batch_64_ngram_is_passed_over_for_off_by_what_was_measured() -> None:
    zero = found_now("ZERO_ACCEPTANCE", "critical")
    at_8 = planned(zero, batch=8, result=measured())
    at_64 = planned(zero, batch=64, result=measured())
    assert (at_8.move and at_8.move.step.name) == "ngram"
    assert (at_64.move and at_64.move.step.name) == "none"
    assert any("ngram is passed over: no speculation is 1.1" in r for r in view.remarks(at_64))
    warm = planned(zero, batch=64, result=measured(), warm="ngram")
    assert warm.move is not None
    assert warm.move.step.name == "ngram"
    assert any("but this one is warm" in risk for risk in warm.move.risks)


def test_a_collapse_beyond_the_crossover_goes_where_it_is_fastest() -> None:
    collapse = found_now("BATCH_COLLAPSE")
    at_64 = planned(collapse, batch=64, result=measured())
    at_128 = planned(collapse, batch=128, result=measured())
    assert (at_64.move and at_64.move.step.name) == "k1"
    assert (at_128.move and at_128.move.step.name) == "none"


def test_a_refused_rung_is_not_gone_to_and_says_why() -> None:
    lora = replace(EAGLE, serving=replace(EAGLE.serving, lora=True))
    made = planned(found_now("ZERO_ACCEPTANCE", "critical"), found=ladder(record(lora)))
    assert (made.move and made.move.step.name) == "none"
    assert any(line.startswith("ngram is refused: LoRA") for line in view.remarks(made))
    with pytest.raises(UsageError, match="ngram: LoRA with ngram"):
        planned(found=ladder(record(lora)), rung="ngram")


def test_a_rung_that_is_asked_for_is_planned_whatever_is_found() -> None:
    made = planned(rung="none")
    assert made.advised
    assert made.words == "Move chat from eagle3, K = 3 to no speculation: asked for"
    with pytest.raises(UsageError, match="eagle3 with K = 9|k9 is no step down"):
        planned(rung="k9")


def test_at_the_bottom_there_is_nothing_below() -> None:
    off = lessened(EAGLE, "none")
    made = planned(found_now("LOW_ACCEPTANCE"), found=ladder(record(off, EAGLE)))
    assert made.move is None
    assert made.command is None
    assert "there is nothing below it" in made.words
    assert view.planned(made)["move"] is None
    assert view.planned(made)["restores_revision"] == 1


def test_below_ngram_is_off_and_the_way_back_leads_to_the_draft() -> None:
    lower = lessened(EAGLE, "ngram")
    made = planned(found_now("ZERO_ACCEPTANCE", "critical"), found=ladder(record(lower, EAGLE)))
    assert [place.step.name for place in made.places] == ["none"]
    assert made.move is not None
    assert made.move.back.startswith("specctl fallback restore chat: revision 1 again")
    assert made.words.startswith("Move chat from ngram, K = 3 to no speculation")


def test_with_the_traffic_on_the_standby_it_stands_on_that_rung() -> None:
    found = ladder(record(EAGLE, EAGLE, traffic="standby"))
    made = planned(found_now("ZERO_ACCEPTANCE", "critical"), found=found)
    assert [place.step.name for place in made.places] == ["none"]
    assert view.planned(made)["method"] == "ngram"
    assert found.back is not None
    assert found.back.number == 1


def test_risks_are_told_beforehand() -> None:
    unmeasured = planned(found_now("ZERO_ACCEPTANCE", "critical")).move
    assert unmeasured is not None
    assert any("vllm#27379" in risk for risk in unmeasured.risks)
    slower = planned(found_now("ZERO_ACCEPTANCE", "critical"), batch=8, result=measured()).move
    assert slower is not None
    assert any("as what serves now" in risk and "0.6" in risk for risk in slower.risks)
    assert not any("vllm#27379" in risk for risk in slower.risks), "it was measured here"
    crash = planned(found_now("ENGINE_DOWN", "critical")).move
    assert crash is not None
    assert any("only where the log blames speculation" in risk for risk in crash.risks)


def test_where_the_cluster_does_not_tell_the_way_is_unknown_and_the_move_is_not() -> None:
    made = planned(found_now("ZERO_ACCEPTANCE", "critical"), supply="not allowed to list nodes")
    assert made.advised
    assert ("how", "not known: not allowed to list nodes") in list(view.headings(made))
    told = view.planned(made)["move"]
    assert told["means"] is None
    assert told["means_unknown"] == "not allowed to list nodes"


def test_the_json_keeps_its_old_keys_and_says_what_is_unknown() -> None:
    told = view.planned(planned(found_now("LOW_ACCEPTANCE")))
    old = {"schema", "name", "revision", "method", "k", "down", "restores_revision"}
    assert old <= set(told)
    assert told["schema"] == "specctl.fallback/v1"
    step = {"method", "k", "possible", "refusals", "kv_tokens_gained", "command"}
    assert all(step <= set(each) for each in told["down"])
    rate = told["down"][0]["expected"]["output_tokens_per_s"]
    assert (rate["value"], rate["state"]) == (None, "unknown")
    assert "no bench given" in rate["reason"]
    assert told["findings"][0]["way"] == "down"
    assert told["move"]["means"]["start_s"] == {
        "low": 140.0,
        "high": 170.0,
        "how": "measured",
        "of": "2 pods that serve now",
    }
    assert told["move"]["means"]["seconds"] == {"low": 280.0, "high": 340.0}
