"""`specctl draft train`: a head for a target, from prompts to acceptance."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._cluster_options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    To,
    connector,
)
from speccli.core.errors import UsageError
from speccli.options import FormatOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.training.job import Wanted
    from speccli.core.training.run import Told


_STORAGE = "50Gi"


class Head(StrEnum):
    """`--method`."""

    EAGLE3 = "eagle3"
    P_EAGLE = "p-eagle"


class Backend(StrEnum):
    """`--backend`."""

    SPECULATORS = "speculators"
    SPECFORGE = "specforge"


Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="A folder with the model, or a name on the hub.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where all of it goes.")]
DataNames = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="NAME|FILE[=SHARE]",
        help="Prompts to train on: sharegpt, or a .jsonl file, and its share; repeat.",
        show_default="sharegpt",
    ),
]
TestNames = Annotated[
    list[str] | None,
    typer.Option(
        "--test",
        metavar="NAME|FILE",
        help="Prompts to measure with and never to train on; repeat. mtbench and humaneval always.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("--data-folder", metavar="DIR", help="Where the datasets' files lie."),
]
Minutes = Annotated[float | None, typer.Option(min=0.1, help="How long to train.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Or: how many steps.")]
Init = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Go on from this head: a published one, or Speculators'."),
]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PROGRAM",
        help="The Python that has torch, vLLM and Speculators.",
        show_default="the one with vLLM",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="answers.samples=1, training.lr=1e-3, …; repeat."
    ),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        "--against", metavar="NAME=DIR", help="Another head to measure beside it; repeat."
    ),
]
Image = Annotated[
    str | None,
    typer.Option(help="With --to kubernetes: an image with vLLM and Speculators in it."),
]
ModelsClaim = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --to kubernetes: a claim to mount at /models."),
]
Storage = Annotated[
    str | None,
    typer.Option(help="With --to kubernetes: of the claim.", show_default=_STORAGE),
]
Method = Annotated[Head, typer.Option(help="What kind of head.")]
By = Annotated[
    Backend, typer.Option("--backend", help="Who trains; for specforge a run file is written.")
]
Prompts = Annotated[
    int | None, typer.Option(min=10, help="Prompts to train on.", show_default="all")
]
HeldOut = Annotated[
    int, typer.Option(min=0, help="Prompts of each dataset that are not trained on.")
]
Accept = Annotated[
    bool, typer.Option("--accept/--no-accept", help="Measure acceptance afterwards.")
]
AcceptPrompts = Annotated[int, typer.Option(min=1, help="Prompts of each test.")]
Depth = Annotated[int, typer.Option("--k", min=1, max=64, help="Tokens drafted a step.")]
Where = Annotated[To, typer.Option("--to", help="Train here, or as a Job.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="With --to kubernetes: print the objects instead.")
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS…]", help="More arguments of vllm serve, to measure with."),
]


def train(
    target: Target,
    out: Out,
    method: Method = Head.EAGLE3,
    backend: By = Backend.SPECULATORS,
    data: DataNames = None,
    tests: TestNames = None,
    data_folder: Folder = None,
    minutes: Minutes = None,
    steps: Steps = None,
    init: Init = None,
    prompts: Prompts = None,
    held_out: HeldOut = 1000,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    changes: Changes = None,
    python: Python = None,
    accept: Accept = True,
    accept_prompts: AcceptPrompts = 100,
    k: Depth = 3,
    against: Against = None,
    to: Where = To.LOCAL,
    image: Image = None,
    models_claim: ModelsClaim = None,
    storage: Storage = None,
    dry_run: DryRun = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    extra: Extra = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Train a head on the target's own answers, check it, load it and measure it.

    Stages: prompts, answers (by vLLM), train (Speculators), export. Each is kept; the same command
    again goes on where it ended, and --steps or --minutes may be raised. Prompts that a bench takes
    first are held out.
    """
    from speccli.core.training.job import Wanted

    named, test_names, sets = tuple(data or ("sharegpt",)), tuple(tests or ()), tuple(changes or ())
    wanted = Wanted(
        target=target, out=out, method=method.value, data=named, tests=test_names,
        folder=data_folder, minutes=minutes, steps=steps, init=init, prompts=prompts,
        held_out=held_out, seed=seed, changes=sets, measured=accept_prompts,
    )  # fmt: skip
    if to is To.KUBERNETES:
        if backend is Backend.SPECFORGE or against or extra:
            raise UsageError(
                "--backend specforge, --against and arguments of vllm serve are for --to local",
                hint="a Job trains; measure the head where it is served",
            )
        claims = (models_claim, storage or _STORAGE)
        _as_job(wanted, image, claims, dry_run, (kubeconfig, context, namespace))
        return
    _for_a_cluster(
        {
            "--dry-run": dry_run, "--image": image, "--models-claim": models_claim,
            "--storage": storage, "--namespace": namespace, "--context": context,
            "--kubeconfig": kubeconfig,
        }
    )  # fmt: skip
    if backend is Backend.SPECFORGE:
        if against or extra:
            raise UsageError(
                "--against and arguments of vllm serve are for --backend speculators",
                hint="SpecForge trains: measure its head where it is served",
            )
        _for_specforge(wanted, python)
    else:
        prompts_of_each = accept_prompts if accept else None
        _here(wanted, python, (k, prompts_of_each, against, extra), output_format)


