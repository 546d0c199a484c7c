"""From what was typed to a bench, or one line that says what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from speccli.core.bench import arms as arms_
from speccli.core.bench import datasets as datasets_
from speccli.core.bench import external, resume, structured
from speccli.core.bench.arms import ArmSpec
from speccli.core.bench.form import read
from speccli.core.bench.measure import Sampling
from speccli.core.bench.results import Load, Result
from speccli.core.bench.run import Spec
from speccli.core.config import Settings
from speccli.core.errors import ExitCode, UsageError
from speccli.core.open import access_of
from speccli.core.recipes.load import load as load_recipe
from speccli.core.units import seconds

T = TypeVar("T", int, float)

BATCHES = "1,8,32"
REQUESTS = 100
PER_BATCH = 8
"""Waves that a row has at the least, unless its requests are given: 128 in flight need 1,024."""
MAX_TOKENS = 256
REPEATS = 3
IGNORES_EOS = (
    "answers forced past their end (--output-tokens) are text that no draft was trained on: "
    "acceptance comes out lower than in service (0.55 instead of 0.66 at the first position on a "
    "135M pair)"
)
ONE_ARM = "a single arm: there will be numbers and no speed-up"
ONE_REPEAT = "measured once, nothing tells how much runs differ: no interval and no verdict"
TWO_REPEATS = (
    "two repeats: where loads scatter very differently, up to 9 % of tables held a false verdict"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed. None: not given."""

    arm: Sequence[str] | None = None
    to: str | None = None
    target: str | None = None
    draft: Sequence[str] | None = None
    k: str | None = None
    recipe: str | None = None
    changes: Sequence[str] | None = None
    extra: Sequence[str] | None = None
    baseline: str | None = None
    batch: str | None = None
    rate: str | None = None
    dataset: Sequence[str] | None = None
    data: Path | None = None
    requests: str | None = None
    seconds: str | None = None
    max_tokens: int | None = None
    output_tokens: int | None = None
    temperature: float = 0.0
    top_p: float | None = None
    seed: int = 0
    repeats: int = REPEATS
    request_seeds: bool = False
    structured: Path | None = None
    warmup: int | None = None
    api: Literal["chat", "completions"] = "chat"
    window: Literal["steady", "whole"] = "steady"
    runner: str = external.OURS
    tokenizer: str | None = None
    out: Path | None = None
    name: str | None = None
    resume: bool = False
    keep_texts: bool = False
    stand_in: str | None = None
    dcgm: str | None = None
    nvml: bool = False
    server_log: Sequence[str] | None = None
    request_deadline: str = "10m"
    start_deadline: str = "15m"
    logs: Path | None = None
    settings: Settings = Settings()
    command: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A bench that can begin."""

    spec: Spec
    before: Result | None
    """What is there already, with `--resume`."""
    notes: tuple[str, ...]
    """What the reader should know before it begins."""


def plan(asked: Asked) -> Plan:
    """The bench that was asked for.

    Raises:
        UsageError: it cannot be run, or would not mean anything.
    """
    arms = _arms(asked)
    schema = None if asked.structured is None else structured.read(asked.structured)
    load = _load(asked, schema)
    names = [
        name.strip() for text in asked.dataset or () for name in text.split(",") if name.strip()
    ]
    found = [
        datasets_.load(name, folder=asked.data, seed=asked.seed)
        for name in dict.fromkeys(names or ["builtin"])
    ]
    if schema is not None:
        found = [schema.over(each) for each in found]
    if len({each.name for each in found}) < len(found):
        raise UsageError("two datasets have the same name", hint="rename one of the files")
    out = asked.out or Path("outputs") / time.strftime("bench-%Y%m%d-%H%M%S.json")
    sampling = Sampling(
        max_tokens=asked.max_tokens or MAX_TOKENS,
        output_tokens=asked.output_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        api=asked.api,
        request_seeds=asked.request_seeds,
    )
    spec = Spec(
        name=asked.name or out.stem,
        out=out,
        arms=arms,
        baseline=arms_.the_baseline(arms, asked.baseline),
        datasets=tuple(found),
        load=load,
        sampling=sampling,
        seed=asked.seed,
        deadline_s=seconds(asked.request_deadline, what="--request-deadline", least=1),
        start_s=seconds(asked.start_deadline, what="--start-deadline", least=1),
        gpu_count=asked.settings.gpus_per_engine,
        gpu_hour_usd=asked.settings.gpu_hour_usd,
        stand_in=asked.stand_in,
        keep_texts=asked.keep_texts,
        dcgm=asked.dcgm,
        nvml=asked.nvml,
        server_logs=_logs(asked.server_log or (), arms),
        access=access_of(asked.settings),
        command=asked.command,
        logs=asked.logs,
        runner=asked.runner,
        tokenizer=asked.tokenizer,
    )
    external.possible(spec)
    notes = tuple(_notes(asked, arms, found))
    return Plan(spec, resume.before(spec, resume=asked.resume), notes)


def _notes(asked: Asked, arms: Sequence[ArmSpec], found: Sequence[datasets_.Prompts]) -> list[str]:
    """What the reader should know before it begins."""
    notes = [each.note for each in found if each.note]
    if asked.output_tokens is not None:
        notes.append(IGNORES_EOS)
    if asked.runner != external.OURS:
        notes.append(external.COUNTS_ALL)
    if len(arms) == 1:
        notes.append(ONE_ARM)
    elif asked.repeats < REPEATS:
        notes.append(ONE_REPEAT if asked.repeats == 1 else TWO_REPEATS)
    return notes


def _logs(given: Sequence[str], arms: Sequence[ArmSpec]) -> dict[str, Path]:
    """`ARM=FILE`, each."""
    remote = {arm.name for arm in arms if isinstance(arm, arms_.Remote)}
    logs = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise UsageError("--server-log is not ARM=FILE", hint="write --server-log eagle3=FILE")
        if name not in remote:
            raise UsageError(
                f"--server-log {name}: no --arm of that name",
                hint=f"one of: {', '.join(sorted(remote)) or 'none; --to local reads its own'}",
            )
        logs[name] = Path(path)
    return logs


def _arms(asked: Asked) -> tuple[ArmSpec, ...]:
    local = bool(asked.target or asked.draft or asked.recipe or asked.extra)
    if asked.to not in {None, "local"}:
        raise UsageError(
            f"--to {asked.to} is not possible", hint="--to local, or --arm NAME=URL for each server"
        )
    if asked.arm:
        if local or asked.to:
            raise UsageError(
                "--arm is a server that runs; --to local starts them", hint="give one or the other"
            )
        return arms_.remotes(asked.arm)
    if not local:
        raise UsageError(
            "no arms",
            hint="--arm baseline=URL --arm eagle3=URL, or --to local --target MODEL "
            "--draft eagle3=PATH",
        )
    if asked.to is None:
        raise UsageError("servers are to be started, but not where", hint="add --to local")
    ks = _numbers(asked.k, "--k", int, 1, 64) if asked.k else ()
    if asked.recipe:
        if asked.target or asked.draft:
            raise UsageError("--recipe names target and draft", hint="leave --target, --draft out")
        return arms_.of_recipe(load_recipe(asked.recipe, tuple(asked.changes or ())), ks)
    if not asked.target:
        raise UsageError("--draft without --target", hint="give --target MODEL")
    return arms_.locals_(
        asked.target, tuple(asked.draft or ()), ks or (3,), tuple(asked.extra or ())
    )


def _load(asked: Asked, schema: structured.Schema | None) -> Load:
    if asked.requests is not None and asked.seconds is not None:
        raise UsageError("--requests and --seconds: a row ends by one of them", hint="give one")
    batches = _numbers(asked.batch, "--batch", int, 1, 4096) if asked.batch else ()
    rates = _numbers(asked.rate, "--rate", float, 0.001, 100_000) if asked.rate else ()
    if batches and rates:
        raise UsageError(
            "--batch is a closed loop, --rate an open one", hint="run one bench for each"
        )
    if not batches and not rates:
        batches = _numbers(BATCHES, "--batch", int, 1, 4096)
    window_s = None if asked.seconds is None else seconds(asked.seconds, what="--seconds", least=1)
    requests = () if window_s else _requests(asked.requests, batches, len(batches or rates))
    warmups = tuple(
        given if (given := asked.warmup) is not None else _warmup(each, closed=bool(batches))
        for each in batches or rates
    )
    return Load(
        kind="open" if rates else "closed",
        batches=batches,
        rates=rates,
        requests=min(requests, default=None),
        requests_by_load=requests if len(set(requests)) > 1 else (),
        seconds=window_s,
        output_tokens=asked.output_tokens,
        max_tokens=asked.max_tokens or MAX_TOKENS,
        warmup=min(warmups),
        warmup_by_load=warmups if len(set(warmups)) > 1 else (),
        repeats=asked.repeats,
        endpoint=asked.api,
        window=asked.window if asked.runner == external.OURS else "whole",
        request_seeds=asked.request_seeds,
        structured=None if schema is None else schema.words,
    )


def _warmup(load: float, *, closed: bool) -> int:
    """Requests that warm a row up, unless they are given: a batch, or 3 s of arrivals."""
    return max(2, round(load)) if closed else max(4, round(3 * load))


def _requests(text: str | None, batches: Sequence[int], loads: int) -> tuple[int, ...]:
    """Measured requests of a row, for each load."""
    if text is None:
        return tuple(max(REQUESTS, PER_BATCH * batch) for batch in batches) or (REQUESTS,) * loads
    given = _numbers(text, "--requests", int, 1, 1_000_000, twice=True)
    if len(given) not in {1, loads}:
        raise UsageError(
            f"--requests {text}: {len(given)} numbers for {loads} loads",
            hint="give one number, or one for each batch",
        )
    return given if len(given) == loads else given * loads


def _numbers(
    text: str,
    flag: str,
    kind: Callable[[str], T],
    least: float,
    most: float,
    *,
    twice: bool = False,
) -> tuple[T, ...]:
    try:
        values = tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        values = ()
    if not values or not all(least <= value <= most for value in values):
        raise UsageError(
            f"{flag} {text!r} is no list of numbers from {least:g} to {most:g}",
            hint=f"write {flag} 1,8,32",
        )
    if len(set(values)) < len(values) and not twice:
        raise UsageError(f"{flag} {text} names one load twice", hint="use --repeats for that")
    return values


def left_behind(spec: Spec) -> str:
    """What an interrupted bench leaves."""
    if not spec.out.exists():
        return "nothing was measured yet"
    whole = sum(1 for _ in spec.rows())
    kept = len(read(spec.out).rows)
    return f"{kept} of {whole} rows are kept in {spec.out}; the same with --resume goes on"


def exit_code(result: Result) -> ExitCode:
    """By the worst row."""
    states = {row.state for row in result.rows}
    if not states or states == {"failed"}:
        return ExitCode.UNKNOWN if not states else ExitCode.CRITICAL
    if "failed" in states:
        return ExitCode.CRITICAL
    return ExitCode.WARNING if states & {"partial", "contaminated"} else ExitCode.OK
