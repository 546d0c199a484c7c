"""`specctl bench run`: arms × loads × datasets × repeats."""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._grouped import with_group
from speccli.options import CLUSTER, FormatOption, SetOption, SourceOptions, source_without

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.bench.asked import Asked
    from speccli.core.config import Settings


class Api(StrEnum):
    """`--api`."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class Window(StrEnum):
    """`--window`."""

    STEADY = "steady"
    WHOLE = "whole"


class Runner(StrEnum):
    """`--runner`."""

    SPECCTL = "specctl"
    VLLM_BENCH = "vllm-bench"
    AIPERF = "aiperf"


Arm = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="NAME=URL", help="A server that runs; repeat for each."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="local", help="Start the servers here, one after the other."),
]
TargetModel = Annotated[
    str | None, typer.Option("--target", metavar="MODEL", help="With --to local: the target.")
]
Draft = Annotated[
    list[str] | None,
    typer.Option(
        "--draft",
        metavar="METHOD[=PATH]",
        help="With --to local: eagle3=PATH, p-eagle=PATH, ngram, …; repeat. The baseline is added.",
    ),
]
K = Annotated[
    str | None,
    typer.Option(
        "--k",
        metavar="N[,N…]",
        help="Tokens drafted a step; several make an arm each.",
        show_default="3",
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option("--recipe", metavar="RECIPE", help="With --to local: with its draft and without."),
]
Batch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="N[,N…]",
        help="Closed loop: requests kept in flight.",
        show_default="1,8,32",
    ),
]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="R[,R…]", help="Open loop: Poisson arrivals a second."),
]
DatasetNames = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        metavar="NAME[,NAME…]",
        help="sharegpt, mtbench, humaneval, builtin, or a .jsonl file; repeat.",
        show_default="builtin",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Where the datasets' files lie, if not installed here."
    ),
]
Requests = Annotated[
    str | None,
    typer.Option(
        "--requests",
        metavar="N[,N…]",
        help="Measured requests of each row; several: one for each load.",
        show_default="100, and 8 x batch",
    ),
]
Seconds = Annotated[
    str | None, typer.Option("--seconds", metavar="TIME", help="Or: how long each row lasts.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Longest answer, tokens.", show_default="256")
]
OutputTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Every answer exactly this long (ignore_eos: lowers acceptance)."),
]
Warmup = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Requests of each row that are not measured.",
        show_default="the batch; 3 s of arrivals",
    ),
]
WindowOption = Annotated[
    Window,
    typer.Option(
        help="steady: a load that stands, without ramp and tail. whole: as vllm bench serve counts."
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="MODEL",
        help="With another --runner: what it counts prompts with.",
        show_default="the model's name",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Where the result goes.", show_default="outputs/bench-….json"
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="NAME",
        help="The arm that others are compared with.",
        show_default="baseline, none, or the first",
    ),
]
StandIn = Annotated[
    str | None,
    typer.Option(
        "--stand-in", metavar="WORDS", help="The model stands in for another: what it is."
    ),
]
RequestSeeds = Annotated[
    bool,
    typer.Option(
        "--request-seeds", help="A seed in each request: repeatable sampling, at a cost of its own."
    ),
]
Structured = Annotated[
    Path | None,
    typer.Option(
        "--structured", metavar="FILE", help="A JSON schema that every answer is held to."
    ),
]
Nvml = Annotated[
    bool,
    typer.Option("--nvml", help="With --arm: the servers' GPUs are this machine's; read them."),
]
ServerLog = Annotated[
    list[str] | None,
    typer.Option("--server-log", metavar="ARM=FILE", help="What a server of --arm prints; repeat."),
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS…]", help="With --to local: more arguments of vllm serve."),
]


@dataclass(frozen=True)
class BenchFlags:
    """What is measured, by its options. None: not typed."""

    arm: Arm = None
    to: To = None
    target: TargetModel = None
    draft: Draft = None
    k: K = None
    recipe: Recipe = None
    changes: SetOption = None
    baseline: Baseline = None
    batch: Batch = None
    rate: Rate = None
    dataset: DatasetNames = None
    data: Data = None
    requests: Requests = None
    seconds: Seconds = None
    max_tokens: MaxTokens = None
    output_tokens: OutputTokens = None
    temperature: Annotated[float, typer.Option(min=0.0, max=5.0, help="Sampling.")] = 0.0
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Sampling.")] = None
    seed: Annotated[int, typer.Option(help="Of the order of prompts and of arrivals.")] = 0
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, help="Times each row is run; once is no verdict.")
    ] = 3
    request_seeds: RequestSeeds = False
    structured: Structured = None
    warmup: Warmup = None
    api: Annotated[Api, typer.Option(help="Which endpoint is asked.")] = Api.CHAT
    window: WindowOption = Window.STEADY
    runner: Annotated[Runner, typer.Option(help="What puts the load on.")] = Runner.SPECCTL
    tokenizer: Tokenizer = None
    out: Out = None
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure what the file at --out lacks.")
    ] = False
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="Keep the answers, to compare them.")
    ] = False
    stand_in: StandIn = None
    dcgm: Annotated[
        str | None, typer.Option(metavar="URL", help="A DCGM exporter, for GPUs elsewhere.")
    ] = None
    nvml: Nvml = False
    server_log: ServerLog = None
    request_deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Wall clock for one whole answer.")
    ] = "10m"
    start_deadline: Annotated[
        str, typer.Option(metavar="TIME", help="With --to local: for a server's start.")
    ] = "15m"
    logs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Logs of the servers it starts.", show_default="TMPDIR"),
    ] = None

    def asked(self, settings: Settings, extra: list[str] | None, command: str) -> Asked:
        """As the bench takes it."""
        from speccli.core.bench.asked import Asked

        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return Asked(**given, extra=extra, settings=settings, command=command)


@source_without(
    *("endpoint", "prometheus", "selector", "replay", "window", "interval", "deadline"),
    *("method", "floor", "hold", "baseline_cost"),
    *CLUSTER,
)
@with_group("flags", BenchFlags)
def run(
    source: SourceOptions,
    flags: BenchFlags,
    extra: Extra = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Measure arms under load, paired by prompt.

    Each arm is a server (--arm), or is started here in turn (--to local). Streams, counts tokens
    by usage, discards warm-up, and keeps the file after every row: --resume goes on with it.
    """
    from speccli.core.bench import asked as asking
    from speccli.core.bench.external import ToldToStop, run_with
    from speccli.core.bench.form import to_json
    from speccli.core.bench.progress import Progress

    command = shlex.join(["specctl", *sys.argv[1:]])
    plan = asking.plan(flags.asked(source.settings(), extra, command))
    for note in plan.notes:
        diagnostics.warn(note)
    try:
        result = run_with(plan.spec, plan.before, Progress(diagnostics.say, diagnostics.progress))
    except ToldToStop as told:
        kept = asking.left_behind(plan.spec)
        if told.number == signal.SIGINT:
            told.add_note(kept)
            raise
        diagnostics.say(f"interrupted: {kept}")
        raise typer.Exit(128 + told.number) from None

    def table() -> RenderableType:
        from speccli.tables.bench_run import run_table

        return run_table(result)

    output.emit(lambda: to_json(result), table, output_format)
    diagnostics.say(f"kept in {plan.spec.out}")
    raise typer.Exit(int(asking.exit_code(result)))
