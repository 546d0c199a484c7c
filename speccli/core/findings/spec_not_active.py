"""Tokens are generated, and nothing is drafted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speccli.core.engines.registry import adapter_named
from speccli.core.engines.vllm import PER_ENGINE_SPEC_METRICS_SINCE
from speccli.core.findings._case import Case, Scope, decoded, flat_since, started
from speccli.core.findings._text import over
from speccli.core.findings.base import Finding, Hit, Rule, Severity, Thresholds
from speccli.core.stats.increase import Pool
from speccli.core.stats.measures import tokens_per_step
from speccli.core.stats.snapshot import EngineSnapshot

CODE = "SPEC_NOT_ACTIVE"
_LOOKUP = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that have no draft where a text repeats nothing."""
_SEVERAL_PER_STEP = 1.1
"""Tokens per step from which speculation must be on, whatever the page shows."""
_SINCE = ".".join(map(str, PER_ENGINE_SPEC_METRICS_SINCE))
_DECLARED = "the server says that it runs without a speculative configuration"
_DP = f"before vLLM {_SINCE} (PR #24049) data-parallel servers exposed no speculation series"


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """Judges every engine with enough traffic."""
    if thresholds.expect_speculation is False:
        return
    for scope in case.scopes:
        if (why := _lost(case, scope, thresholds)) is not None:
            yield Hit(_without_configuration(scope, why), badness=decoded(scope.pool) or 0.0)
            continue
        for pool in scope.pools:
            tokens = decoded(pool)
            if tokens is None or tokens < max(1.0, thresholds.min_tokens):
                continue
            finding = _judge(case, scope, pool, thresholds)
            if finding is not None:
                yield Hit(finding, badness=tokens)
            break


def _judge(case: Case, scope: Scope, pool: Pool, thresholds: Thresholds) -> Finding | None:
    drafts = pool.sums("drafts") or pool.sums("draft_tokens")
    if drafts is not None:
        # Intervals that contradict themselves are left out: 0 is then not a count of drafts.
        return _silent(scope, pool) if drafts[0] <= 0 and not pool.torn else None
    if "drafts" in adapter_named(scope.subject.kind).absent:
        return _without_counters(scope, pool, thresholds)
    if _told_none(scope.engine):
        return _declared(scope, pool)
    if scope.engine is not None and scope.engine.meant == "none":
        return _meant(scope, pool)
    return _no_series(case, scope, pool)


def _silent(scope: Scope, pool: Pool) -> Finding:
    """The series are there and stay at 0."""
    if scope.method in _LOOKUP:
        return _finding(
            scope,
            pool,
            "0 drafts",
            f"{scope.method} proposes only where the text repeats itself, and it did not once",
            "compare tokens/s with speculation off: this traffic gains nothing from it",
            "warning",
        )
    return _finding(
        scope,
        pool,
        "0 drafts",
        "speculation is configured and never proposes: K = 0 at this batch size "
        "(num_speculative_tokens_per_batch_size), requests that switch it off (logprobs, "
        "vllm#34497), or prompts longer than the draft's max_model_len",
        "send one plain request and watch vllm:spec_decode_num_drafts_total; "
        "look for the draft model in the start-up log",
    )


def _without_counters(scope: Scope, pool: Pool, thresholds: Thresholds) -> Finding | None:
    """An engine whose only word on acceptance is a gauge: judged only when it must speculate."""
    lengths = [g["acceptance_length"] for g in scope.subject.gauges if "acceptance_length" in g]
    if thresholds.expect_speculation is not True or any(length >= 1 for length in lengths):
        return None
    if _told_none(scope.engine):
        return None  # its own word is judged, and that of the others
    action = "start it with a speculative algorithm (--speculative-algorithm)"
    if not lengths:
        return _finding(
            scope,
            pool,
            "no acceptance length on its page",
            "whether it speculates cannot be told: it has no counters of drafts",
            f"see its start-up log; {action}",
            "unknown",
        )
    return _finding(
        scope,
        pool,
        "its acceptance length gauge shows no verify step",
        "the engine runs without speculation",
        action,
    )


def configured_without(finding: Finding) -> bool:
    """Whether it is the server's own word: nothing is wrong with a draft, there is none."""
    return finding.code == CODE and finding.cause == _DECLARED