def _for_a_cluster(given: Mapping[str, object]) -> None:
    """That no option was given that means something on a cluster alone."""
    named = [option for option, value in given.items() if value]
    if named:
        raise UsageError(
            f"{', '.join(named)}: for --to kubernetes, and this trains here",
            hint="add --to kubernetes, or leave it out",
        )


def _for_specforge(wanted: Wanted, python: str | None) -> None:
    from speccli.core.training.flow import for_specforge
    from speccli.core.training.options import python_for

    file, unchecked = for_specforge(wanted, python_for(python, wanted), _tell)
    diagnostics.say(f"{file}: {unchecked or 'SpecForge takes it'}")
    output.text(f"specforge train --config {file}")


def _here(
    wanted: Wanted,
    python: str | None,
    measured: tuple[int, int | None, list[str] | None, list[str] | None],
    output_format: output.Format,
) -> None:
    """Trains on this machine. `measured`: K, prompts (None: not at all), other heads, arguments."""
    from speccli.core.bench.progress import Progress
    from speccli.core.training.flow import Measuring
    from speccli.core.training.flow import train as flow
    from speccli.core.training.options import heads, python_for
    from speccli.core.views import training as view

    k, prompts, against, extra = measured
    others, arguments = heads(against), tuple(extra or ())
    outcome = flow(
        wanted,
        python_for(python, wanted),
        Measuring(k=k, prompts=prompts, against=others, extra_args=arguments) if prompts else None,
        _tell,
        Progress(diagnostics.say, diagnostics.progress),
    )

    def table() -> RenderableType:
        from speccli.tables.training import training_table

        return training_table(outcome)

    output.emit(lambda: view.document(outcome), table, output_format)
    raise typer.Exit(int(outcome.exit_code))


def _as_job(
    wanted: Wanted,
    image: str | None,
    claims: tuple[str | None, str],
    dry_run: bool,
    where: tuple[str | None, str | None, str | None],
) -> None:
    from speccli.core.training.kube_job import Request, apply, objects_for

    request = Request.of(wanted, image, where[2], models_claim=claims[0], storage=claims[1])
    made = objects_for(request, wanted)
    if dry_run:
        output.emit(
            lambda: {"apiVersion": "v1", "kind": "List", "items": made}, str, output.Format.YAML
        )
        return
    job = apply(made, connector(*where)(None))
    diagnostics.say(f"job {job} is there; its claim of the same name keeps every stage")
    output.text(f"kubectl -n {job.partition('/')[0]} logs -f job/{job.partition('/')[2]}")


def _tell(told: Told) -> None:
    from speccli.core.views import training as view

    line = view.line(told)
    if line is not None:
        diagnostics.say(line)
    elif sys.stderr.isatty():
        diagnostics.progress(f"specctl: {view.moving(told)}")
