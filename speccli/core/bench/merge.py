"""Several bench files as one: arms measured apart, further repeats, other batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccli.core.bench.form import read
from speccli.core.bench.results import Arm, Dataset, Load, Provenance, Result, Row
from speccli.core.errors import UsageError

APART = 0.02
"""Share by which mean prompts of the same set may differ: a chat template, a tokenizer."""
OTHER = 0.5
"""Share from which on they are other prompts: templates add tokens to short ones."""
_APART = "blocks: several files, measured one after the other"
_ROWS = "requests a row"
_IN_TURNS = "interleaved within each of several files"


def read_all(paths: Sequence[Path]) -> Result:
    """The bench in these files.

    Raises:
        UsageError: one cannot be read, or they do not belong together.
    """
    if not paths:
        raise UsageError("no file given", hint="`specctl bench run --out FILE` writes one")
    _once(paths)
    first, *others = [(path, read(path)) for path in paths]
    merged = first[1]
    for path, result in others:
        merged = _with(merged, result, str(path))
    return merged


def _with(one: Result, other: Result, where: str) -> Result:
    if one.simulated != other.simulated:
        raise UsageError(
            f"{where} is {'' if other.simulated else 'not '}simulated, the files before it are"
            f"{' not' if other.simulated else ''}",
            hint="simulated numbers are not compared with measured ones",
        )
    if one.load.kind != other.load.kind:
        raise UsageError(f"{where} is an {other.load.kind} loop, the files before it are not")
    _alike(one, other, where)
    texts = dict(one.texts or {})
    for arm, kept in (other.texts or {}).items():
        texts[arm] = {**kept, **texts.get(arm, {})}
    return replace(
        one,
        name=one.name if one.name == other.name else f"{one.name} + {other.name}",
        created=min(one.created, other.created),
        finished=max(filter(None, (one.finished, other.finished)), default=None),
        complete=one.complete and other.complete,
        stand_in=one.stand_in or other.stand_in,
        provenance=_provenance(one, other),
        load=_load(one.load, other.load),
        datasets=_datasets(one.datasets, other.datasets, where),
        arms=_arms(one.arms, other.arms, where),
        rows=_rows(one.rows, other.rows, where),
        texts=texts or None,
    )


def _alike(one: Result, other: Result, where: str) -> None:
    """Raises where the files were asked for different things: no speed-up would be the draft's."""
    pairs = [
        (name, getattr(one.load, name), getattr(other.load, name))
        for name in (
            *("window", "endpoint", "output_tokens", "max_tokens"),
            *("request_seeds", "structured"),
        )
    ]
    pairs += [
        (name, getattr(one.provenance, name), getattr(other.provenance, name))
        for name in ("temperature", "top_p")
    ]
    pairs.append(("stand_in", one.stand_in, other.stand_in))
    for name, was, now in pairs:
        untold = None in {was, now} and one.provenance.runner != other.provenance.runner
        if was != now and not untold:
            raise UsageError(
                f"{where}: {name} is {_word(now)}, in the files before it {_word(was)}",
                hint="measure all arms with the same options; compare each file for itself",
            )


def _word(value: object) -> str:
    return "not told" if value is None else str(value)


def _provenance(first: Result, second: Result) -> Provenance:
    """What both say; `order` says that they were apart, and in what they differ."""
    one, other = first.provenance, second.provenance
    order = _IN_TURNS if _in_turns(first, second) else _APART
    merged = one.order is not None and one.order.startswith((_APART, _IN_TURNS))
    known = str(one.order).split("; ")[1:] if merged else []
    rows = any(each.startswith(_ROWS) for each in known)  # a merged bench has the least of them
    more = (e for e in _differ(first, second) if not (e in known or (rows and _ROWS in e)))
    apart = "; ".join([order, *known, *more])
    return replace(
        one,
        runner=one.runner if one.runner == other.runner else f"{one.runner}+{other.runner}",
        commands=(*one.commands, *other.commands),
        host=one.host if one.host == other.host else {},
        gpu=one.gpu if one.gpu == other.gpu else None,
        gpu_reason=one.gpu_reason if one.gpu == other.gpu else "the files are of several GPUs",
        git=one.git if one.git == other.git else None,
        seed=one.seed if one.seed == other.seed else None,
        temperature=one.temperature if one.temperature == other.temperature else None,
        top_p=one.top_p if one.top_p == other.top_p else None,
        order=apart,
        client=one.client if one.client and one.client.saturated else other.client,
    )


def _in_turns(one: Result, other: Result) -> bool:
    """Whether no comparison crosses from file to file: arms of a load took turns in each."""
    if not all("interleaved" in (each.provenance.order or "") for each in (one, other)):
        return False
    had, has = ({a.name: a.engine.get("version") for a in each.arms} for each in (one, other))
    if _elsewhere(one, other) or any(had[arm] != has[arm] for arm in had.keys() & has.keys()):
        return False
    mine, others = _arms_by_load(one), _arms_by_load(other)
    return all(mine[load] == others[load] for load in mine.keys() & others.keys())


def _arms_by_load(result: Result) -> dict[tuple[object, ...], set[str]]:
    found: dict[tuple[object, ...], set[str]] = {}
    for row in result.rows:
        if not row.usable:
            continue
        found.setdefault((row.batch, row.rate, row.dataset), set()).add(row.arm)
    return found


