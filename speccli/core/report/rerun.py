"""The commands that make a bench again: one for each that made it, with what was asked of each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from speccli.core.bench.datasets import NAMES
from speccli.core.bench.results import Arm, Dataset, Result

_FILES = {".jsonl", ".json", ".gz"}
_SERVER = "http://HOST:8000"


@dataclass(frozen=True, slots=True)
class _Run:
    """One of the commands, as far as it differs from the others."""

    datasets: tuple[Dataset, ...]
    files: tuple[str, ...]
    """What its `--dataset` named."""
    loads: tuple[tuple[str, str], ...]
    """`--batch`, `--rate` and `--requests` with their values."""


def lines(result: Result) -> list[str]:
    """Comments and commands for a shell, a line each, the comparison last."""
    runs = list(_runs(result))
    outs = ["bench.json"] if len(runs) == 1 else [f"bench-{i + 1}.json" for i in range(len(runs))]
    made = []
    files = [name for run in runs for name in _asked(run) if name not in NAMES]
    files += [_schema(result)] if result.load.structured else []
    if files:
        named = ", ".join(dict.fromkeys(files))
        made.append(f"# files that it was asked with, and that are to lie there: {named}")
    for run, out in zip(runs, outs, strict=True):
        made.append(shlex.join(("specctl", "bench", "run", *_options(result, run), "--out", out)))
    return [*made, shlex.join(("specctl", "bench", "compare", *outs))]


def address(arm: Arm | None) -> str:
    """Where an arm answers, if that is an address at all, and not of a server that was ended."""
    told = (arm.endpoint if arm is not None and arm.start_s is None else None) or ""
    return told if re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w./~%-]*)?", told) else _SERVER


def _runs(result: Result) -> Iterable[_Run]:
    """By the commands that the bench keeps, where they tell every dataset's; else all in one."""
    load = result.load
    requests = load.requests_by_load or ((load.requests,) if load.requests else ())
    numbers = (("batch", load.batches), ("rate", load.rates), ("requests", requests))
    loads = tuple((name, ",".join(f"{n:.15g}" for n in told)) for name, told in numbers if told)
    commands = [told for text in result.provenance.commands if (told := _typed(text))]
    whole = _Run(result.datasets, tuple(x for told in commands for x in told["dataset"]), loads)
    made = list[_Run]()
    for each in (_of(result, told) for told in commands):
        if each not in made:
            made.append(each)
    named = [each.name for run in made for each in run.datasets]
    if len(made) < 2 or sorted(named) != sorted(each.name for each in result.datasets):
        yield whole
    else:
        yield from made


def _of(result: Result, told: dict[str, list[str]]) -> _Run:
    stems = {_stem(name) for name in told["dataset"]}
    return _Run(
        tuple(each for each in result.datasets if each.name in stems),
        tuple(told["dataset"]),
        tuple((name, ",".join(told[name])) for name in ("batch", "rate", "requests") if told[name]),
    )


def _typed(command: str) -> dict[str, list[str]] | None:
    """What of a `specctl bench run` tells one from another; None of any other command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:3] != ["specctl", "bench", "run"]:
        return None
    told: dict[str, list[str]] = {name: [] for name in ("dataset", "batch", "rate", "requests")}
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        values = told.get(option.removeprefix("--")) if option.startswith("--") else None
        if values is not None and (equals or i + 1 < len(words)):
            values += (value if equals else words[i + 1]).split(",")
    return told


def _asked(run: _Run) -> list[str]:
    """What `--dataset` is to be given: a file by its path where that is known."""
    return [_name(each, run.files) for each in run.datasets]


def _name(dataset: Dataset, typed: Sequence[str]) -> str:
    source = PurePath(dataset.source)
    if source.suffix in _FILES:
        path = next((each for each in typed if PurePath(each).name == source.name), source.name)
        return path if path not in NAMES else f"./{path}"
    return dataset.name if dataset.name in NAMES else f"{_plain(dataset.name)}.jsonl"


def _schema(result: Result) -> str:
    return (result.load.structured or "").partition(",")[0]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _stem(name: str) -> str:
    return PurePath(name).name.partition(".")[0]


def _options(result: Result, run: _Run) -> Iterable[str]:
    """All but where it goes."""
    load, came = result.load, result.provenance
    within = {each.name for each in run.datasets}
    here = {row.arm for row in result.rows if row.dataset in within}
    arms = [arm for arm in result.arms if arm.name in here] or list(result.arms)
    at = [address(arm) for arm in arms]
    if len(set(at)) < len(at):  # of servers that took turns, or are gone: two at once cannot be
        at = [f"http://HOST{i + 1}:8000" for i in range(len(arms))]
    for arm, url in zip(arms, at, strict=True):
        yield from ("--arm", f"{arm.name}={url}")
    if result.baseline in arms and result.baseline is not None:
        yield from ("--baseline", result.baseline.name)
    for name in _asked(run):
        yield from ("--dataset", name)
    for option, told in run.loads:
        yield from (f"--{option}", told)
    given = {
        "seconds": None if load.seconds is None else f"{load.seconds:g}s",
        "max-tokens": load.max_tokens,
        "output-tokens": load.output_tokens,
        "temperature": came.temperature,
        "top-p": came.top_p,
        "seed": came.seed,
        "warmup": None if load.warmup_by_load else load.warmup,
        "structured": _schema(result) if load.structured else None,
        "api": load.endpoint,
        "window": load.window,
        "stand-in": result.stand_in,
        "repeats": max(3, load.repeats),
    }
    for option, value in given.items():
        if value is not None:
            yield from (f"--{option}", str(value))
