"""Requests wait longer for their first scheduling than the target allows."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.findings._case import Case, Scope
from speccli.core.findings._text import over
from speccli.core.findings.base import Finding, Hit, Rule, Thresholds
from speccli.core.stats.measures import larger, queue_backlog_ms, queue_observed_ms
from speccli.core.values import Number

CODE = "QUEUE_WAIT"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """The fleet where it is over the target as a whole, else the engines that are."""
    target = thresholds.queue_wait_ms
    if target is None:
        return
    over_target = [
        Hit(_finding(scope, target, wait, wide=False), badness=wait.value or 0.0)
        for scope in case.engines
        if (wait := _wait(scope)).value is not None and wait.value > target
    ]
    whole = _wait(case.fleet)
    if whole.value is not None and whole.value > target:
        yield Hit(_finding(case.fleet, target, whole, wide=True), badness=whole.value)
    else:
        yield from over_target


def _wait(scope: Scope) -> Number:
    return larger(queue_observed_ms(scope.subject), queue_backlog_ms(scope.subject))


def _finding(scope: Scope, target: float, wait: Number, *, wide: bool) -> Finding:
    observed, backlog = queue_observed_ms(scope.subject), queue_backlog_ms(scope.subject)
    waiting = sum(gauges.get("waiting", 0.0) for gauges in scope.subject.gauges)
    n = f", n={observed.n} requests" if observed.n else ""
    evidence = (
        f"queue wait {wait.value:,.0f} ms (target {target:,.0f} ms): observed {_ms(observed)}, "
        f"backlog {_ms(backlog)}, {waiting:.0f} waiting, {over(scope.pool)}{n}"
    )
    if wide:
        cause = "more arrives than the fleet takes in: too few replicas, or a full KV cache"
        action = "add replicas; a KV cache near 1.0 wants a lower --max-model-len or more memory"
    else:
        cause = "requests pile up on this engine while others have room (vllm#36748)"
        action = "check the router's balancing over engines and data-parallel ranks"
    return Finding(CODE, "warning", scope.name, evidence, cause, action)


def _ms(number: Number) -> str:
    return "unknown" if number.value is None else f"{number.value:,.0f} ms"


RULE = Rule(CODE, check)
