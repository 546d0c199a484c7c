"""`specctl report`: a bench, as something to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speccli import output
from speccli.commands._bench_compare import Baseline, Files

_EPILOG = "Exit codes: 0 ok · 64 usage · 70 a bug in specctl · 130 interrupted."


def command(
    files: Files,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the report goes.")
    ] = Path("outputs"),
    baseline: Baseline = None,
    target: Annotated[
        float,
        typer.Option(
            "--target-speedup", min=0.1, max=100.0, help="PASS where the speed-up is over it."
        ),
    ] = 1.1,
    gpu_hour_usd: Annotated[
        float | None,
        typer.Option(min=0.0, help="Price of one GPU for an hour.", show_default="the bench's"),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="A hosted model to compare the cost with; repeat.",
            show_default="the newest of Anthropic and OpenAI",
        ),
    ] = None,
) -> None:
    """Write a bench as Markdown, HTML, JSON and a skill card.

    report.html is one file that fetches nothing, for a desk, a phone and paper;
    skill-inference-server.md tells an assistant how to run this server. What was simulated or
    measured on a stand-in is marked so, everywhere. Prints the files it wrote.
    """
    from datetime import UTC, datetime

    from speccli.core.bench.merge import read_all
    from speccli.core.prices import PriceBook
    from speccli.core.report.build import build
    from speccli.core.report.write import write

    book = PriceBook.bundled()
    made = build(
        read_all(files),
        [str(file) for file in files],
        book,
        made=datetime.now(UTC),
        baseline=baseline,
        target=target,
        gpu_hour_usd=gpu_hour_usd,
        models=[book.find(name) for name in dict.fromkeys(model or ())],
    )
    for path in write(made, out):
        output.text(str(path))
