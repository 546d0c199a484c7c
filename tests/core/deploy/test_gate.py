"""Critical findings keep a recipe out, until somebody accepts them by name."""

from __future__ import annotations

import pytest

from speccli.core.deploy.gate import GateError, gate
from speccli.core.errors import ExitCode
from speccli.core.preflight.base import Verdict


def verdict(rule: str, severity: str = "critical") -> Verdict:
    return Verdict(rule, severity, "512 and 500", "they differ", "change it")  # type: ignore[arg-type]


def test_warnings_pass() -> None:
    gate([verdict("P-VOCAB", "warning"), verdict("R-SHAPE", "unknown")], ()).check()


def test_a_refusal_names_the_finding_what_to_do_and_how_to_accept() -> None:
    judged = gate([verdict("R-MEMORY"), verdict("P-VOCAB"), verdict("P-VOCAB")], ())
    with pytest.raises(GateError) as refused:
        judged.check()
    assert refused.value.exit_code is ExitCode.CRITICAL
    assert refused.value.message.startswith("refused, nothing was applied: PLAN_MEMORY: 512")
    assert "(and PAIR_VOCAB)" in refused.value.message
    assert "--accept PLAN_MEMORY --accept PAIR_VOCAB" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["PAIR_VOCAB", "P-VOCAB", "pair_vocab"])
def test_what_is_accepted_passes_and_is_remembered(name: str) -> None:
    judged = gate([verdict("P-VOCAB")], (name,))
    judged.check()
    assert judged.accepted == ("PAIR_VOCAB",)
    assert judged.idle == ()


def test_accepting_one_accepts_no_other() -> None:
    judged = gate([verdict("P-VOCAB"), verdict("D-STOCK")], ("PAIR_VOCAB",))
    assert [each.code for each in judged.refusing] == ["DEPLOY_STOCK"]


def test_accepting_what_was_not_found_is_told() -> None:
    assert gate([], ("PAIR_VOCAB",)).idle == ("PAIR_VOCAB",)
