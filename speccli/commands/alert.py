"""`specctl alert`: drift and health for cron and monitoring systems."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._alert_options import (
    ASKING,
    JUDGING,
    POOLING,
    BaselineOption,
    JudgeOptions,
    KeyOptions,
    RequireTraffic,
    StateOption,
)
from speccli.commands._grouped import with_group
from speccli.options import FormatOption, SourceOptions, source_without

if TYPE_CHECKING:
    from collections.abc import Callable

    from speccli.core.alert.check import Asked, Checked
    from speccli.core.alert.examine import Terms
    from speccli.core.alert.memory import Memory
    from speccli.core.alert.notify import Notifier
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


@app.command("check", epilog=_EPILOG)
@source_without("interval", deadline="30s")
@with_group("key", KeyOptions)
@with_group("how", JudgeOptions)
def check(
    source: SourceOptions,
    how: JudgeOptions,
    key: KeyOptions,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Judge once: one line for a monitoring system, then one a finding.

    What grew since the last check is judged; the first check looks twice, 5 s apart. --deadline is
    wall clock for everything. With --replay FILE every scrape of a recording is
    judged as a cron run at its time would have.
    """
    settings = _settings(source, how)
    terms = _terms(settings, how, key)
    if source.replay:
        from speccli.core.alert.check import replay

        verdict = replay(settings, source.replay, terms)
        _say(verdict, output_format)
        raise typer.Exit(verdict.exit)
    raise typer.Exit(_check(_asked(settings, terms, how), output_format, dry=how.dry_run))


@app.command("watch", epilog=_EPILOG)
@source_without("replay", "interval", "window")
@with_group("key", KeyOptions)
@with_group("how", JudgeOptions)
def watch(
    source: SourceOptions,
    how: JudgeOptions,
    key: KeyOptions,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="Time between two checks.")
    ] = "15s",
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where /metrics and /healthz are; `none`: nowhere."),
    ] = "127.0.0.1:9467",
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long; until SIGTERM if not given."),
    ] = None,
) -> None:
    """Judge over and over; a line when something changes, a heartbeat for Prometheus.

    SIGTERM ends it with 0; what it remembers survives it.
    """
    import asyncio

    from speccli.core.alert.endpoint import address
    from speccli.core.alert.watch import watch as watching
    from speccli.core.errors import UsageError
    from speccli.core.units import seconds

    settings = _settings(source, how)
    terms = _terms(settings, how, key)
    asked = _asked(settings, terms, how)
    every_s = seconds(every, what="--every")
    if every_s < 1:
        raise UsageError(f"--every {every}: at least 1 s", hint="try 15s")
    code = asyncio.run(
        watching(
            asked,
            every_s=every_s,
            listen=address(listen),
            notifier_of=lambda memory: _notifier(asked, memory, dry=how.dry_run),
            say=output.text,
            warn=diagnostics.warn,
            lasting_s=seconds(for_, what="--for") if for_ else None,
        )
    )
    raise typer.Exit(code)


@app.command("rules", epilog=_EPILOG)
@source_without(*ASKING, "replay", "interval", "window", "deadline", "endpoint")
def rules(
    source: SourceOptions,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")] = Path(
        "outputs"
    ),
    namespace: Annotated[str | None, typer.Option(help="Namespace of the PrometheusRule.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            help="What the operator picks rules by: release=kube-prometheus-stack; repeat.",
        ),
    ] = None,
    baseline: BaselineOption = None,
    require_traffic: RequireTraffic = False,
    test: Annotated[bool, typer.Option("--test", help="Run promtool on what was written.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that specctl did not write.")
    ] = False,
    state: StateOption = None,
) -> None:
    """Write Prometheus rules, their tests and a Grafana dashboard.

    Thresholds are those of `alert check`: --floor, --hold, specctl.toml. Sources are not asked.
    """
    from speccli.core.alert.rules.left_out import IN_PART, left_out
    from speccli.core.alert.rules.promtool import prove
    from speccli.core.alert.rules.write import files, labels_of, terms_of, write

    how = JudgeOptions(baseline=baseline, require_traffic=require_traffic, state=state)
    settings = _settings(source, how)
    terms = terms_of(_terms(settings, how, KeyOptions()), settings)
    texts = files(terms, namespace=namespace, labels=labels_of(label or ()))
    for path in write(out, texts, force=force):
        output.text(str(path))
    for code, why in left_out(terms).items():
        diagnostics.say(f"no rule for {code}: {why}")
    less = ", ".join(code for code in IN_PART if code not in left_out(terms))
    diagnostics.say(f"rules see less than checks of {less}: docs/alerting.md")
    if test:
        for line in prove(out):
            diagnostics.say(line)