def _lost(case: Case, scope: Scope, thresholds: Thresholds) -> str | None:
    """Why an engine should speculate that says itself that it does not; None where nothing does.

    No traffic is waited for: its own word is certain.
    """
    engine = scope.engine
    if engine is None or not _told_none(engine) or engine.meant == "none":
        return None
    if engine.meant is not None:
        return f"it was deployed with {engine.meant}"
    if case.judgement is not None and engine.name in case.judgement.speculated:
        return case.judgement.speculated[engine.name]
    if thresholds.expect_speculation is True and engine.pool != "standby" and _none_does(case):
        return "it should speculate (--method)"
    return None


def _none_does(case: Case) -> bool:
    """Whether every engine says that it has no draft.

    An operator says it of a list, which may have a baseline's arm in it, not of each of its
    engines; the pool that stands by, and what was deployed without a draft, are not meant.
    """
    engines = case.snapshot.engines
    meant = [each for each in engines if each.pool != "standby" and each.meant != "none"]
    return all(_told_none(engine) for engine in meant)


def _without_configuration(scope: Scope, why: str) -> Finding:
    since = started(scope.engine) if scope.engine is not None else None
    evidence = f"{why}, and has no speculative configuration now"
    action = (
        "start it with the --speculative-config that it had; where it is meant so, say "
        "--method none (once is enough)"
    )
    return Finding(CODE, "critical", scope.name, evidence, _DECLARED, action, since)


def _declared(scope: Scope, pool: Pool) -> Finding:
    return _finding(
        scope,
        pool,
        "no speculation series",
        _DECLARED,
        "add --speculative-config and restart; where it is meant so, say --method none",
        "info",
    )


def _meant(scope: Scope, pool: Pool) -> Finding:
    """Deployed so by specctl: a recipe without a draft, or a move down the ladder."""
    return _finding(
        scope,
        pool,
        "no speculation series",
        "it was deployed without a draft",
        "nothing; specctl fallback restore brings the draft back where it was left",
        "info",
    )


def _no_series(case: Case, scope: Scope, pool: Pool) -> Finding:
    engine = scope.engine
    several = engine is not None and case.servers[engine.target] > 1
    release = _release(engine.version) if engine else None
    if several and release is not None and release < PER_ENGINE_SPEC_METRICS_SINCE:
        return _hidden(scope, pool)
    cause = "the engine runs without speculation: no speculative configuration, or one ignored"
    if scope.method not in {"none", "unknown"}:
        cause = f"{scope.method} was asked for and the engine runs without it"
    return _finding(
        scope,
        pool,
        "no speculation series",
        f"{cause}; or {_DP}" if several and release is None else cause,
        "look for speculative_config in the start-up log; give --speculative-config with its "
        "method; a Speculators model belongs in the positional argument (vllm PR #25250)",
    )


def _hidden(scope: Scope, pool: Pool) -> Finding:
    """A version that shows nothing with several engines: tokens per step still tell."""
    per_step = tokens_per_step(scope.subject).value
    on = per_step is not None and per_step >= _SEVERAL_PER_STEP
    return _finding(
        scope,
        pool,
        "no speculation series",
        f"{_DP}; " + ("tokens per step say that it is on" if on else "it may be on or off"),
        f"upgrade to vLLM {_SINCE} or newer; until then tokens per step above 1 prove speculation",
        "warning" if on else "critical",
    )


def _finding(
    scope: Scope,
    pool: Pool,
    what: str,
    cause: str,
    action: str,
    severity: Severity = "critical",
) -> Finding:
    tokens = pool.sums("generation_tokens") or (0.0,)
    per_step = tokens_per_step(scope.subject).value
    told = "" if per_step is None else f", {per_step:.2f} tokens per step"
    evidence = f"{tokens[0]:,.0f} tokens generated and {what} {over(pool)}{told}"
    since = flat_since(scope.engine, "draft_tokens")
    if since is None and scope.engine is not None and pool.sums("draft_tokens") is None:
        since = started(scope.engine)
    return Finding(CODE, severity, scope.name, evidence, cause, action, since)


def _told_none(engine: EngineSnapshot | None) -> bool:
    """Whether the server itself says so; the absence of its series says nothing of intent."""
    return engine is not None and engine.method == "none" and engine.method_told


def _release(version: str | None) -> tuple[int, ...] | None:
    """`0.10.1.1+cu128` → (0, 10, 1, 1)."""
    match = re.match(r"v?(\d{1,6}(?:\.\d{1,6})*)", version or "")
    return tuple(map(int, match.group(1).split("."))) if match else None


RULE = Rule(CODE, check)
