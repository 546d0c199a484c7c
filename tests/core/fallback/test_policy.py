"""What moves a deployment by itself, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speccli.core.fallback.policy import after, decide
from speccli.core.fallback.reactions import NOTHING, REACTIONS
from speccli.core.fallback.terms import Go, Moved, Propose, Sign, State, Stay, Step, Terms
from speccli.core.findings import CODES
from tests.core.fallback.situations import AUTO, LADDER, NOON, held, nights, sign, standing

HOUR = 3600.0


def came(to: str, at: float = NOON, by: str = "watch", source: str = "eagle3") -> State:
    """A deployment that was moved down at that time."""
    begun = State("c1", source, at - HOUR)
    made = Moved(at, "down", source, to, "done", by)
    return after(begun, made)


def test_every_code_has_a_reaction_or_a_reason_for_none() -> None:
    assert sorted([*REACTIONS, *NOTHING]) == sorted(CODES)


def test_a_finding_must_last_before_it_moves_anything() -> None:
    low = standing(0, sign())
    early, state, at = held(low, lasting=299)
    assert isinstance(early, Stay)
    assert (early.why, early.words) == ("holding", "LOW_ACCEPTANCE must last 1 s more")
    decision, _ = decide(state, low, AUTO, at + 1)
    assert isinstance(decision, Go)
    assert (decision.move.kind, decision.move.source) == ("down", "eagle3")
    assert decision.move.target == "eagle3-k2"
    assert "acceptance 0.21" in decision.move.why


def test_a_finding_that_went_begins_anew_and_a_blink_does_not() -> None:
    low, well = standing(0, sign()), standing()
    _, state, at = held(low, lasting=240)
    _, state = decide(state, well, AUTO, at + 30)
    _, state = decide(state, low, AUTO, at + 60)
    decision, _ = decide(state, low, AUTO, at + 61)
    assert isinstance(decision, Go)
    _, state, at = held(low, lasting=240)
    for after_s in (30, 60, 90):
        _, state = decide(state, well, AUTO, at + after_s)
    decision, _ = decide(state, low, AUTO, at + 120)
    assert isinstance(decision, Stay)
    assert decision.words.endswith("5 min more")


def test_what_is_not_there_at_this_look_moves_nothing() -> None:
    _, state, at = held(standing(0, sign()), lasting=299)
    decision, _ = decide(state, standing(), AUTO, at + 30)
    assert isinstance(decision, Stay)
    assert decision.why == "well"


@pytest.mark.parametrize("code", NOTHING)
def test_codes_that_say_nothing_of_the_draft_move_nothing(code: str) -> None:
    decision, _, _ = held(standing(0, sign(code, "critical")), lasting=HOUR)
    assert isinstance(decision, Stay)
    assert decision.why == "well"


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(sign("ACCEPTANCE_DRIFT", "info"), id="a-shift-of-traffic"),
        pytest.param(sign("ZERO_ACCEPTANCE", "critical", share=0.5), id="one-engine-of-two"),
        pytest.param(sign("LOW_ACCEPTANCE", "unknown"), id="not-known"),
    ],
)
def test_less_than_a_fault_of_the_fleet_moves_nothing(told: Sign) -> None:
    decision, _, _ = held(standing(0, told), lasting=HOUR)
    assert isinstance(decision, Stay)


@pytest.mark.parametrize(
    ("code", "at", "target"),
    [
        ("LOW_ACCEPTANCE", 0, "eagle3-k2"),
        ("ACCEPTANCE_DRIFT", 0, "eagle3-k2"),
        ("ZERO_ACCEPTANCE", 0, "ngram"),
        ("ZERO_ACCEPTANCE", 1, "ngram"),
        ("ZERO_ACCEPTANCE", 2, "off"),
        ("BATCH_COLLAPSE", 0, "eagle3-k2"),
        ("BATCH_COLLAPSE", 1, "off"),
        ("BATCH_COLLAPSE", 2, "off"),
        ("SPEC_NOT_ACTIVE", 0, "off"),
        ("ENGINE_DOWN", 0, "off"),
        ("DRAFT_BEHIND_TARGET", 0, "eagle3-k2"),
    ],
)
def test_each_finding_leads_where_it_helps(code: str, at: int, target: str) -> None:
    decision, _, _ = held(standing(at, sign(code, "critical")))
    assert isinstance(decision, Go)
    assert decision.move.target == target


@pytest.mark.parametrize("code", ["LOW_ACCEPTANCE", "ZERO_ACCEPTANCE", "ENGINE_DOWN"])
def test_a_warm_standby_goes_before_a_restart(code: str) -> None:
    decision, _, _ = held(standing(0, sign(code, "critical"), standby=2))
    assert isinstance(decision, Go)
    assert decision.move.target == "ngram"


def test_a_warm_standby_that_does_not_help_is_passed_over() -> None:
    decision, _, _ = held(standing(0, sign("BATCH_COLLAPSE"), standby=2))
    assert isinstance(decision, Go)
    assert decision.move.target == "eagle3-k2"


def test_what_any_draft_dies_of_leads_past_a_warm_standby_that_drafts() -> None:
    grammar = sign("ENGINE_DOWN", "critical", way="none")
    decision, _, _ = held(standing(0, grammar, standby=2))
    assert isinstance(decision, Go)
    assert decision.move.target == "off"


def test_refused_rungs_and_rungs_that_failed_are_passed_over() -> None:
    ladder = (LADDER[0], LADDER[1], replace(LADDER[2], refusal="a hybrid model"), LADDER[3])
    low = standing(0, sign(), ladder=ladder)
    state = State("c1", "eagle3", NOON - HOUR, failed=("eagle3-k2",))
    decision, _, _ = held(low, state=state)
    assert isinstance(decision, Go)
    assert decision.move.target == "off"
    state = replace(state, failed=("eagle3-k2", "off"))
    decision, _, _ = held(low, state=state)
    assert isinstance(decision, Stay)
    assert decision.why == "exhausted"
    assert "ngram: a hybrid model" in decision.words
    assert "off: could not be reached" in decision.words


def test_at_the_bottom_a_person_must_look() -> None:
    only = (Step("off", "none"),)
    decision, _, _ = held(standing(0, sign("ENGINE_DOWN", "critical"), ladder=only))
    assert isinstance(decision, Stay)
    assert decision.why == "bottom"


def test_after_a_move_it_cools_down_but_what_is_critical_goes_on_down() -> None:
    state = came("eagle3-k2")
    decision, state, at = held(standing(1, sign()), state=state, at=NOON + 60)
    assert isinstance(decision, Stay)
    assert decision.why == "cool_down"
    decision, _, _ = held(standing(1, sign("ZERO_ACCEPTANCE", "critical")), state=state, at=at)
    assert isinstance(decision, Go)
    assert decision.move.target == "ngram"
    decision, _, _ = held(standing(1, sign()), state=came("eagle3-k2"), at=NOON + 1800)
    assert isinstance(decision, Go)


def test_moves_within_an_hour_are_counted_and_then_proposed() -> None:
    state = came("eagle3-k2", NOON).with_move(
        Moved(NOON + 600, "down", "eagle3-k2", "ngram", "done")
    )
    state = replace(state, rung="ngram", since=NOON + 600)
    bad = standing(2, sign("ZERO_ACCEPTANCE", "critical"))
    decision, state, at = held(bad, state=state, at=NOON + 900)
    assert isinstance(decision, Propose)
    assert decision.why == "budget"
    decision, _ = decide(state, bad, AUTO, NOON + 3601)
    assert isinstance(decision, Stay)  # nobody looked for too long: it holds anew
    decision, _, _ = held(bad, state=state, at=at, lasting=NOON + 3601 - at)
    assert isinstance(decision, Go)


def test_in_quiet_hours_nothing_moves_and_it_is_proposed() -> None:
    terms = Terms(auto=True, quiet=nights())
    midnight = NOON + 12 * HOUR
    bad = standing(0, sign("ZERO_ACCEPTANCE", "critical"))
    decision, state, at = held(bad, terms, at=midnight)
    assert isinstance(decision, Propose)
    assert (decision.why, decision.words) == ("quiet", "quiet hours until 06:00 CET")
    decision, _, at = held(bad, terms, state, at=at, lasting=midnight + 5 * HOUR - at)
    assert isinstance(decision, Go)
    assert terms.quiet.clock(at) == "06:00 CET"


def test_without_auto_it_proposes_and_the_proposal_stays_the_same() -> None:
    low = standing(0, sign())
    decision, state, at = held(low, Terms())
    assert isinstance(decision, Propose)
    again, state = decide(state, low, Terms(), at + 30)
    assert isinstance(again, Propose)
    assert again.move.id == decision.move.id
    _, state = decide(state, standing(), Terms(), at + 60)
    assert state.proposal is not None  # a blink
    _, state = decide(state, standing(blind="no metrics"), Terms(), at + 75)
    assert state.proposal is not None
    _, state = decide(state, standing(0, sign(), revision=8), Terms(), at + 90)
    assert state.proposal is not None
    assert state.proposal.id != decision.move.id  # meant for another revision


def test_a_proposal_is_withdrawn_once_its_finding_is_over() -> None:
    _, state, at = held(standing(0, sign()), Terms())
    _, state, _ = held(standing(), Terms(), state, at=at, lasting=90)
    assert state.proposal is None


def test_what_cannot_be_told_is_for_a_person() -> None:
    decision, _, _ = held(standing(0, sign("ACCEPTANCE_DRIFT", sure=False)))
    assert isinstance(decision, Propose)
    assert decision.why == "unsure"


@pytest.mark.parametrize(
    ("more", "why"), [({"blind": "no metrics"}, "blind"), ({"busy": "revision 8"}, "busy")]
)
def test_blind_or_busy_it_does_nothing_however_bad_it_was(more: dict[str, Any], why: str) -> None:
    _, state, at = held(standing(0, sign("ZERO_ACCEPTANCE", "critical")), lasting=290)
    decision, state, at = held(standing(**more), state=state, at=at + 10, lasting=600)
    assert isinstance(decision, Stay)
    assert decision.why == why
    decision, _ = decide(state, standing(0, sign("ZERO_ACCEPTANCE", "critical")), AUTO, at + 10)
    assert isinstance(decision, Stay)  # what was seen before says nothing of now


# ---- back ----


def test_the_draft_is_tried_again_after_a_while_and_later_at_each_refusal() -> None:
    state = came("ngram")
    decision, _ = decide(state, standing(2), AUTO, NOON + HOUR - 1)
    assert isinstance(decision, Stay)
    assert decision.why == "waiting"
    decision, _ = decide(state, standing(2), AUTO, NOON + HOUR)
    assert isinstance(decision, Go)
    assert (decision.move.kind, decision.move.target) == ("restore", "eagle3")
    state = after(state, Moved(NOON + HOUR, "restore", "ngram", "eagle3", "refused"))
    decision, _ = decide(state, standing(2), AUTO, NOON + 3 * HOUR - 1)
    assert isinstance(decision, Stay)
    decision, _ = decide(state, standing(2), AUTO, NOON + 3 * HOUR)
    assert isinstance(decision, Go)


def test_after_two_refusals_it_stays_down_until_the_configuration_changes() -> None:
    state = came("ngram")
    for n in (1, 2):
        state = after(state, Moved(NOON + n * HOUR, "restore", "ngram", "eagle3", "refused"))
    decision, state = decide(state, standing(2), AUTO, NOON + 1000 * HOUR)
    assert isinstance(decision, Stay)
    assert decision.why == "stays_down"
    assert "refused 2 times" in decision.words
    _, state = decide(state, standing(2, configuration="c2"), AUTO, NOON + 1001 * HOUR)
    assert state.refusals == 0
    decision, _ = decide(state, standing(2, configuration="c2"), AUTO, NOON + 1003 * HOUR)
    assert not isinstance(decision, Stay)


def test_canaries_that_a_person_had_refused_count_too() -> None:
    once = standing(2, refused=1, refused_at=NOON + HOUR)
    decision, _ = decide(came("ngram"), once, AUTO, NOON + 3 * HOUR - 1)
    assert isinstance(decision, Stay)
    decision, _ = decide(came("ngram"), once, AUTO, NOON + 3 * HOUR)
    assert isinstance(decision, Go)
    decision, _ = decide(came("ngram"), replace(once, refused=2), AUTO, NOON + 99 * HOUR)
    assert isinstance(decision, Stay)
    assert decision.why == "stays_down"


def test_an_inconclusive_canary_is_no_refusal() -> None:
    state = after(came("ngram"), Moved(NOON + HOUR, "restore", "ngram", "eagle3", "inconclusive"))
    assert state.refusals == 0
    decision, _ = decide(state, standing(2), AUTO, NOON + 2 * HOUR)
    assert isinstance(decision, Go)


@pytest.mark.parametrize(("outcome", "most"), [("failed", 2), ("inconclusive", 5), ("refused", 2)])
def test_a_return_that_does_not_come_about_is_not_tried_every_hour(outcome: Any, most: int) -> None:
    state, tried = came("ngram"), 0
    for minute in range(24 * 60):
        at = NOON + 60 * minute
        decision, state = decide(state, standing(2), AUTO, at)
        if isinstance(decision, Go):
            state = after(state, Moved(at, "restore", "ngram", "eagle3", outcome))
            tried += 1
    assert tried == most
    assert isinstance(decision, Stay)
    words = "showed nothing" if outcome == "inconclusive" else "2 times"
    assert words in decision.words


def test_a_way_up_that_is_not_all_the_way_takes_no_refusals_away() -> None:
    state = replace(came("off"), refusals=2, refused_at=NOON)
    _, state = decide(state, standing(2), AUTO, NOON + HOUR)
    assert (state.moves[-1].kind, state.moves[-1].by) == ("restore", "others")
    assert state.refusals == 2


@pytest.mark.parametrize("outcome", ["failed", "unproven"])
def test_a_return_of_its_own_that_came_through_late_is_no_persons(outcome: Any) -> None:
    state = replace(came("ngram"), refusals=1, refused_at=NOON)
    state = after(state, Moved(NOON + HOUR, "restore", "ngram", "eagle3", outcome))
    refusals = state.refusals
    _, state = decide(state, standing(0), AUTO, NOON + HOUR + 15)
    assert (state.refusals, state.rung) == (refusals, "eagle3")
    assert state.moves[-1].by == "watch"


def test_an_unproven_move_is_where_it_is_seen_to_be() -> None:
    state = after(came("eagle3"), Moved(NOON, "down", "eagle3", "ngram", "unproven"))
    assert (state.rung, state.failed) == ("eagle3", ())
    _, state = decide(state, standing(2), AUTO, NOON + 30)
    assert (state.rung, state.moves[-1].by) == ("ngram", "watch")


def test_a_return_that_does_not_last_a_day_counts_as_a_refusal() -> None:
    state = after(came("ngram"), Moved(NOON + HOUR, "restore", "ngram", "eagle3", "done"))
    fell = Moved(NOON + 5 * HOUR, "down", "eagle3", "ngram", "done")
    assert after(state, fell).refusals == 1
    assert after(state, replace(fell, at=NOON + 26 * HOUR)).refusals == 0


def test_without_traffic_no_canary() -> None:
    decision, _ = decide(came("ngram"), standing(2, traffic=False), AUTO, NOON + 2 * HOUR)
    assert isinstance(decision, Stay)
    assert decision.why == "idle"


def test_what_a_person_took_down_a_person_brings_back() -> None:
    decision, _ = decide(came("ngram", by="others"), standing(2), AUTO, NOON + 2 * HOUR)
    assert isinstance(decision, Propose)
    _, state = decide(State(), standing(0), AUTO, NOON)
    _, state = decide(state, standing(2), AUTO, NOON + 60)
    assert [(m.by, m.kind, m.target) for m in state.moves] == [("others", "down", "ngram")]
    decision, _ = decide(state, standing(2), AUTO, NOON + 60 + 2 * HOUR)
    assert isinstance(decision, Propose)


def test_a_person_who_brings_it_back_takes_refusals_away() -> None:
    state = came("ngram")
    for n in (1, 2):
        state = after(state, Moved(NOON + n * HOUR, "restore", "ngram", "eagle3", "refused"))
    state = replace(state, failed=("eagle3-k2",))
    _, state = decide(state, standing(0), AUTO, NOON + 3 * HOUR)
    last = state.moves[-1]
    assert (last.kind, last.source, last.target, last.by) == (
        "restore",
        "ngram",
        "eagle3",
        "others",
    )
    assert (state.refusals, state.failed, state.rung) == (0, (), "eagle3")


def test_a_deployment_that_is_down_when_first_seen_is_not_moved_at_once() -> None:
    decision, _ = decide(State(), standing(2), AUTO, NOON)
    assert isinstance(decision, Stay)
    assert decision.why == "waiting"


def test_evidence_of_one_method_says_nothing_of_the_next() -> None:
    _, state, at = held(standing(0, sign("ZERO_ACCEPTANCE", "critical")), Terms())
    decision, _ = decide(state, standing(2, sign("ZERO_ACCEPTANCE", "critical")), AUTO, at + 30)
    assert isinstance(decision, Stay)
    assert decision.why == "holding"