@app.command("probe", epilog=_EPILOG)
@source_without(*JUDGING, *POOLING)
def probe(
    source: SourceOptions,
    baseline_endpoint: Annotated[
        str | None,
        typer.Option(
            "--baseline-endpoint",
            metavar="URL",
            help="The same model without speculation: greedy answers are compared.",
        ),
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Send requests of each kind that speculation has broken before.

    JSON schema (30 at once), min_p, logit_bias, logprobs, seed; greedy answers with and without
    speculation. It is traffic: --deadline (180s if not given) bounds it. A dead engine is critical.
    """
    from speccli.core import deadline
    from speccli.core.alert.probe.asked import probed, targets_of
    from speccli.core.alert.verdict import failed
    from speccli.core.errors import SpecctlError, UsageError
    from speccli.core.open import access_of

    settings = source.settings()
    targets, plain, limit_s = targets_of(settings, baseline_endpoint, replay=source.replay)
    clock = deadline.Clock(limit_s)
    try:
        found = deadline.run(clock, probed(targets, plain, access_of(settings), clock))
    except UsageError:
        raise
    except SpecctlError as error:
        _say(failed(error), output_format)
        raise typer.Exit(int(error.exit_code)) from error
    if output_format is output.Format.TABLE:
        _print(lambda: output.text("\n".join(found.lines)), found.lines[0])
    else:
        _print(lambda: output.emit(found.to_json, lambda: "", output_format), found.lines[0])
    raise typer.Exit(found.exit)


@app.command("canary", epilog=_EPILOG)
@source_without(*JUDGING, *POOLING)
def canary(
    source: SourceOptions,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="NAME", help="Keep this run as baseline NAME."),
    ] = None,
    baseline: BaselineOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Compare with a baseline of another key; overwrite NAME."),
    ] = False,
    state: StateOption = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Replay a fixed set of prompts at temperature 0, and compare.

    --record NAME keeps the run of a sound server; --baseline NAME compares with it. The prompts
    are the same, so a loss is no matter of traffic. --deadline is 180s if not given.
    """
    from speccli.core import config, deadline
    from speccli.core.alert.probe.asked import canaried, targets_of
    from speccli.core.alert.verdict import failed
    from speccli.core.baseline.store import Store
    from speccli.core.errors import SpecctlError, UsageError
    from speccli.core.open import access_of
    from speccli.core.state import state_folder

    how = JudgeOptions(baseline=baseline, force=force, require_traffic=True, state=state)
    settings = _settings(source, how)
    targets, _, limit_s = targets_of(settings, None, replay=source.replay)
    store = Store(state_folder(state, config.here()[0])) if record else None
    if store is not None and record is not None:
        store.refuse_to_lose(record, force=force)
        store.ensure_writable(record)
    terms = _terms(settings, how, KeyOptions())
    clock = deadline.Clock(limit_s)
    try:
        work = canaried(targets, access_of(settings), clock, terms, record)
        verdict, runs, kept = deadline.run(clock, work)
        if store is not None and kept is not None:
            store.put(kept, force=force)
            diagnostics.say(f"baseline {kept.name} kept in {store.folder}")
    except UsageError:
        raise
    except SpecctlError as error:
        _say(failed(error), output_format)
        raise typer.Exit(int(error.exit_code)) from error
    if output_format is output.Format.TABLE:
        _say(verdict, output_format)
    else:
        told = {**verdict.to_json(), "canary": [run.to_json() for run in runs]}
        _print(lambda: output.emit(lambda: told, lambda: "", output_format), verdict.line)
    raise typer.Exit(verdict.exit)


def _check(asked: Asked, output_format: output.Format, *, dry: bool) -> int:
    from speccli.core import deadline
    from speccli.core.alert import check as checking
    from speccli.core.alert.verdict import failed

    clock = deadline.Clock(asked.deadline_s)
    said: list[int] = []

    def say(verdict: Verdict) -> None:
        if not said:
            said.append(verdict.exit)
            _say(verdict, output_format)

    def after(checked: Checked) -> Memory:
        say(checked.verdict)
        notifier = _notifier(asked, checked.memory, dry=dry)
        for line in notifier.tell_within(clock, checked.verdict):
            diagnostics.warn(line)
        return dataclasses.replace(checked.memory, sent=notifier.to_json())

    with deadline.LastResort(clock, lambda: say(failed(clock.late())), lambda: said[0]):
        checked = checking.check(asked, clock, after=after)
        say(checked.verdict)
    for note in checked.notes:
        diagnostics.warn(note)
    deadline.leave(checked.verdict.exit)
    return checked.verdict.exit


def _notifier(asked: Asked, memory: Memory, *, dry: bool) -> Notifier:
    from speccli.core.alert.notify import Notifier, channels_of
    from speccli.core.open import access_of

    settings = asked.settings
    channels = channels_of(settings.alertmanager or (), settings.notify or (), access_of(settings))
    return Notifier(channels, asked.name or "default", memory.sent, dry=dry)


def _asked(settings: Settings, terms: Terms, how: JudgeOptions) -> Asked:
    from speccli.core import config
    from speccli.core.alert.check import Asked
    from speccli.core.alert.notify import channels_of

    channels_of(settings.alertmanager or (), settings.notify or ())  # what is no address is usage
    return Asked(settings, terms, how.name, how.state, config.here()[0])


def _settings(source: SourceOptions, how: JudgeOptions) -> Settings:
    settings = source.settings()
    return dataclasses.replace(
        settings,
        baseline=how.baseline or settings.baseline,
        alertmanager=tuple(how.alertmanager) if how.alertmanager else settings.alertmanager,
        notify=tuple(how.notify) if how.notify else settings.notify,
    )


def _say(verdict: Verdict, output_format: output.Format) -> None:
    if output_format is output.Format.TABLE:
        _print(lambda: output.text("\n".join(verdict.lines)), verdict.line)
    else:
        _print(lambda: output.emit(verdict.to_json, lambda: "", output_format), verdict.line)


def _print(write: Callable[[], None], line: str) -> None:
    """Write to stdout; where it takes no more, `line` is told, and the exit code stays its own."""
    try:
        write()
    except output.Unwritable as error:
        output.abandon()
        diagnostics.warn(f"standard output takes no more ({error.strerror}): {line}")


def _terms(settings: Settings, how: JudgeOptions, key: KeyOptions) -> Terms:
    from speccli.core import config
    from speccli.core.alert.check import stored
    from speccli.core.alert.confirm import Policy
    from speccli.core.alert.examine import Terms
    from speccli.core.open import thresholds_of

    name = settings.baseline
    return Terms(
        thresholds=thresholds_of(settings),
        baseline=stored(name, how.state, config.here()[0]) if name else None,
        running=key.key(),
        force=how.force,
        policy=Policy.parse(how.confirm, how.clear),
        require_traffic=how.require_traffic,
    )
