"""Engines that should be alike and are not: their numbers are added up, and mean two things.

Pools of one deployment are set up to differ: a standby drafts with n-gram, a canary runs another
version. So engines are compared inside a pool; one of which no pool is known, with every other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from speccli.core.findings._case import Case
from speccli.core.findings._text import some
from speccli.core.findings.base import FLEET, Finding, Hit, Rule, Thresholds
from speccli.core.stats.snapshot import EngineSnapshot

CODE = "VERSION_SKEW"
_Groups = Mapping[str, Sequence[EngineSnapshot]]


def check(case: Case, thresholds: Thresholds) -> Iterator[Hit]:
    """One finding a model."""
    models: dict[str | None, list[EngineSnapshot]] = {}
    for engine in case.snapshot.engines:
        if engine.increase is not None:
            models.setdefault(engine.model, []).append(engine)
    for model, engines in models.items():
        said = list(dict.fromkeys(d for pool in _pools(engines) for d in _differences(pool)))
        if said:
            named = f"{model}: " if len(models) > 1 and model else ""
            yield Hit(_finding(named + "; ".join(said)), badness=len(engines), engines=0)


def _pools(engines: Sequence[EngineSnapshot]) -> Iterator[list[EngineSnapshot]]:
    """Engines that should be alike."""
    known = sorted({e.pool for e in engines if e.pool is not None})
    for pool in known or (None,):
        yield [e for e in engines if e.pool in {pool, None}]


def _differences(engines: Sequence[EngineSnapshot]) -> Iterator[str]:
    for what, groups in (
        ("engine", _by(engines, [e.kind for e in engines])),
        ("version", _by(engines, [e.version for e in engines])),
        ("K", _by(engines, [None if e.k is None else str(e.k) for e in engines])),
        ("method", _by(engines, _methods(engines))),
    ):
        if len(groups) > 1:
            yield _told(what, groups)
    for kind in sorted({e.kind for e in engines}):
        yield from _names([e for e in engines if e.kind == kind])


def _names(engines: Sequence[EngineSnapshot]) -> Iterator[str]:
    """Facts that engines of one kind export under several names."""
    fields = sorted({field for engine in engines for field in engine.sources})
    for field in fields:
        groups = _by(engines, [engine.sources.get(field) for engine in engines])
        if len(groups) > 1:
            yield _told(f"{field} read from", groups)


def _methods(engines: Sequence[EngineSnapshot]) -> list[str | None]:
    """Where no engine tells its method, that it speculates at all."""
    told = any(engine.method not in {"none", "unknown"} for engine in engines)
    return [_method(engine, told=told) for engine in engines]


def _method(engine: EngineSnapshot, *, told: bool) -> str | None:
    if engine.method != "unknown":
        return engine.method
    speculates = engine.increase is not None and bool(engine.increase.layout.spec)
    return "speculating" if speculates and not told else None


def _by(engines: Sequence[EngineSnapshot], keys: Sequence[str | None]) -> _Groups:
    groups: dict[str, list[EngineSnapshot]] = {}
    for engine, key in zip(engines, keys, strict=True):
        if key is not None:
            groups.setdefault(key, []).append(engine)
    return groups


def _told(what: str, groups: _Groups) -> str:
    parts = [
        f"{value} ({some([engine.name for engine in members])})"
        for value, members in sorted(groups.items(), key=lambda item: (len(item[1]), item[0]))
    ]
    return f"{what} " + ", ".join(parts)


def _finding(evidence: str) -> Finding:
    return Finding(
        CODE,
        "warning",
        FLEET,
        evidence,
        "a rollout under way or stuck half-way, or engines started by hand with other flags",
        "finish or undo the rollout (kubectl rollout status); until then read the engines one by "
        "one: acceptance of different K or methods is not comparable",
    )


RULE = Rule(CODE, check)
