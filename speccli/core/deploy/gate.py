"""What keeps a recipe from being deployed: critical findings that nobody accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speccli.core.errors import ExitCode, SpecctlError
from speccli.core.preflight.base import Verdict, in_order


class GateError(SpecctlError):
    """Critical findings stand against it."""

    exit_code = ExitCode.CRITICAL


@dataclass(frozen=True, slots=True)
class Gate:
    """What was found, and what of it keeps the recipe out."""

    verdicts: tuple[Verdict, ...]
    """All of it, worst first."""
    refusing: tuple[Verdict, ...]
    """Critical, and not accepted."""
    accepted: tuple[str, ...]
    """Codes of critical findings that were accepted."""
    idle: tuple[str, ...]
    """Codes that were accepted and were not found."""

    def check(self) -> None:
        """Pass, or say what is in the way.

        Raises:
            GateError: critical findings stand.
        """
        if not self.refusing:
            return
        first, codes = self.refusing[0], list(dict.fromkeys(each.code for each in self.refusing))
        others = [code for code in codes if code != first.code]
        more = f" (and {', '.join(others)})" if others else ""
        accept = " ".join(f"--accept {code}" for code in codes)
        raise GateError(
            f"refused, nothing was applied: {first.code}: {first.evidence}: {first.cause}{more}",
            hint=f"{first.action}; or deploy it all the same with {accept}",
        )


def gate(verdicts: Iterable[Verdict], accept: Sequence[str]) -> Gate:
    """Judge. `accept`: codes (`PAIR_VOCAB`) or rules (`P-VOCAB`), in capitals or not."""
    wanted = {name.upper().replace("-", "_"): name for name in accept}
    ordered = in_order(verdicts)
    refusing, accepted, used = [], [], set()
    for verdict in ordered:
        if verdict.severity != "critical":
            continue
        names = {verdict.code, verdict.rule.replace("-", "_")}
        if found := names & set(wanted):
            accepted.append(verdict.code)
            used |= found
        else:
            refusing.append(verdict)
    idle = tuple(given for name, given in wanted.items() if name not in used)
    return Gate(tuple(ordered), tuple(refusing), tuple(dict.fromkeys(accepted)), idle)
