"""One snapshot, examined: judged, confirmed, put into a verdict. Shared by check, replay, watch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from speccli.core.alert.confirm import Confirm, Policy, lenient
from speccli.core.alert.judge import Judge
from speccli.core.alert.judgement import Judgement
from speccli.core.alert.memory import Memory
from speccli.core.alert.verdict import Verdict, readable, verdict_of
from speccli.core.baseline import Baseline, Key
from speccli.core.findings import evaluate, waiting
from speccli.core.findings.base import Thresholds
from speccli.core.stats.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Terms:
    """What a deployment is held against."""

    thresholds: Thresholds = Thresholds()
    baseline: Baseline | None = None
    running: Key = Key()
    """Parts of the key that no engine tells."""
    force: bool = False
    """Compare with a baseline of another key."""
    policy: Policy = Policy()
    require_traffic: bool = False


class Examiner:
    """Owns the judge and what is confirmed; called once a check."""

    def __init__(self, terms: Terms, memory: Memory, *, remembers: bool = True) -> None:
        """`remembers`: whether a next check will know of this one; else nothing can wait."""
        self.terms = terms
        self.judge = Judge(
            terms.baseline,
            terms.thresholds,
            memory.judge,
            running=terms.running,
            force=terms.force,
        )
        self.confirm = Confirm(terms.policy if remembers else Policy(), memory.holds)
        self.judgement: Judgement | None = None
        """What the judge knew at the last look."""

    @property
    def note(self) -> str | None:
        """What the operator should know of the memory."""
        return self.judge.note

    def examine(self, snapshot: Snapshot) -> Verdict:
        """The verdict on one snapshot."""
        terms = self.terms
        judgement = self.judgement = self.judge.judge(snapshot)
        findings = evaluate(snapshot, terms.thresholds, judgement)
        firing = self.confirm.firing
        still = evaluate(snapshot, lenient(terms.thresholds), judgement) if firing else ()
        said = self.confirm.take(findings, still, blind=not readable(snapshot))
        firing = self.confirm.firing
        held = (
            each
            for each in waiting(snapshot, terms.thresholds, judgement)
            if (each.code, each.subject) not in firing
        )
        said = replace(said, pending=(*said.pending, *held))
        base = terms.baseline
        return verdict_of(
            snapshot,
            said,
            terms.thresholds,
            require_traffic=terms.require_traffic,
            baseline=None if base is None else (base.name, base.rate),
        )

    def remembered(self, memory: Memory) -> Memory:
        """The memory with what is known now."""
        return replace(memory, judge=self.judge.state(), holds=self.confirm.to_json())
