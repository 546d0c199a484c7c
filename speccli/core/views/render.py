"""What is said of a rendering beside its objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speccli.core.errors import ExitCode
from speccli.core.preflight.base import Verdict
from speccli.core.views import plan


def remarks(verdicts: Sequence[Verdict], *, told: bool) -> Iterator[str]:
    """A line a warning; how many more there are. `told`: a table has told them all."""
    if told:
        return
    loud = [each for each in verdicts if each.severity in {"critical", "warning"}]
    for each in loud:
        yield f"{each.severity} {each.rule}: {each.evidence}: {each.cause} → {each.action}"
    if more := len(verdicts) - len(loud):
        yield f"{more} more to know of with -o table"


def exit_code(verdicts: Sequence[Verdict], *, strict: bool) -> ExitCode:
    """0 for what was rendered; `strict`: by the worst note."""
    return plan.exit_code(verdicts) if strict else ExitCode.OK
