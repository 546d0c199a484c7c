"""What runs is not what the baseline was recorded on, so drift is not told from change."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case
from speccli.core.findings._text import some
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Thresholds
from speccli.core.findings.draft_behind_target import draft_behind

CODE = "BASELINE_KEY_MISMATCH"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """One finding, which names the parts of the key that differ."""
    judgement = case.judgement
    if judgement is None or judgement.baseline is None:
        return
    behind = {unlike.difference for unlike in draft_behind(judgement)}
    unlike = [each for each in judgement.unlike if each.difference not in behind]
    if not unlike:
        return
    engines = sorted({name for each in unlike for name in each.engines})
    differ = "; ".join(f"{each.difference} ({some(each.engines)})" for each in unlike)
    finding = Finding(
        CODE,
        "info" if judgement.forced else "unknown",
        engines[0] if len(engines) == case.total == 1 else FLEET,
        f"{differ}; baseline {judgement.baseline.name}",
        "compared all the same, as asked"
        if judgement.forced
        else "acceptance of another configuration says nothing of this one "
        "(vllm#26191, vllm#40551)",
        "after an intended change record a new baseline (specctl baseline record); else undo it",
    )
    yield Hit(finding, badness=len(engines), engines=0)


RULE = Rule(CODE, check)
