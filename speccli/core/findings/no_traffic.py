"""Nothing to do, nothing done: not a fault, but the reason why there are no numbers."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case
from speccli.core.findings._text import over, plural
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Thresholds
from speccli.core.stats.increase import Pool

CODE = "NO_TRAFFIC"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """The fleet once where all of it idles, else each idle engine among busy ones."""
    idle = [s for s in case.engines if s.engine and s.engine.state == "no-traffic"]
    if case.snapshot.pooled is not None:
        if _summed_idle(case):
            yield Hit(_finding(FLEET, case.fleet.pool, case.total, alone=True), engines=case.total)
        return
    if len(idle) > 1 and len(idle) == len(case.engines):
        yield Hit(_finding(FLEET, case.fleet.pool, len(idle), alone=True), engines=len(idle))
        return
    for scope in idle:
        yield Hit(_finding(scope.name, scope.pool, 1, alone=len(case.engines) == 1))


def _summed_idle(case: Case) -> bool:
    tokens = case.fleet.pool.sums("generation_tokens")
    busy = sum(g.get("running", 0) + g.get("waiting", 0) for g in case.fleet.subject.gauges)
    return tokens is not None and tokens[0] == 0 and busy == 0


def _finding(name: str, pool: Pool, engines: int, *, alone: bool) -> Finding:
    who = f" on {plural(engines, 'engine')}" if engines > 1 else ""
    evidence = f"0 tokens, none running, none waiting{who}, {over(pool)}"
    if alone:
        cause = "no requests arrive"
        action = "send one and look again; if users are waiting, look at the router before it"
    else:
        cause = "it gets no requests while others do"
        action = "check that the load balancer has it, and that it is ready (/v1/models)"
    return Finding(CODE, "info", name, evidence, cause, action)


RULE = Rule(CODE, check)
