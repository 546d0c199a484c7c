"""Proof by counters between a few requests: proven, refuted, or unknown with a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from speccli.core.errors import UnreachableError
from speccli.core.kube.proof import prove
from speccli.core.kube.proven import Proof, ServerProof, Wanted, insane

K = 3
WORDS = "Cold air falls and warm air rises, so a pump moves heat out. "


@dataclass
class Server:
    """An engine whose counters grow with each answer, as its acceptance has it."""

    accepted: tuple[int, ...] | None = (70, 50, 30)
    """Of a hundred drafts, by position; None: it does not speculate."""
    text: str = WORDS * 4
    tokens: int = 96
    simulated: bool = False
    key: bool = False
    chat: bool = True
    fails: int = 0
    """Status of completions, where they fail."""
    busy: int = 0
    """How many completions are turned away before one is taken."""
    chat_key: bool = False
    """Whether completions alone want a key."""
    others: int = 0
    """Tokens of others' requests, at each look at /metrics."""
    drafts: float = 0.0
    made: float = 0.0
    asked: list[str] = field(default_factory=list)

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, bytes]:
        self.asked.append(f"{method} {path}")
        if path == "/metrics":
            self._answer(self.others)
            return 200, self._page()
        if self.key or (self.chat_key and "completions" in path):
            return 401, b'{"error": "Unauthorized"}'
        if path == "/v1/models":
            owner = "specctl-simulator" if self.simulated else "vllm"
            return 200, json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode()
        if self.busy > 0:
            self.busy -= 1
            return 429, b'{"error": {"message": "slow down"}}'
        if self.fails:
            return self.fails, b'{"error": {"message": "engine is dead"}}'
        if "chat" in path and not self.chat:
            return 400, b'{"message": "no chat template is defined"}'
        self._answer(self.tokens)
        choice = {"message": {"content": self.text}} if "chat" in path else {"text": self.text}
        usage = {"completion_tokens": self.tokens}
        return 200, json.dumps({"choices": [choice], "usage": usage}).encode()

    def _answer(self, tokens: int) -> None:
        self.made += tokens
        if self.accepted is not None:
            self.drafts += tokens / (1 + sum(self.accepted) / 100)

    def _page(self) -> bytes:
        labels = 'engine="0",model_name="m"'
        lines = [f"vllm:generation_tokens_total{{{labels}}} {int(self.made)}"]
        if self.accepted is not None:
            drafts = int(self.drafts)
            each = [int(drafts * rate / 100) for rate in self.accepted]
            lines += [
                f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}",
                f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {K * drafts}",
                f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {sum(each)}",
            ]
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f'{name}{{{labels},position="{i}"}} {n}' for i, n in enumerate(each)]
        return ("\n".join(lines) + "\n").encode()


def proof(server: Server, method: str = "eagle3", floor: float = 0.4) -> ServerProof:
    times = iter(float(second) for second in range(1_000_000_000, 1_000_100_000))
    return prove(
        "pod", server, Wanted(method, floor), clock=lambda: next(times), sleep=lambda _: None
    )


def test_drafts_that_rise_and_are_accepted_are_proof() -> None:
    told = proof(Server())
    assert told.verdict == "proven"
    assert told.requests == 4
    assert told.first_position == pytest.approx(0.7, abs=0.02)
    assert "position 0 0." in told.evidence
    assert "(floor 0.4)" in told.evidence


def test_without_a_chat_template_a_plain_completion_is_asked_for() -> None:
    server = Server(chat=False)
    assert proof(server).verdict == "proven"
    assert "POST /v1/completions" in server.asked


def test_a_server_that_does_not_speculate_is_refuted() -> None:
    told = proof(Server(accepted=None))
    assert (told.verdict, told.code) == ("refuted", "SPEC_NOT_ACTIVE")
    assert told.drafts is None


def test_drafts_that_stay_at_nought_are_refuted() -> None:
    server = Server(accepted=(70, 50, 30))
    server._answer = lambda tokens: setattr(server, "made", server.made + tokens)  # type: ignore[method-assign]
    told = proof(server)
    assert (told.verdict, told.code, told.drafts) == ("refuted", "SPEC_NOT_ACTIVE", 0.0)


def test_drafts_of_which_nothing_is_accepted_are_refuted() -> None:
    told = proof(Server(accepted=(0, 0, 0)))
    assert (told.verdict, told.code) == ("refuted", "ZERO_ACCEPTANCE")


def test_a_first_position_under_the_floor_is_refuted() -> None:
    told = proof(Server(accepted=(30, 10, 5)))
    assert (told.verdict, told.code) == ("refuted", "LOW_ACCEPTANCE")
    assert proof(Server(accepted=(30, 10, 5)), floor=0.2).verdict == "proven"


