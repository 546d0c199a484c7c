"""From what is found at one check to what is said: N of the last M checks, and a way to clear.

A finding that keeps its own time (a hold, a sequential test) or that cannot get better by itself
is said at once. Any other must be there in N of the last M checks. It goes when it was absent from
`clear` checks in a row, and a number is only taken for absent once it is 5 % better than needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from speccli.core.errors import UsageError
from speccli.core.findings.base import FLEET, Finding, Thresholds

AT_ONCE = frozenset(
    {
        "ZERO_ACCEPTANCE",
        "SPEC_NOT_ACTIVE",
        "STALLED",
        "LOW_ACCEPTANCE",
        "ACCEPTANCE_DRIFT",
        "ACCEPTANCE_SLOPE",
    }
)
"""Codes that wait for nothing: they have waited, or waiting would not help."""
_MARGIN = 0.05
_MOST = 100


@dataclass(frozen=True, slots=True)
class Policy:
    """How often something must be seen."""

    need: int = 1
    """Checks among the last `of` that must have seen it."""
    of: int = 1
    clear: int = 1
    """Checks in a row that must not have seen it before it is over."""

    @classmethod
    def parse(cls, text: str, clear: int) -> Policy:
        """`2/3`, `2 of 3`, or `2` for two in a row.

        Raises:
            UsageError: not of that form.
        """
        found = re.fullmatch(r"\s*(\d{1,3})\s*(?:(?:/|of)\s*(\d{1,3}))?\s*", text)
        need = int(found[1]) if found else 0
        of = int(found[2] or need) if found else 0
        if not 1 <= need <= of <= _MOST:
            raise UsageError(
                f"--confirm {text!r} is not N/M with N at most M, and M at most {_MOST}",
                hint="write 2/3: seen in 2 of the last 3 checks",
            )
        return cls(need, of, max(1, clear))


@dataclass(frozen=True, slots=True)
class Change:
    """Something that began to be said, changed its severity, or is over."""

    kind: Literal["firing", "changed", "resolved"]
    finding: Finding


@dataclass(frozen=True, slots=True)
class Said:
    """What is said at one check."""

    findings: tuple[Finding, ...]
    """What is so, infos included, in the order of the rules."""
    pending: tuple[Finding, ...]
    """What was seen and is not confirmed yet, or has not lasted long enough."""
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Record:
    """One code at one subject."""

    seen: list[bool]
    firing: bool = False
    absent: int = 0
    last: Finding | None = None


class Confirm:
    """Remembers what was seen; one owner, called once a check."""

    def __init__(self, policy: Policy, state: Any = None) -> None:
        """`state`: what `to_json` gave; one that cannot be used is dropped."""
        self.policy = policy
        self._records: dict[tuple[str, str], _Record] = {}
        try:
            for code, subject, seen, firing, absent, last in state or ():
                finding = None if last is None else Finding(**last)
                record = _Record([bool(s) for s in seen], bool(firing), int(absent), finding)
                self._records[str(code), str(subject)] = record
        except (TypeError, ValueError):
            self._records = {}

    def to_json(self) -> list[Any]:
        """Its whole state."""
        return [
            [*key, r.seen, r.firing, r.absent, None if r.last is None else asdict(r.last)]
            for key, r in self._records.items()
        ]

    @property
    def firing(self) -> frozenset[tuple[str, str]]:
        """Code and subject of what is being said."""
        return frozenset(key for key, record in self._records.items() if record.firing)

    def take(
        self, findings: Sequence[Finding], lenient: Sequence[Finding] = (), *, blind: bool = False
    ) -> Said:
        """One check.

        Args:
            findings: What the rules find.
            lenient: What they find against thresholds that are a little harder to keep.
            blind: No engine could be read: that nothing is seen then means nothing.
        """
        said: list[Finding] = []
        pending: list[Finding] = []
        changes: list[Change] = []
        still = {(f.code, f.subject): f for f in lenient} if not blind else {}
        here = {(f.code, f.subject): f for f in findings if f.severity != "info"}
        for key, record in self._records.items():
            if record.firing and key not in here and key in still:
                here[key] = still[key]
        self._renamed(here)
        for finding in findings:
            if finding.severity == "info":
                said.append(finding)
        for key, finding in here.items():
            record = self._records.setdefault(key, _Record([]))
            self._saw(record, True)
            was = record.last
            if record.firing or self._confirmed(finding, record):
                if not record.firing:
                    changes.append(Change("firing", finding))
                elif was is not None and was.severity != finding.severity:
                    changes.append(Change("changed", finding))
                record.firing, record.absent, record.last = True, 0, finding
                said.append(finding)
            else:
                record.last = finding
                pending.append(self._waiting(finding, record))
        if not blind:
            self._absent(here, said, changes)
        order = {id(f): i for i, f in enumerate(findings)}
        said.sort(key=lambda f: (_ORDER[f.severity], order.get(id(f), len(order))))
        return Said(tuple(said), tuple(pending), tuple(changes))

    def _confirmed(self, finding: Finding, record: _Record) -> bool:
        return finding.code in AT_ONCE or sum(record.seen) >= self.policy.need

    def _saw(self, record: _Record, seen: bool) -> None:
        record.seen = [*record.seen, seen][-self.policy.of :]

    def _waiting(self, finding: Finding, record: _Record) -> Finding:
        count = f"seen in {sum(record.seen)} of the last {len(record.seen)} checks"
        return replace(finding, evidence=f"{finding.evidence} ({count}, {self.policy.need} needed)")

    def _absent(
        self,
        here: dict[tuple[str, str], Finding],
        said: list[Finding],
        changes: list[Change],
    ) -> None:
        """Count the checks that did not see what was seen before."""
        for key, record in list(self._records.items()):
            if key in here:
                continue
            self._saw(record, False)
            record.absent += 1
            if record.firing and record.absent < self.policy.clear and record.last is not None:
                left = f"not seen for {record.absent} of {self.policy.clear} checks"
                said.append(replace(record.last, evidence=f"{record.last.evidence} ({left})"))
            elif record.firing and record.last is not None:
                changes.append(Change("resolved", record.last))
                del self._records[key]
            elif not any(record.seen):
                del self._records[key]

    def _renamed(self, here: dict[tuple[str, str], Finding]) -> None:
        """What is now said of the fleet was said of an engine, or the other way round: no news."""
        for key in [k for k in here if k not in self._records]:
            code, subject = key
            gone = [k for k in self._records if k[0] == code and k not in here]
            old = [k for k in gone if FLEET in (k[1], subject)]
            if not old:
                continue
            record = max((self._records[k] for k in old), key=lambda r: (r.firing, sum(r.seen)))
            for k in old:
                del self._records[k]
            self._records[key] = record


_ORDER = {"critical": 0, "warning": 1, "unknown": 2, "info": 3}


def lenient(thresholds: Thresholds) -> Thresholds:
    """The thresholds that what is firing must keep to be over it."""

    def under(limit: float | None) -> float | None:
        return None if limit is None else limit * (1 - _MARGIN)

    return replace(
        thresholds,
        acceptance_floor=min(1.0, thresholds.acceptance_floor * (1 + _MARGIN)),
        hold_s=0.0,
        cliff_ratio=thresholds.cliff_ratio * (1 + _MARGIN),
        queue_wait_ms=under(thresholds.queue_wait_ms),
        ttft_p99_ms=under(thresholds.ttft_p99_ms),
        tpot_p99_ms=under(thresholds.tpot_p99_ms),
        cost_per_1m_usd=under(thresholds.cost_per_1m_usd),
    )
