"""Whose tokens the counters counted, and what was accepted of them."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.bench.account import Ours, acceptance, ours, traffic
from speccli.core.bench.client import Answer
from speccli.core.bench.server import Growth, Page, grown_by
from tests.core.pages import counters

OURS = Ours(requests=4, tokens=400, unknown_tokens=0, unanswered=0)
COUNTS = {"generation_tokens": 400.0, "finished": 4.0}
SPECULATION = {
    "drafts": 160.0,
    "draft_tokens": 480.0,
    "accepted_tokens": 240.0,
    "accepted_at:0": 120.0,
    "accepted_at:1": 80.0,
    "accepted_at:2": 40.0,
}


def page(slots: dict[str, float], started: float | None = 1.0, **given: Any) -> Page:
    hists = {
        "ttft": ([1.0], [slots["finished"]] * 2, 1.0),
        "itl": ([1.0], [slots.get("drafts", 396.0)] * 2, 1.0),
    }
    return Page({"0": counters(0.0, slots, hists, started=started, **given)})


def growth(more: dict[str, float], **given: Any) -> Growth:
    before = {name: 1000.0 for name in more}
    after = {name: 1000.0 + value for name, value in more.items()}
    return grown_by(page(before), page(after, **given))


def answer(tokens: int, told: dict[str, Any] | None = None, error: str | None = None) -> Answer:
    return Answer("p", 0.0, output_tokens=tokens, speculation=told, error=error)


def test_what_the_server_counted_and_what_it_was_asked_agree() -> None:
    found = traffic(growth(COUNTS), OURS)
    assert (found.foreign, found.missing) == (None, None)


def test_of_a_simulator_it_is_said_how_to_have_it_silent() -> None:
    more = growth(COUNTS | {"generation_tokens": 440.0})
    assert "--rate 0" in (traffic(more, OURS, simulated=True).foreign or "")
    assert "--rate" not in (traffic(more, OURS).foreign or "--rate")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"generation_tokens": 440.0}, id="tokens"),
        pytest.param({"finished": 5.0}, id="a-request-without-a-token"),
        pytest.param({"generation_tokens": 400.0 + 4.0}, id="a-few-tokens"),
    ],
)
def test_more_than_was_asked_is_somebody_elses(changed: dict[str, float]) -> None:
    found = traffic(growth(COUNTS | changed), OURS)
    assert found.foreign is not None
    assert "not ours" in found.foreign


def test_fewer_than_were_answered_are_another_servers_counters() -> None:
    found = traffic(growth(COUNTS | {"generation_tokens": 200.0}), OURS)
    assert found.foreign is None
    assert "counters show 200 of 400 tokens" in (found.missing or "")


def test_an_answer_that_was_cut_short_may_have_had_all_its_tokens() -> None:
    cut = ours([answer(100), answer(100), answer(100), answer(0, error="reset")], max_tokens=100)
    assert cut.unknown_tokens == 100
    assert traffic(growth(COUNTS), cut).foreign is None
    assert traffic(growth(COUNTS | {"generation_tokens": 450.0}), cut).foreign is not None


@pytest.mark.parametrize(
    ("after", "said"),
    [
        pytest.param(page(COUNTS, started=2.0), "process changed", id="restarted"),
        pytest.param(page({**COUNTS, "finished": 1.0}), "counters fell", id="fell"),
        pytest.param(page(COUNTS | {"steps": 1.0}), "its metrics changed", id="other-version"),
        pytest.param(Page({}, "/metrics answers 404"), "/metrics answers 404", id="no-page"),
        pytest.param(Page({"1": page(COUNTS).engines["0"]}), "came or went", id="engines"),
    ],
)
def test_counters_of_another_process_are_no_growth(after: Page, said: str) -> None:
    found = grown_by(page(COUNTS), after)
    assert found.subject is None
    assert said in (found.reason or "")
    assert traffic(found, OURS).missing == found.reason
    assert acceptance([answer(9)], [], found, traffic(found, OURS)).rate.reason == found.reason


def test_counters_make_an_acceptance() -> None:
    grown = growth(COUNTS | SPECULATION)
    found = acceptance([answer(400)], [], grown, traffic(grown, OURS))
    assert found.source == "counters"
    assert found.rate.value == pytest.approx(0.5)
    assert found.length.value == pytest.approx(2.5)
    assert [round(each.value or 0, 3) for each in found.by_position] == [0.75, 0.5, 0.25]
    assert found.tokens_per_step.value == pytest.approx((400 - 4) / 160)


TOLD = {
    "num_spec_steps": 10,
    "num_draft_tokens": 30,
    "num_accepted_draft_tokens": 12,
    "num_spec_tokens": 3,
    "acceptance_histogram": [3, 4, 1, 2],
}


def test_what_answers_tell_is_of_the_measured_ones_alone() -> None:
    grown = growth(COUNTS | SPECULATION)
    found = acceptance([answer(9, TOLD), answer(9, TOLD)], [], grown, traffic(grown, OURS))
    assert found.source == "per-request"
    assert found.rate.value == pytest.approx(0.4)
    assert found.length.value == pytest.approx(2.2)
    assert [each.value for each in found.by_position] == pytest.approx([0.7, 0.3, 0.2])
    assert found.counters is not None
    assert found.counters.accepted_tokens == 240


def test_answers_and_counters_that_disagree_are_said_to() -> None:
    grown = growth(COUNTS | SPECULATION)
    every = [answer(100, TOLD)] * 4
    found = acceptance(every, every, grown, traffic(grown, OURS))
    assert found.rate.reason == "the answers tell of 48 accepted tokens, the counters of 240"
    agreeing = growth(COUNTS | SPECULATION | {"accepted_tokens": 48.0})
    assert acceptance(every, every, agreeing, traffic(agreeing, OURS)).rate.reason is None


def test_drafts_of_varying_length_have_no_positions() -> None:
    short = TOLD | {"num_draft_tokens": 15}
    grown = growth(COUNTS | SPECULATION)
    found = acceptance([answer(9, short)], [], grown, traffic(grown, OURS))
    first, *rest = found.by_position
    assert first.value == pytest.approx(0.7)
    assert [each.state for each in rest] == ["unknown"] * 2
    assert "draft lengths vary" in (rest[0].reason or "")


def test_nothing_drafted_is_not_an_acceptance_of_zero() -> None:
    nothing = {"num_spec_steps": 0, "num_draft_tokens": 0, "num_accepted_draft_tokens": 0}
    grown = growth(COUNTS | {"drafts": 396.0})
    found = acceptance([answer(9, nothing)], [], grown, traffic(grown, OURS))
    assert found.rate.state == "unknown"
    assert found.source == "none"
    assert found.tokens_per_step.value == pytest.approx(1.0)
