"""Proof of speculation on real vLLM servers, each with another method."""

from __future__ import annotations

import pytest

from speccli.core.deploy.place import ask_at
from speccli.core.kube.proof import prove
from speccli.core.kube.proven import ServerProof, Wanted
from tests.e2e.harness import Server

pytestmark = pytest.mark.real_vllm


def proof(server: Server, method: str, floor: float = 0.4) -> ServerProof:
    return prove(server.url, ask_at(server.url, 120.0), Wanted(method, floor))


def test_a_head_is_proven_and_a_higher_floor_refutes_it(tiny_eagle3: Server) -> None:
    told = proof(tiny_eagle3, "eagle3")
    assert told.verdict == "proven", told
    assert not told.simulated
    higher = proof(tiny_eagle3, "eagle3", floor=0.99)
    assert (higher.verdict, higher.code) == ("refuted", "LOW_ACCEPTANCE")


def test_drafts_where_the_recipe_says_none_are_found(tiny_eagle3: Server) -> None:
    assert proof(tiny_eagle3, "none").verdict == "refuted"


def test_a_head_of_one_good_position_is_proven_with_its_cliff(tiny_peagle: Server) -> None:
    told = proof(tiny_peagle, "p-eagle")
    assert (told.verdict, told.code) == ("proven", "PARALLEL_DRAFT_CLIFF"), told


def test_a_lookup_is_proven_by_text_that_repeats_itself(tiny_ngram: Server) -> None:
    told = proof(tiny_ngram, "ngram")
    assert told.verdict == "proven", told


def test_no_speculation_is_proven_where_none_is_wanted(tiny_none: Server) -> None:
    assert proof(tiny_none, "none").verdict == "proven"
    told = proof(tiny_none, "eagle3")
    assert (told.verdict, told.code) == ("refuted", "SPEC_NOT_ACTIVE")


def test_a_trained_head_is_proven_through_a_chat_template(smollm2_eagle3: Server) -> None:
    told = proof(smollm2_eagle3, "eagle3", floor=0.2)
    assert told.verdict == "proven", told
    assert told.text
