"""`specctl kernels check|job`: are the verification kernels right and healthy on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._cluster_options import ContextOption, KubeconfigOption, NamespaceOption
from speccli.options import FormatOption

if TYPE_CHECKING:
    from rich.console import RenderableType

_EPILOG = """Exit codes: 0 ok · 1 warning · 2 critical · 3 unknown (no CUDA device, nothing could be
looked at) · 64 usage · 70 a bug in specctl · 130 interrupted."""

app = typer.Typer(
    help="Check the kernels that verify drafts, on this GPU and in this image.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


Image = Annotated[str | None, typer.Option(metavar="IMAGE", help="With --job: the image to check.")]
Deployment = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --job: the image and placement of a deployment."),
]
Node = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --job: the one node to check.")
]
Container = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --exec: its container.", show_default="the engine's"),
]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="With --local: the interpreter that has torch and the engine.",
        show_default="specctl's own",
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A check, or a prefix of some; repeat.")
]
Soak = Annotated[float, typer.Option(min=0.0, metavar="MIN", help="Also minutes of verify steps.")]
Svg = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --cost: draw the curves here.")
]
Deadline = Annotated[str, typer.Option(metavar="TIME", help="Wall clock of the run.")]


@app.callback(epilog=_EPILOG)
def _group() -> None:
    """Check the kernels that verify drafts, on this GPU and in this image."""


@app.command("check", epilog=_EPILOG)
def check(
    local: Annotated[
        bool, typer.Option("--local", help="On this machine; so it is without --job or --exec.")
    ] = False,
    job: Annotated[
        bool, typer.Option("--job", help="As a Job of its own: one GPU, restricted security.")
    ] = False,
    pod: Annotated[
        str | None, typer.Option("--exec", metavar="POD", help="Inside a pod that runs.")
    ] = None,
    image: Image = None,
    deployment: Deployment = None,
    node: Node = None,
    container: Container = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    python: Python = None,
    only: Only = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Also the rejection samplers side by side.")
    ] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Also the verify-cost curves.")] = False,
    soak: Soak = 0.0,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Also prove that the checks catch faults.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    svg: Svg = None,
    deadline: Deadline = "15m",
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say whether the kernels that verify drafts are right here, before traffic is let in.

    Runs the checks with the engine's own Python. docs/kernels.md says what each one claims. The
    result is remembered, so that `deploy` can ask for a fresh pass.
    """
    from speccli.core import kernels, kernels_ways
    from speccli.core.units import seconds

    wanted = kernels.wanted(
        python,
        only or (),
        {"--speed": speed, "--cost": cost, "--mutants": mutants},
        {"--soak": soak or None, "--seed": seed, "--svg": svg and svg.absolute()},
        seconds(deadline, what="--deadline", least=1),
    )
    asked = kernels_ways.Asked(
        local, job, pod, wanted, image, deployment, node, container, namespace, context, kubeconfig
    )
    document = kernels_ways.check(asked, diagnostics.say, diagnostics.warn)

    def table() -> RenderableType:
        from speccli.tables.kernels import kernels_table

        return kernels_table(document)

    output.emit(lambda: document, table, output_format)
    raise typer.Exit(int(document["exit"]))


@app.command("job", epilog=_EPILOG)
def job(
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="The engine's image, best by its digest.")
    ],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="Where it will run.")
    ] = "default",
    node: Annotated[str | None, typer.Option(metavar="NAME", help="The one node to check.")] = None,
    only: Only = None,
    deadline: Deadline = "15m",
) -> None:
    """Print the Job that runs the checks on a node, for `kubectl apply -f -`.

    The engine's image, one GPU, restricted pod security; the checks travel in a ConfigMap. Its log
    is a JSON line a check, its exit code the verdict.
    """
    import yaml

    from speccli.core import kernels, kernels_job
    from speccli.core.units import seconds

    arguments = tuple(word for name in only or () for word in ("--only", name))
    wall = int(seconds(deadline, what="--deadline", least=1))
    request = kernels_job.JobRequest(image, namespace, node, arguments, wall)
    made = kernels_job.objects(request, kernels.package())
    output.text(yaml.safe_dump_all(made, sort_keys=False).rstrip("\n"))
