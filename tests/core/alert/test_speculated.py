"""Speculation that was lost, told from speculation that never was: what the judge remembers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from speccli.core.alert.judge import Judge
from speccli.core.findings import Finding, Thresholds
from speccli.core.findings.spec_not_active import configured_without
from speccli.core.sources.base import Scrape
from speccli.core.stats.snapshot import Snapshot
from tests.core.alert.streams import recorded
from tests.core.findings.bodies import AT, A, B, C, Engine, answer, good, only, snapshot, zero

CODE = "SPEC_NOT_ACTIVE"
D = "http://d:8000"
PLAIN = {"method": "none"}


def drafting(*targets: str, at: float = 0, **info: Any) -> Snapshot:
    """Servers that draft, watched for a minute."""
    return snapshot(
        [answer(at, t, zero(3), info={"method": "eagle3", **info}) for t in targets],
        [answer(at + 60, t, good(2000)) for t in targets],
    )


def plain(*targets: str, at: float = 600, tokens: float = 5000, **more: Any) -> Snapshot:
    """Servers that were started after that and say that they have no configuration."""
    info = {**PLAIN, **more.pop("info", {})}

    def page(seconds: float, tokens: float, target: str) -> Scrape:
        began = AT + at - 100
        told = info if seconds == at else {}
        return answer(seconds, target, Engine(gen=tokens), started=began, info=told, **more)

    return snapshot([page(at, 0, t) for t in targets], [page(at + 60, tokens, t) for t in targets])


def both(one: Snapshot, other: Snapshot) -> Snapshot:
    """One fleet of two."""
    at = max(one.at, other.at)
    return replace(other, at=at, engines=(*one.engines, *other.engines))


def told(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(f.severity, f.subject) for f in found if f.code == CODE]


def watched(judge: Judge, *shots: Snapshot) -> list[list[tuple[str, str]]]:
    return [told(judge.observe(shot)) for shot in shots]


def test_what_never_drafted_is_a_note() -> None:
    assert (
        watched(Judge(None, Thresholds()), plain(A), plain(A, at=900))
        == [[("info", "a:8000/0")]] * 2
    )


def test_what_drafted_before_is_critical_at_every_check_until_it_drafts_again() -> None:
    judge = Judge(None, Thresholds())
    lost = [("critical", "a:8000/0")]
    shots = [drafting(A), plain(A), plain(A, at=900), drafting(A, at=1200), plain(A, at=1500)]
    assert watched(judge, *shots) == [[], lost, lost, [], lost]


def test_it_says_what_was_lost_since_when_and_needs_no_traffic_to_know() -> None:
    judge = Judge(None, Thresholds())
    judge.observe(drafting(A))
    finding = only(list(judge.observe(plain(A, tokens=0))), CODE)
    assert finding.evidence == (
        "it drafted with eagle3 before, and has no speculative configuration now"
    )
    assert "--method none" in finding.action
    assert finding.since == AT + 500
    assert configured_without(finding)


def test_it_is_remembered_by_another_process() -> None:
    judge = Judge(None, Thresholds())
    judge.observe(drafting(A))
    for at in (600, 900):
        state = json.loads(json.dumps(judge.state()))
        judge = Judge(None, Thresholds(), state)
        assert judge.note is None
        assert told(judge.observe(plain(A, at=at))) == [("critical", "a:8000/0")]


def test_a_state_of_before_is_gone_on_with() -> None:
    state = Judge(None, Thresholds()).state()
    del state["speculated"]
    judge = Judge(None, Thresholds(), state)
    assert judge.note is None
    assert watched(judge, drafting(A), plain(A)) == [[], [("critical", "a:8000/0")]]


@pytest.mark.parametrize("state", [[], {"engines": [["a"]], "plain": []}, {"engines": 3}])
def test_a_state_that_is_none_is_said(state: Any) -> None:
    kept = {**Judge(None, Thresholds()).state(), "speculated": state}
    assert "watching begins anew" in (Judge(None, Thresholds(), kept).note or "")


def test_the_operators_word_ends_it_once_and_for_all() -> None:
    judge = Judge(None, Thresholds())
    judge.observe(drafting(A))
    silent = Judge(None, Thresholds(expect_speculation=False), judge.state())
    assert told(silent.observe(plain(A))) == []
    after = Judge(None, Thresholds(), silent.state())
    assert told(after.observe(plain(A, at=900))) == [("info", "a:8000/0")]


def test_one_of_several_is_named_and_its_like_are_not() -> None:
    judge = Judge(None, Thresholds())
    judge.observe(drafting(A, B))
    assert told(judge.observe(both(drafting(A, at=600), plain(B)))) == [("critical", "b:8000/0")]


def test_engines_of_one_server_are_told_apart() -> None:
    shot = both(drafting(A), plain(A))
    first, second = shot.engines
    shot = replace(shot, engines=(replace(first, engine="0"), replace(second, engine="1")))
    judge = Judge(None, Thresholds())
    assert told(judge.observe(shot)) == [("info", "a:8000/1")]
    lost = replace(shot, engines=(replace(second, engine="0"), replace(second, engine="1")))
    assert told(judge.observe(lost)) == [("critical", "a:8000/0"), ("info", "a:8000/1")]


def test_a_new_name_takes_the_place_of_one_that_is_gone() -> None:
    judge = Judge(None, Thresholds())
    shots = [drafting(A, B), both(drafting(A, at=600), plain(C)), plain(C, D, at=900)]
    replaced = [("critical", "c:8000/0"), ("critical", "d:8000/0")]
    found = watched(judge, *shots)
    assert found[:2] == [[], [("critical", "c:8000/0")]]
    assert sorted(found[2]) == replaced


def test_a_server_beside_those_that_draft_is_a_note() -> None:
    """One more address in the list: nothing says that it should."""
    judge = Judge(None, Thresholds())
    shots = [drafting(A), both(drafting(A, at=600), plain(B))]
    assert watched(judge, *shots) == [[], [("info", "b:8000/0")]]


def test_one_more_pod_of_a_pool_is_what_the_others_are() -> None:
    judge = Judge(None, Thresholds())

    def pod(target: str, shot: Snapshot) -> Snapshot:
        (engine,) = shot.engines
        return replace(shot, engines=(replace(engine, pool="main", target=target),))

    judge.observe(pod("chat-1", drafting(A)))
    shot = both(pod("chat-1", drafting(A, at=600)), pod("chat-2", plain(B)))
    assert told(judge.observe(shot)) == [("critical", "chat-2/0")]


def test_a_fleet_that_was_mixed_from_the_start_stays_so() -> None:
    judge = Judge(None, Thresholds())
    shots = [both(drafting(A), plain(B)), plain(B, C, at=900)]
    first, second = watched(judge, *shots)
    assert first == [("info", "b:8000/0")]
    assert {severity for severity, _ in second} == {"info"}


def test_a_baseline_of_the_same_model_says_that_it_should() -> None:
    base = replace(recorded("steady"), key=replace(recorded("steady").key, target="m"))
    for key, severity in ((base.key, "critical"), (replace(base.key, target="n"), "info")):
        found = Judge(replace(base, key=key), Thresholds()).observe(plain(A))
        assert only(list(found), CODE).severity == severity


@pytest.mark.parametrize(
    ("meant", "severity"), [("eagle3", "critical"), ("none", "info"), (None, "info")]
)
def test_what_it_was_deployed_with_says_whether_it_should(meant: str | None, severity: str) -> None:
    info = {"meant": meant} if meant else {}
    found = Judge(None, Thresholds()).observe(plain(A, info=info))
    assert only(list(found), CODE).severity == severity


EXPECTED = Thresholds(expect_speculation=True)


def test_a_method_makes_plain_engines_critical_where_all_of_them_are() -> None:
    """`method` kept in specctl.toml, with a baseline's arm in the list."""
    found = watched(Judge(None, EXPECTED), plain(A, B), both(drafting(B, at=840), plain(A, at=840)))
    assert found == [
        [("critical", "a:8000/0"), ("critical", "b:8000/0")],
        [("info", "a:8000/0")],
    ]