def test_a_lookup_is_not_held_to_the_floor() -> None:
    server = Server(accepted=(30, 10, 5))
    assert proof(server, "ngram").verdict == "proven"


def test_a_lookup_that_found_nothing_is_unknown_and_says_why() -> None:
    server = Server()
    server._answer = lambda tokens: setattr(server, "made", server.made + tokens)  # type: ignore[method-assign]
    told = proof(server, "ngram")
    assert told.verdict == "unknown"
    assert "repeats" in told.cause


def test_a_cliff_is_proven_and_told() -> None:
    told = proof(Server(accepted=(72, 9, 2)), "p-eagle")
    assert (told.verdict, told.code) == ("proven", "PARALLEL_DRAFT_CLIFF")
    assert told.cause


def test_without_a_draft_it_must_serve_and_draft_nothing() -> None:
    assert proof(Server(accepted=None), "none").verdict == "proven"
    drafting = proof(Server(), "none")
    assert drafting.verdict == "refuted"
    assert "although the recipe says none" in drafting.cause


def test_a_server_that_is_ready_and_fails_requests_is_refuted() -> None:
    told = proof(Server(fails=500))
    assert told.verdict == "refuted"
    assert "HTTP 500" in told.evidence


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_takes_no_request_now_is_unknown(status: int) -> None:
    told = proof(Server(fails=status))
    assert told.verdict == "unknown"
    assert f"it takes no request of ours now: HTTP {status}" in told.evidence


def test_a_request_that_was_turned_away_is_sent_again() -> None:
    assert proof(Server(busy=3)).verdict == "proven"


def test_completions_that_want_a_key_are_judged_by_others_traffic() -> None:
    told = proof(Server(chat_key=True, others=100))
    assert (told.verdict, told.own) == ("proven", False)
    assert proof(Server(chat_key=True)).verdict == "unknown"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("The!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", "over and over", id="one-sign"),
        pytest.param("Well" + "\N{REPLACEMENT CHARACTER}" * 30, "", id="no-text"),
        pytest.param("", "empty", id="nothing"),
    ],
)
def test_answers_that_are_no_text_are_refuted(text: str, words: str) -> None:
    told = proof(Server(text=text))
    assert told.verdict == "refuted"
    assert words in told.evidence


@pytest.mark.parametrize("text", ["12345 12345 12345 12345", "tok7 tok9 tok7 tok9 " * 9, "aaa"])
def test_repetition_alone_is_no_garbage(text: str) -> None:
    assert insane([text]) is None


def test_short_answers_are_asked_again_and_then_unknown() -> None:
    told = proof(Server(tokens=4))
    assert told.requests == 12
    assert told.verdict == "unknown"
    assert "too few to judge" in told.evidence


def test_an_api_key_keeps_us_out_and_others_traffic_is_counted_instead() -> None:
    told = proof(Server(key=True, others=100))
    assert (told.verdict, told.own) == ("proven", False)
    assert told.evidence.startswith("others' requests")
    silent = proof(Server(key=True, accepted=None, others=100))
    assert (silent.verdict, silent.code) == ("refuted", "SPEC_NOT_ACTIVE")


def test_an_api_key_and_no_traffic_is_unknown() -> None:
    told = proof(Server(key=True))
    assert told.verdict == "unknown"
    assert "API key" in told.cause


def test_a_server_that_cannot_be_reached_is_unknown() -> None:
    def ask(*_: Any, **__: Any) -> tuple[int, bytes]:
        raise UnreachableError("pod chat does not answer at port 8000", hint="a NetworkPolicy?")

    told = prove("pod", ask, Wanted("eagle3", 0.4))
    assert told.verdict == "unknown"
    assert told.evidence == "pod chat does not answer at port 8000"
    assert told.action == "a NetworkPolicy?"


def test_a_page_that_is_none_is_unknown() -> None:
    def ask(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        return (200, b"<html>login</html>")

    assert prove("pod", ask, Wanted("eagle3", 0.4)).verdict == "unknown"


def test_simulated_is_told() -> None:
    assert proof(Server(simulated=True)).simulated


def one(verdict: Any) -> ServerProof:
    return ServerProof("pod", "main", verdict, "eagle3", "")


def test_the_worst_server_counts_and_none_asked_is_unknown() -> None:
    assert Proof((one("proven"), one("refuted"), one("unknown")), 3, "t").verdict == "refuted"
    assert Proof((one("proven"), one("unknown")), 2, "t").verdict == "unknown"
    assert Proof((one("proven"),), 1, "t").verdict == "proven"
    assert Proof((), 0, "t", "no pod").verdict == "unknown"
