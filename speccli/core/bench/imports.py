"""`bench import`: results of vllm bench serve, AIPerf and GuideLLM as one bench of ours."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speccli import __version__
from speccli.core.bench.codec import FormError, whole
from speccli.core.bench.foreign import aiperf, guidellm, vllm_bench
from speccli.core.bench.foreign.level import ID_LENGTH, Level
from speccli.core.bench.form import consistent
from speccli.core.bench.merge import APART
from speccli.core.bench.results import (
    SCHEMA,
    Arm,
    Dataset,
    Load,
    Provenance,
    Result,
    Row,
    Samples,
)
from speccli.core.errors import UsageError
from speccli.core.values import Number

DATASET = "imported"
_AIPERF = "profile_export_aiperf.json"
_METHODS = ("none", "eagle3", "eagle", "p-eagle", "ngram", "draft_model", "mtp", "dflash")
NO_PROMPTS = "the file holds no prompts: whether they are those of another file cannot be told"
_HINT = "want a result of vllm bench serve (--save-result), AIPerf or GuideLLM"


def read_levels(path: Path) -> list[Level]:
    """The loads in a file of another tool's.

    Raises:
        UsageError: the file is missing, or of no form that is known.
    """
    if path.is_dir():
        path = path / _AIPERF
    found = [level for document in _documents(path) for level in _levels(document, path)]
    if not found:
        raise UsageError(f"{path} is empty", hint=_HINT)
    return found


def _documents(path: Path) -> list[Any]:
    """One JSON document, or one a line (`--append-result`)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read {path}: {reason}") from error
    try:
        return [json.loads(text, parse_int=whole)]
    except (ValueError, RecursionError) as error:
        try:
            return [json.loads(line, parse_int=whole) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise UsageError(f"{path} is not JSON: {error}", hint=_HINT) from error


def _levels(document: Any, path: Path) -> list[Level]:
    if guidellm.matches(document):
        return guidellm.read(document, str(path))
    if aiperf.matches(document):
        return [aiperf.read(document, path)]
    if vllm_bench.matches(document):
        return [vllm_bench.read(document, str(path))]
    if isinstance(document, Mapping) and document.get("schema") == SCHEMA:
        raise UsageError(f"{path} is a bench of specctl's already", hint="use it as it is")
    raise UsageError(f"{path} is of no tool that is known", hint=_HINT)


def import_files(
    files: Sequence[str],
    *,
    dataset: str | None = None,
    baseline: str | None = None,
    name: str | None = None,
    stand_in: str | None = None,
    now: datetime | None = None,
) -> Result:
    """A bench of the files; each `FILE` or `ARM=FILE`. One arm's files at one load are repeats.

    Raises:
        UsageError: a file cannot be read, holds what cannot be, or no arm of that name is there.
    """
    _once([_split(each)[1] for each in files])
    named = [(arm, level) for each in files for arm, level in _named(each)]
    arms = list(dict.fromkeys(arm for arm, _ in named))
    if baseline is not None and baseline not in arms:
        raise UsageError(f"there is no arm {baseline}", hint=f"there are {', '.join(arms)}")
    base = baseline or next((a for a in arms if a in {"none", "baseline"}), None)
    rows = _paired(_rows(named, dataset))
    tools = Counter(level.tool for _, level in named)
    levels = [level for _, level in named]
    runner = "+".join(sorted(tools))
    result = Result(
        name=name or "imported",
        created=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        finished=None,
        complete=True,
        simulated=any((level.model or "").startswith("SIMULATED/") for level in levels),
        provenance=Provenance(
            specctl=__version__,
            runner=runner,
            host={},
            order="blocks: one run of another tool after the other",
        ),
        load=_load(rows),
        datasets=tuple(_dataset(each, rows) for each in dict.fromkeys(r.dataset for r in rows)),
        arms=tuple(_arm(arm, arm == base, named) for arm in arms),
        rows=tuple(rows),
        stand_in=stand_in,
    )
    try:
        consistent(result)
    except FormError as error:
        raise UsageError(f"the files hold what cannot be: {error}", hint=_HINT) from error
    return result


def refuse_to_lose(out: Path, files: Sequence[str], *, force: bool) -> None:
    """Refuse to write where something is already; nothing is touched.

    Raises:
        UsageError: `out` exists and `force` is not given, or it is one of those that are read.
    """
    try:
        there = out.exists()
        same = there and any(
            each.exists() and out.samefile(each) for given in files for each in _read_of(given)
        )
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    if same:
        raise UsageError(f"{out} is a result that is read", hint="write to another file")
    if there and not force:
        raise UsageError(f"{out} exists", hint="--force overwrites it")


def _read_of(given: str) -> tuple[Path, ...]:
    path = _split(given)[1]
    path = path / _AIPERF if path.is_dir() else path
    return aiperf.files(path) if path.name.endswith("_aiperf.json") else (path,)


def _once(paths: Sequence[Path]) -> None:
    """A copy of a measurement is no further repeat."""
    known: dict[bytes, Path] = {}
    for path in (p / _AIPERF if p.is_dir() else p for p in paths):
        if path.is_file() and path.stat().st_size:
            first = known.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
            if first is not path:
                raise UsageError(
                    f"{path} holds the very numbers of {first}",
                    hint="give each measurement once: a copy is no further repeat",
                )


def _split(each: str) -> tuple[str | None, Path]:
    head, found, rest = each.partition("=")
    given = head if found and rest and "/" not in head else None
    return given, Path(rest if given else each)


def _named(each: str) -> list[tuple[str, Level]]:
    given, path = _split(each)
    return [
        (given or level.told.get("arm") or level.told.get("method") or path.stem, level)
        for level in read_levels(path)
    ]


def _rows(named: Sequence[tuple[str, Level]], dataset: str | None) -> list[Row]:
    seen: Counter[Any] = Counter()
    rows = []
    for arm, level in named:
        prompts = dataset or level.told.get("dataset") or DATASET
        place = arm, level.batch, level.rate, prompts
        rows.append(level.row(arm, prompts, seen[place]))
        seen[place] += 1
    return rows


def _paired(rows: Sequence[Row]) -> list[Row]:
    """Prompts told by their place are the same ones only where they are as long."""
    known: dict[tuple[str, str], int] = {}
    odd: set[str] = set()
    for row in rows:
        for prompt, n in zip(row.samples.prompt, row.samples.input_tokens, strict=True):
            if known.setdefault((row.dataset, prompt), n) != n and prompt.isdigit():
                odd.add(row.dataset)
    return [
        replace(row, samples=_apart(row.samples, i)) if row.dataset in odd else row
        for i, row in enumerate(rows)
    ]


def _apart(samples: Samples, row: int) -> Samples:
    return replace(samples, prompt=tuple(f"{row}/{each}" for each in samples.prompt))


def _load(rows: Sequence[Row]) -> Load:
    batches = sorted({row.batch for row in rows if row.batch is not None})
    rates = sorted({row.rate for row in rows if row.rate is not None})
    return Load(
        "closed" if batches else "open",
        batches=tuple(batches),
        rates=tuple(rates),
        repeats=max((row.repeat + 1 for row in rows), default=1),
        window="whole",
    )


def _dataset(name: str, rows: Sequence[Row]) -> Dataset:
    ours = [row for row in rows if row.dataset == name]
    lengths = {
        prompt: n
        for row in ours
        for prompt, n in zip(row.samples.prompt, row.samples.input_tokens, strict=True)
    }
    mean = (
        Number.known(sum(lengths.values()) / len(lengths), n=len(lengths))
        if lengths
        else Number.unknown("single requests are not known")
    )
    named = bool(lengths) and all(len(p.rpartition("/")[2]) == ID_LENGTH for p in lengths)
    notes = [] if named else [NO_PROMPTS]
    means = {
        row.arm: row.input_tokens / row.requests
        for row in ours
        if row.input_tokens is not None and row.requests
    }
    if means and max(means.values()) > (1 + APART) * min(means.values()):
        told = ", ".join(f"{arm} {mean:.0f}" for arm, mean in means.items())
        notes.append(f"arms were asked prompts of other lengths (mean tokens: {told})")
    return Dataset(
        name,
        "as the other tool sent it",
        # Where a tool keeps the text of its prompts they are named by it.
        hashlib.sha256(json.dumps(sorted(lengths)).encode()).hexdigest() if named else None,
        len(lengths),
        mean,
        note="; ".join(notes) or None,
    )


def _arm(name: str, baseline: bool, named: Sequence[tuple[str, Level]]) -> Arm:
    levels = [level for arm, level in named if arm == name]
    first = levels[0]
    method = first.told.get("method") or (name if name in _METHODS else None)
    positions = max((len(level.acceptance.by_position) for level in levels), default=0)
    return Arm(
        name=name,
        baseline=baseline,
        endpoint=_without_credentials(first.endpoint),
        engine={},
        model=first.model,
        method="none" if method is None and baseline else method,
        k=positions or None,
    )


def _without_credentials(url: str | None) -> str | None:
    if url is None or "@" not in url:
        return url
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