def test_an_engine_that_drafted_is_critical_in_a_mixed_list_too() -> None:
    judge = Judge(None, EXPECTED)
    found = watched(judge, drafting(A, B), both(drafting(B, at=840), plain(A, at=840)))
    assert found == [[], [("critical", "a:8000/0")]]


def test_a_standby_that_drafts_excuses_nobody() -> None:
    shot = both(drafting(B, at=840), plain(A, at=840))
    beside = replace(
        shot,
        engines=tuple(
            replace(each, pool="standby") if each.name == "b:8000/0" else each
            for each in shot.engines
        ),
    )
    assert watched(Judge(None, EXPECTED), beside) == [[("critical", "a:8000/0")]]


def test_a_retreat_of_our_own_is_a_note_though_it_drafted_before_and_is_expected_to() -> None:
    judge = Judge(None, Thresholds(expect_speculation=True))
    judge.observe(drafting(A, meant="eagle3"))
    finding = only(list(judge.observe(plain(A, info={"meant": "none"}))), CODE)
    assert finding.severity == "info"


def test_a_retreat_is_known_where_the_server_tells_nothing() -> None:
    shot = snapshot(
        [answer(0, A, Engine(gen=0), info={"meant": "none"})], [answer(60, A, Engine(gen=5000))]
    )
    finding = only(list(Judge(None, Thresholds()).observe(shot)), CODE)
    assert (finding.severity, finding.cause) == ("info", "it was deployed without a draft")


def test_engines_that_are_long_gone_are_forgotten() -> None:
    judge = Judge(None, Thresholds())
    month = 31 * 86_400.0
    judge.observe(drafting(A, B))
    judge.observe(drafting(B, at=month))
    assert [name for name, *_ in judge.state()["speculated"]["engines"]] == ["b:8000/0"]
