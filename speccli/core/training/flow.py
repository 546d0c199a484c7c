"""From a target and prompts to a head that was checked, loaded and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.errors import ExitCode, UsageError
from speccli.core.preflight import Verdict, check_pair
from speccli.core.preflight.ask import pair_from
from speccli.core.preflight.files import read_model
from speccli.core.training import accept as acceptance
from speccli.core.training import specforge
from speccli.core.training.job import STAGES, Prepared, Wanted, checked, prepare
from speccli.core.training.lock import alone
from speccli.core.training.run import StageError, Told, program, run

HEAD = "head"
"""In the folder: the head as an engine loads it."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How the head is measured afterwards."""

    k: int = 3
    prompts: int = 100
    max_tokens: int = 200
    against: tuple[tuple[str, Path], ...] = ()
    """Other heads of the same kind, `(name, folder)`: their rows stand beside the new one's."""
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trained head."""

    wanted: Wanted
    prepared: Prepared
    stages: dict[str, Any]
    head: Path
    verdicts: Sequence[Verdict]
    acceptance: Result | None

    @property
    def exit_code(self) -> ExitCode:
        """Critical when the pair check refuses the head, or no server could measure it."""
        if any(v.severity == "critical" for v in self.verdicts):
            return ExitCode.CRITICAL
        rows = self.acceptance.rows if self.acceptance else ()
        if any(row.state == "failed" for row in rows):
            return ExitCode.CRITICAL
        return ExitCode.OK


def train(
    wanted: Wanted,
    python: Path,
    measuring: Measuring | None,
    tell: Callable[[Told], None],
    progress: Progress,
) -> Outcome:
    """Prepare, run the stages that are not done, check the head, measure it.

    Raises:
        UsageError: the job cannot be.
        StageError: a stage failed.
        SpecctlError: another training is at work in the folder; no server to measure with.
    """
    program(python)
    if measuring is not None:
        _heads(wanted, measuring)
    with alone(wanted.out):
        return _train(wanted, python, measuring, tell, progress)


def _train(
    wanted: Wanted,
    python: Path,
    measuring: Measuring | None,
    tell: Callable[[Told], None],
    progress: Progress,
) -> Outcome:
    prepared = prepare(wanted)
    if prepared.near:
        tell(Told("prompts", "said", {"left_out_as_near_a_test": prepared.near}))
    if prepared.ends:
        tell(Told("prompts", "said", {"ends": prepared.ends}))
    for warning in prepared.warnings:
        tell(Told("prompts", "said", {"warning": warning}))
    fresh = []

    def heard(told: Told) -> None:
        if told.stage == "export" and told.event != "kept":
            fresh.append(told)
        tell(told)

    stages = run(prepared, python, STAGES, heard)
    head = wanted.out / HEAD
    if fresh:
        (wanted.out / acceptance.FILE).unlink(missing_ok=True)
    verdicts = check_pair(
        pair_from(
            wanted.target,
            str(head),
            method=wanted.method,
            version="0.32.0",
            gpu=None,
            k=measuring.k if measuring else 3,
        )
    )
    measured = None
    if measuring is not None and not any(v.severity == "critical" for v in verdicts):
        measured = _measure(wanted, prepared, measuring, progress)
    return Outcome(wanted, prepared, stages, head, verdicts, measured)


def for_specforge(
    wanted: Wanted, python: Path, tell: Callable[[Told], None]
) -> tuple[Path, str | None]:
    """The target's answers and a run file for SpecForge; why the file was not checked, if so.

    Raises:
        UsageError: SpecForge refuses it, or cannot train what is wanted.
        StageError: a stage failed.
        SpecctlError: another training is at work in the folder.
    """
    program(python)
    layers = read_model(wanted.target).number("num_hidden_layers")
    if layers is None:
        raise UsageError(f"{wanted.target}: its config.json tells no num_hidden_layers")
    made = specforge.config(checked(wanted), int(layers))
    with alone(wanted.out):
        prepared = prepare(wanted)
        file = wanted.out / specforge.FILE
        file.write_text(yaml.safe_dump(made, sort_keys=False), encoding="utf-8")
        unchecked = specforge.checked(python, file)  # before the answers, which take long
        if unchecked:
            tell(Told("prompts", "said", {"warning": f"{file}: {unchecked}"}))
        run(prepared, python, ("prompts", "answers", "tokens"), tell)
    return file, unchecked


def _heads(wanted: Wanted, measuring: Measuring) -> list[tuple[str, Path]]:
    """The new head and those that stand beside it, by their names."""
    heads = [(wanted.out.name or "head", wanted.out / HEAD), *measuring.against]
    if len({name for name, _ in heads}) < len(heads):
        raise UsageError(
            f"two heads have one name: {', '.join(name for name, _ in heads)}",
            hint="the new one is called as its folder is; write another NAME in --against NAME=DIR",
        )
    return heads


def _measure(
    wanted: Wanted, prepared: Prepared, measuring: Measuring, progress: Progress
) -> Result:
    return acceptance.accept(
        acceptance.arms(wanted.target, _heads(wanted, measuring), wanted.method, measuring.k),
        prepared.tests,
        out=wanted.out,
        prompts=measuring.prompts,
        max_tokens=measuring.max_tokens,
        progress=progress,
        extra_args=measuring.extra_args,
    )


__all__ = ["Measuring", "Outcome", "StageError", "for_specforge", "train"]
