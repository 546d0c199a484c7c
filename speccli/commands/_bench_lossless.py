"""`specctl bench lossless`: do arms write what the baseline writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._bench_compare import Baseline, Files
from speccli.core.errors import ExitCode
from speccli.options import FormatOption, SourceOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.bench.results import Result


def lossless(
    files: Files,
    baseline: Baseline = None,
    ask: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A server without speculation, asked for log-probabilities where answers part.",
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", metavar="FILE", help="With --ask: a file of prompts; repeat."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --ask: where dataset packages lie.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="With --ask: keep the bench with the answers."),
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Compare the greedy answers of arms, and say where they part.

    Wants texts (bench run --keep-texts, temperature 0). A parting is numeric where the baseline's
    own choice was a near tie, wrong where it was not, unknown without log-probabilities. Exits 0
    where none is wrong, 2 where one is, 3 where answers cannot be compared or classed.
    """
    from speccli.core.bench.lossless import lossless as compared
    from speccli.core.bench.merge import read_all
    from speccli.core.views import bench as view

    result = read_all(files)
    if ask is not None:
        if out is not None:
            from speccli.core.state import ensure_writable

            ensure_writable(out, hint="give --out FILE")
        result = _asked(result, ask, dataset or (), data)
        if out is not None:
            from speccli.core.bench.form import write

            write(out, result)
    found = compared(result, baseline)

    def table() -> RenderableType:
        from speccli.tables.bench import lossless_table

        return lossless_table(found)

    output.emit(lambda: view.lossless(found), table, output_format)
    if found.wrong:
        raise typer.Exit(int(ExitCode.CRITICAL))
    if not found.told:
        raise typer.Exit(int(ExitCode.UNKNOWN))


def _asked(
    result: Result, url: str, files: list[str] | tuple[str, ...], folder: Path | None
) -> Result:
    import asyncio

    from speccli.core.bench.lossless_ask import ask_baseline, conversations
    from speccli.core.open import access_of
    from speccli.core.sources.targets import parse_targets

    def tell(done: int, of: int) -> None:
        diagnostics.progress(f"specctl: asking the baseline, {done + 1} of {of}")

    (target,) = parse_targets([url])
    return asyncio.run(
        ask_baseline(
            result,
            conversations(result, files, folder),
            target,
            access_of(SourceOptions().settings()),
            deadline_s=120.0,
            progress=tell,
        )
    )