def _differ(one: Result, other: Result) -> list[str]:
    """What need not be the same, and may be why numbers are not."""
    found = _elsewhere(one, other)
    versions = sorted(
        {
            f"{arm.engine['kind']} {arm.engine.get('version')}"
            for arm in (*one.arms, *other.arms)
            if arm.engine.get("kind")
        }
    )
    if len(versions) > 1:
        found.append(f"engine {' and '.join(versions)}")
    if one.load.requests != other.load.requests:
        found.append(f"{_ROWS} {one.load.requests} and {other.load.requests}")
    return found


def _elsewhere(one: Result, other: Result) -> list[str]:
    """Another GPU, or prompts that may be others."""
    gpus = [str((each.provenance.gpu or {}).get("name") or "not told") for each in (one, other)]
    found = [f"GPU {gpus[0]} and {gpus[1]}"] if gpus[0] != gpus[1] else []
    for had in one.datasets:
        for each in other.datasets:
            if had.name == each.name and None in {had.sha256, each.sha256}:
                found.append(f"prompts of {had.name} not known to be the same")
    return found


def _load(one: Load, other: Load) -> Load:
    return replace(
        one,
        batches=tuple(sorted({*one.batches, *other.batches})),
        rates=tuple(sorted({*one.rates, *other.rates})),
        repeats=max(one.repeats, other.repeats),
        **_by_load("requests", one, other),
        **_by_load("warmup", one, other),
        output_tokens=one.output_tokens if one.output_tokens == other.output_tokens else None,
        max_tokens=one.max_tokens if one.max_tokens == other.max_tokens else None,
    )


def _by_load(what: str, one: Load, other: Load) -> dict[str, Any]:
    """`requests` or `warmup` of every load of both; where they differ at a load, the least."""
    told: dict[float, set[int | None]] = {}
    for load in (one, other):
        of = load.requests_of if what == "requests" else load.warmup_of
        for batch in load.batches:
            told.setdefault(batch, set()).add(of(batch, None))
        for rate in load.rates:
            told.setdefault(rate, set()).add(of(None, rate))
    least = [
        None if None in numbers else min(n for n in numbers if n is not None)
        for _, numbers in sorted(told.items())
    ]
    known = [n for n in least if n is not None]
    whole = bool(known) and len(known) == len(least)
    usual = min(known) if whole else (None if what == "requests" else 0)
    each = tuple(known) if whole and len(set(known)) > 1 else ()
    return {what: usual, f"{what}_by_load": each}


def _datasets(one: Sequence[Dataset], other: Sequence[Dataset], where: str) -> tuple[Dataset, ...]:
    known = {each.name: each for each in one}
    for each in other:
        had = known.setdefault(each.name, each)
        if None in {had.sha256, each.sha256}:
            _as_long(had, each, where)
        elif had.sha256 != each.sha256:
            raise UsageError(
                f"{where}: dataset {each.name} is not the one of the files before it",
                hint="arms are compared on the same prompts; see datasets[].sha256",
            )
    return tuple(known.values())


def _as_long(one: Dataset, other: Dataset, where: str) -> None:
    """Prompts that nobody knows are not the same ones where they are not nearly as long."""
    was, now = one.prompt_tokens_mean.value, other.prompt_tokens_mean.value
    if was and now and max(was, now) > (1 + OTHER) * min(was, now):
        raise UsageError(
            f"{where}: prompts of {one.name} have {now:.0f} tokens on average, in the files before "
            f"it {was:.0f}",
            hint="arms are compared on the same prompts; --dataset NAME tells sets apart",
        )


def _arms(one: Sequence[Arm], other: Sequence[Arm], where: str) -> tuple[Arm, ...]:
    """All of them; those of one draft by K, whichever file they are of."""
    known = {arm.name: arm for arm in one}
    for arm in other:
        had = known.setdefault(arm.name, arm)
        for part in ("model", "method", "k", "draft", "gpu_count"):
            if getattr(had, part) != getattr(arm, part):
                raise UsageError(
                    f"{where}: {part} of arm {arm.name} is {getattr(arm, part)!r}, "
                    f"in the files before it {getattr(had, part)!r}",
                    hint="give arms that differ different names",
                )
    kinds = list(dict.fromkeys((arm.method, arm.draft) for arm in known.values()))
    return tuple(sorted(known.values(), key=lambda a: (kinds.index((a.method, a.draft)), a.k or 0)))


def _once(paths: Sequence[Path]) -> None:
    seen = set[Path]()
    for path in paths:
        if path.resolve() in seen:
            raise UsageError(f"{path} is given twice", hint="a repeat is another measurement")
        seen.add(path.resolve())


def _rows(one: Sequence[Row], other: Sequence[Row], where: str) -> tuple[Row, ...]:
    """Rows that are there already become further repeats, a file's all by the same number.

    Arms of one file took turns: what drifted meets them together, so that they stay paired.
    """
    rows = list(one)
    taken = {row.key for row in rows}
    measured = {_measurement(row) for row in rows if row.usable}
    for row in other:
        if row.usable and _measurement(row) in measured:
            raise UsageError(
                f"{where}: {row.label} is in the files before it already, to the last sample",
                hint="give each measurement once: a copy is no further repeat",
            )
    shift = 0
    while any(replace(row, repeat=row.repeat + shift).key in taken for row in other):
        shift += 1
    return (*rows, *(replace(row, repeat=row.repeat + shift) for row in other))


def _measurement(row: Row) -> tuple[object, ...]:
    """What no two measurements have in common; the number of the repeat may be changed."""
    told = row.started, row.duration_s, row.output_tokens, row.samples
    return *row.key[:-1], *told
