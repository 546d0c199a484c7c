"""`specctl bench schedule`: K by batch size, from a sweep of K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.commands._bench_compare import Baseline, Files
from speccli.options import FormatOption

if TYPE_CHECKING:
    from rich.console import RenderableType


def schedule(
    files: Files,
    baseline: Baseline = None,
    method: Annotated[
        str | None, typer.Option(help="Which, where several methods were measured.")
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(min=1, help="The engine's; the last range reaches to it."),
    ] = None,
    data_parallel: Annotated[
        int, typer.Option(min=1, help="The engine's --data-parallel-size; refused over 1.")
    ] = 1,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say which K to draft at which batch size.

    From arms that differ in K alone, and one without a draft: vLLM's
    num_speculative_tokens_per_batch_size (0.24 and newer) with the measured points that justify
    it. Exits 0; 64 where the files hold no sweep or the engine would not obey.
    """
    from speccli.core.bench.merge import read_all
    from speccli.core.bench.schedule import schedule as scheduled
    from speccli.core.views import bench as view

    found = scheduled(
        read_all(files),
        baseline=baseline,
        method=method,
        max_num_seqs=max_num_seqs,
        data_parallel=data_parallel,
    )

    def table() -> RenderableType:
        from speccli.tables.bench import schedule_table

        return schedule_table(found)

    output.emit(lambda: view.schedule(found), table, output_format)
    if output_format is output.Format.TABLE:
        from speccli.tables.bench import config_lines

        if lines := config_lines(found):
            output.text("\n" + "\n".join(lines))
