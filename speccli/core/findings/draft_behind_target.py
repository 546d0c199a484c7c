"""The target was updated since the baseline, and the draft was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speccli.core.findings._case import Case
from speccli.core.findings._text import some
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Thresholds

if TYPE_CHECKING:
    from speccli.core.alert.judgement import Judgement, Unlike

CODE = "DRAFT_BEHIND_TARGET"
_TARGET = ("target", "target_revision")
_DRAFT = ("draft", "draft_revision")


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """One finding, for all engines that run such a pair."""
    behind = draft_behind(case.judgement)
    if case.judgement is None or not behind:
        return
    base = case.judgement.baseline
    assert base is not None
    engines = sorted({name for unlike in behind for name in unlike.engines})
    kept = ", ".join(
        f"{part.replace('_', ' ')} {was}" for part in _DRAFT if (was := getattr(base.key, part))
    )
    alone = len(engines) == 1 and case.total == 1
    finding = Finding(
        CODE,
        "warning",
        engines[0] if alone else FLEET,
        f"{'; '.join(str(unlike.difference) for unlike in behind)}, with {kept} as in baseline "
        f"{base.name} ({some(engines)})",
        "the draft was trained for the target as it was: it guesses what the old one would say",
        "fetch or train the draft of this target, then record a baseline; until then acceptance "
        "may be low, answers stay right",
    )
    yield Hit(finding, badness=len(engines), engines=0)


def draft_behind(judgement: Judgement | None) -> list[Unlike]:
    """How the target differs, where the draft is known to be the same."""
    if judgement is None or judgement.baseline is None:
        return []
    was, now = judgement.baseline.key, judgement.running
    same = [
        getattr(was, part)
        for part in _DRAFT
        if getattr(was, part) is not None and getattr(now, part) is not None
    ]
    changed = any(unlike.difference.part in _DRAFT for unlike in judgement.unlike)
    if not same or changed:
        return []
    return [unlike for unlike in judgement.unlike if unlike.difference.part in _TARGET]


RULE = Rule(CODE, check)
