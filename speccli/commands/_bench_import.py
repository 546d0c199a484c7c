"""`specctl bench import`: results of other load generators as a bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speccli import diagnostics, output


def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[ARM=]FILE…",
            help="Results; an arm's files at the same load are its repeats, in order.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the bench goes.")],
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call the prompts.", show_default="imported"),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="ARM", help="Which arm others are compared with.", show_default="none"
        ),
    ] = None,
    stand_in: Annotated[
        str | None,
        typer.Option(
            "--stand-in", metavar="WORDS", help="The model stands in for another: what it is."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The bench's.", show_default="as --out")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Take over results of vllm bench serve, AIPerf and GuideLLM.

    vllm bench serve wants --save-result, and --save-detailed for intervals; AIPerf's
    profile_export_aiperf.json is read with the files beside it. What a file does not hold is
    unknown in the bench, with the reason.
    """
    from speccli.core.bench.form import write
    from speccli.core.bench.imports import import_files, refuse_to_lose

    refuse_to_lose(out, files, force=force)
    result = import_files(
        files, dataset=dataset, baseline=baseline, name=name or out.stem, stand_in=stand_in
    )
    write(out, result)
    output.text(str(out))
    arms = ", ".join(arm.name for arm in result.arms)
    diagnostics.say(f"{len(result.rows)} rows of {arms} from {result.provenance.runner}")
    if not any(arm.baseline for arm in result.arms):
        diagnostics.warn("no arm is the baseline; `bench compare` wants --baseline")
