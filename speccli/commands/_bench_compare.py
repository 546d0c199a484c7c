"""`specctl bench compare`: arms beside a baseline, with a verdict each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.options import FormatOption

if TYPE_CHECKING:
    from rich.console import RenderableType

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="Benches; several are taken as one.")
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline", metavar="ARM", help="Beside which arm.", show_default="the one marked so"
    ),
]


def compare(
    files: Files,
    baseline: Baseline = None,
    target: Annotated[
        float,
        typer.Option(
            "--target-speedup", min=0.1, max=100.0, help="PASS where the speed-up is over it."
        ),
    ] = 1.1,
    arm: Annotated[
        list[str] | None, typer.Option("--arm", metavar="ARM", help="Only these; repeat.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option("--batch", metavar="N", help="Only these; repeat.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", metavar="NAME", help="Only these; repeat.")
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say how much faster each arm is, and how sure that is.

    PASS where the whole 95 % interval of the speed-up lies over the target, FAIL where it lies
    under it, else INCONCLUSIVE; docs/verdict.md has the method. Exits 0 where all pass, 2 where
    one fails, 3 where one cannot be told.
    """
    from speccli.core.bench.compare import compare as compared
    from speccli.core.bench.merge import read_all
    from speccli.core.bench.verdict import exit_code
    from speccli.core.views import bench as view

    found = compared(
        read_all(files),
        baseline=baseline,
        target=target,
        arms=arm or (),
        batches=batch or (),
        datasets=dataset or (),
    )

    def table() -> RenderableType:
        from speccli.tables.bench import compare_table

        return compare_table(found)

    output.emit(lambda: view.compare(found), table, output_format)
    raise typer.Exit(int(exit_code([cell.verdict.word for cell in found.cells])))
