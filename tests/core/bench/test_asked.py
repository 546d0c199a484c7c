"""What is typed, and what is refused before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.arms import Local, telling
from speccli.core.bench.asked import Asked, plan
from speccli.core.bench.measure import Key
from speccli.core.errors import UsageError

ONE = ("baseline=http://a:8000",)
TWO = (*ONE, "eagle3=http://b:8000")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({}, "no arms", id="nothing"),
        pytest.param({"arm": ("http://a:8000",)}, "--arm is not NAME=URL", id="no-name"),
        pytest.param({"arm": ("a=ftp://x",)}, "scheme 'ftp'", id="scheme"),
        pytest.param({"arm": (*ONE, "baseline=http://b")}, "two arms baseline", id="name-twice"),
        pytest.param({"arm": (*ONE, "x=http://a:8000")}, "two arms have the address", id="same"),
        pytest.param({"arm": ONE, "to": "local"}, "--arm is a server that runs", id="both"),
        pytest.param({"to": "kubernetes"}, "--to kubernetes", id="elsewhere"),
        pytest.param({"target": "m"}, "not where", id="no-to"),
        pytest.param({"to": "local", "draft": ("ngram",)}, "--draft without --target", id="target"),
        pytest.param(
            {"to": "local", "target": "m", "draft": ("eagle3",)}, "needs a draft", id="no-path"
        ),
        pytest.param({"to": "local", "target": "m", "draft": ("x",)}, "is no method", id="method"),
        pytest.param({"arm": TWO, "batch": "1", "rate": "2"}, "closed loop", id="two-loops"),
        pytest.param({"arm": TWO, "batch": "0"}, "--batch '0' is no list", id="batch-0"),
        pytest.param({"arm": TWO, "batch": "1,x"}, "is no list of numbers", id="batch-x"),
        pytest.param({"arm": TWO, "batch": "8,8"}, "names one load twice", id="batch-twice"),
        pytest.param({"arm": TWO, "rate": "nan"}, "is no list of numbers", id="rate-nan"),
        pytest.param({"arm": TWO, "requests": "5", "seconds": "9"}, "one of them", id="two-ends"),
        pytest.param({"arm": TWO, "requests": "1,2"}, "2 numbers for 3 loads", id="requests"),
        pytest.param({"arm": TWO, "seconds": "0.1"}, "at least 1 s", id="short"),
        pytest.param({"arm": TWO, "request_deadline": "0"}, "--request-deadline 0: at", id="late"),
        pytest.param(
            {"arm": TWO, "start_deadline": "0"}, "--start-deadline 0: at", id="late-start"
        ),
        pytest.param({"arm": TWO, "dataset": ("random",)}, "acceptance", id="random"),
        pytest.param({"arm": TWO, "baseline": "x"}, "--baseline x is no arm", id="baseline"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as told:
        plan(Asked(**given, out=tmp_path / "x.json"))
    assert said in told.value.message
    assert "\n" not in told.value.message


def test_a_password_in_an_address_is_not_told() -> None:
    with pytest.raises(UsageError) as told:
        plan(Asked(arm=("a=http://user:secret@:0",)))
    assert "secret" not in told.value.message


def shapes(**given: Any) -> list[tuple[int, int | None]]:
    made = plan(Asked(arm=ONE, repeats=1, **given)).spec
    return [
        (shape.warmup, shape.requests)
        for key in made.rows()
        for shape in [made.shape(key, available=10_000)]
    ]


def test_a_row_has_so_many_requests_that_its_load_can_stand() -> None:
    assert shapes(batch="1,32,128") == [(2, 100), (32, 256), (128, 1024)]
    assert shapes(batch="1,32", requests="50") == [(2, 50), (32, 50)]
    assert shapes(batch="1,32", requests="50,64", warmup=0) == [(0, 50), (0, 64)]
    assert shapes(rate="10") == [(30, 100)]
    assert shapes(batch="4", seconds="30s") == [(4, None)]


def test_a_small_set_is_measured_once_and_not_over_and_over() -> None:
    made = plan(Asked(arm=ONE)).spec
    key = Key("baseline", "builtin", 1, None, 0)
    assert made.shape(key, available=32).requests == 32


def test_local_arms_are_a_baseline_and_each_draft_at_each_k() -> None:
    asked = Asked(
        to="local", target="m", draft=("eagle3=/e", "p-eagle=/p", "ngram"), k="3,5", extra=("-x",)
    )
    arms = plan(asked).spec.arms
    assert all(isinstance(arm, Local) for arm in arms)
    assert [arm.name for arm in arms] == [
        "baseline",
        *("eagle3-k3", "eagle3-k5", "p-eagle-k3", "p-eagle-k5", "ngram-k3", "ngram-k5"),
    ]
    peagle = arms[3]
    assert isinstance(peagle, Local)
    assert (peagle.method, peagle.k, peagle.extra_args) == ("p-eagle", 3, ("-x",))
    assert peagle.speculative == {
        "method": "eagle3",
        "model": "/p",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
    }


def test_a_recipe_is_measured_with_its_draft_and_without() -> None:
    plain, drafted = plan(Asked(to="local", recipe="llama-3.3-70b-eagle3-h200")).spec.arms
    assert isinstance(plain, Local)
    assert isinstance(drafted, Local)
    assert plain.speculative is None
    assert drafted.method == "eagle3"
    assert "--speculative-config" not in drafted.extra_args
    assert plain.model == drafted.model
    shared = [word for word in plain.extra_args if word.startswith("--")]
    assert "--max-model-len" in shared


@pytest.mark.parametrize(
    ("version", "draft", "told"),
    [
        ("0.32.0", True, True),
        ("0.28.0", True, False),
        (None, True, False),
        ("0.32.0", False, False),
    ],
)
def test_answers_tell_their_drafts_where_the_engine_can(
    version: str | None, draft: bool, told: bool
) -> None:
    arm = Local("a", "m", {"method": "ngram"} if draft else None)
    assert ("--per-request-spec-decode-metrics" in telling(arm, version).extra_args) is told


def test_the_baseline_is_found_by_its_name() -> None:
    named = ("eagle3=http://b:8000", "none=http://a:8000")
    assert plan(Asked(arm=named)).spec.baseline == "none"
    assert plan(Asked(arm=named, baseline="eagle3")).spec.baseline == "eagle3"
    assert plan(Asked(arm=("x=http://b:8000", "y=http://a:8000"))).spec.baseline == "x"
