"""`specctl alert`: drift and health for cron and monitoring systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands.baseline import (
    Dataset,
    DraftName,
    DraftRevision,
    Runner,
    Sampling,
    StateOption,
    TargetRevision,
)
from speccli.options import FormatOption, SourceOptions, with_source

if TYPE_CHECKING:
    from speccli.core.alert.check import Checked
    from speccli.core.alert.examine import Terms
    from speccli.core.alert.memory import Memory
    from speccli.core.alert.verdict import Verdict
    from speccli.core.config import Settings

_EPILOG = """Exit codes: 0 ok · 1 warning · 2 critical · 3 unknown (no data, unreachable, not
authorised, deadline) · 64 usage · 70 a bug in specctl · 130 interrupted."""

app = typer.Typer(
    help="Find drift and faults, for cron and monitoring systems.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)

NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="What the deployment is called.", show_default="its source"
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Judge drift by this baseline (or file)."),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Compare with a baseline of another key.")
]
ConfirmOption = Annotated[
    str,
    typer.Option("--confirm", metavar="N/M", help="Say it when seen in N of the last M checks."),
]
ClearOption = Annotated[
    int, typer.Option("--clear", min=1, max=100, help="It is over after so many checks without it.")
]
RequireTraffic = Annotated[
    bool, typer.Option("--require-traffic", help="No traffic is unknown (3), not ok.")
]


@app.command("check", epilog=_EPILOG)
@with_source
def check(
    source: SourceOptions,
    name: NameOption = None,
    baseline: BaselineOption = None,
    force: ForceOption = False,
    confirm: ConfirmOption = "1/1",
    clear: ClearOption = 1,
    require_traffic: RequireTraffic = False,
    state: StateOption = None,
    target_revision: TargetRevision = None,
    draft: DraftName = None,
    draft_revision: DraftRevision = None,
    runner: Runner = None,
    sampling: Sampling = None,
    dataset: Dataset = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Judge once: one line for a monitoring system, then one a finding.

    What grew since the last check is judged; the first check looks twice, 5 s apart. --deadline is
    wall clock for everything (30s if not given). With --replay FILE every scrape of a recording is
    judged as a cron run at its time would have.
    """
    terms, settings = _terms(
        source,
        baseline,
        state,
        _told(target_revision, draft, draft_revision, runner, sampling, dataset),
        force=force,
        confirm=(confirm, clear),
        require_traffic=require_traffic,
    )
    if source.replay:
        from speccli.core.alert.check import replay

        verdict = replay(settings, source.replay, terms)
        _say(verdict, output_format)
        raise typer.Exit(verdict.exit)
    raise typer.Exit(_check(settings, terms, name, state, output_format))


def _check(
    settings: Settings,
    terms: Terms,
    name: str | None,
    state: Path | None,
    output_format: output.Format,
) -> int:
    from speccli.core import config, deadline
    from speccli.core.alert import check as checking
    from speccli.core.alert.verdict import failed

    asked = checking.Asked(settings, terms, name, state, config.here()[0])
    clock = deadline.Clock(asked.deadline_s)
    said: list[int] = []

    def say(verdict: Verdict) -> None:
        if not said:
            said.append(verdict.exit)
            _say(verdict, output_format)

    def after(checked: Checked) -> Memory:
        say(checked.verdict)
        return checked.memory

    with deadline.LastResort(clock, lambda: say(failed(clock.late())), lambda: said[0]):
        checked = checking.check(asked, clock, after=after)
        say(checked.verdict)
    for note in checked.notes:
        diagnostics.warn(note)
    deadline.leave(checked.verdict.exit)
    return checked.verdict.exit


def _say(verdict: Verdict, output_format: output.Format) -> None:
    if output_format is output.Format.TABLE:
        for line in verdict.lines:
            output.text(line)
    else:
        output.emit(verdict.to_json, lambda: "", output_format)


def _told(*parts: str | None) -> dict[str, str | None]:
    names = ("target_revision", "draft", "draft_revision", "runner", "sampling", "dataset")
    return {name: part or None for name, part in zip(names, parts, strict=True)}


def _terms(
    source: SourceOptions,
    baseline: str | None,
    state: Path | None,
    told: dict[str, str | None],
    *,
    force: bool,
    confirm: tuple[str, int],
    require_traffic: bool,
) -> tuple[Terms, Settings]:
    from speccli.core import config
    from speccli.core.alert.check import stored
    from speccli.core.alert.confirm import Policy
    from speccli.core.alert.examine import Terms
    from speccli.core.baseline import Key
    from speccli.core.open import thresholds_of

    settings = source.settings()
    environment, _ = config.here()
    terms = Terms(
        thresholds=thresholds_of(settings),
        baseline=stored(baseline, state, environment) if baseline else None,
        running=Key(**told),  # type: ignore[arg-type]
        force=force,
        policy=Policy.parse(*confirm),
        require_traffic=require_traffic,
    )
    return terms, settings


@app.callback()
def _group() -> None:
    """Find drift and faults, for cron and monitoring systems."""
