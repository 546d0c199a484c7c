"""Acceptance slides ever since the process started, and a restart restores it (vllm#41838)."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case
from speccli.core.findings._text import duration
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds

CODE = "ACCEPTANCE_SLOPE"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Says of each engine that slides by how much, since when."""
    if case.judgement is None:
        return
    at = case.snapshot.at
    for each in case.judgement.slides:
        slide = each.slide
        age = ""
        if each.started is not None and 1e9 < each.started < at:
            age = f", process up {duration(at - each.started)}"
        evidence = (
            f"acceptance down {100 * slide.fall:.1f} points (±{100 * slide.error:.1f}) in "
            f"{slide.hours:.1f} h, a little in every quarter of it, n={slide.looks} checks{age}"
        )
        finding = Finding(
            CODE,
            "warning",
            each.subject,
            evidence,
            "it slides with the age of the process, as in vllm#41838, where the busiest kinds of "
            "prompt slid over hours and only a restart restored them",
            "send the same prompts to a freshly started engine; if it does better, restart this "
            "one, and add to vllm#41838",
            at - 3600 * slide.hours,
        )
        yield Hit(finding, badness=slide.fall)


RULE = Rule(CODE, check)
