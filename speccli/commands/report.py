"""`specctl report`: a bench, as something to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.commands._bench_compare import Baseline

_EPILOG = "Exit codes: 0 ok · 64 usage · 70 a bug in specctl · 130 interrupted."


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from speccli.core.report.build import Report


Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE…]", help="Benches; several are taken as one."),
]
Each = Annotated[
    list[str] | None,
    typer.Option(
        "--each",
        metavar="NAME=FILE",
        help="Several models, a report each under one first page; repeat.",
    ),
]
Again = Annotated[
    list[str] | None,
    typer.Option(
        "--again",
        metavar="NAME=FILE",
        help="With --each: another run of that model, to say where it disagrees; repeat.",
    ),
]
Estimates = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With --each: what `specctl plan` says, beside what was measured."
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A hosted model to compare the cost with; repeat.",
        show_default="the newest of Anthropic and OpenAI",
    ),
]


def command(
    files: Files = None,
    each: Each = None,
    estimates: Estimates = None,
    again: Again = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the report goes.")
    ] = Path("outputs"),
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that specctl did not write.")
    ] = False,
    baseline: Baseline = None,
    target: Annotated[
        float,
        typer.Option(
            "--target-speedup", min=0.1, max=100.0, help="PASS where the speed-up is over it."
        ),
    ] = 1.1,
    gpu_hour_usd: Annotated[
        float | None,
        typer.Option(min=0.0001, help="Price of one GPU for an hour.", show_default="the bench's"),
    ] = None,
    model: Models = None,
) -> None:
    """Write a bench as Markdown, HTML, JSON and a skill card.

    report.html is one file that fetches nothing, for a desk, a phone and paper;
    skill-inference-server.md tells an assistant how to run this server. What was simulated or
    measured on a stand-in is marked so, everywhere. Prints the files it wrote.
    """
    from datetime import UTC, datetime

    from speccli.core.bench.merge import read_all
    from speccli.core.errors import UsageError
    from speccli.core.prices import PriceBook
    from speccli.core.report.build import build
    from speccli.core.report.write import write

    book, now = PriceBook.bundled(), datetime.now(UTC)

    def made(paths: Sequence[Path]) -> Report:
        return build(
            read_all(paths),
            [str(path) for path in paths],
            book,
            made=now,
            baseline=baseline,
            target=target,
            gpu_hour_usd=gpu_hour_usd,
            models=[book.find(name) for name in dict.fromkeys(model or ())],
        )

    if bool(files) == bool(each):
        raise UsageError("which bench?", hint="give files of one, or --each NAME=FILE of several")
    written = (
        _several(each, (estimates, again or ()), made, out, now, force)
        if each
        else write(made(files or ()), out, force=force)
    )
    for path in written:
        output.text(str(path))


def _several(
    each: Sequence[str],
    beside: tuple[Path | None, Sequence[str]],
    made: Callable[[Sequence[Path]], Report],
    out: Path,
    now: datetime,
    force: bool,
) -> list[Path]:
    from speccli.core.bench.form import read
    from speccli.core.report import several, several_again
    from speccli.core.report.several_pages import write

    estimates, again = beside
    lines, fitted = several.read_estimates(estimates) if estimates is not None else ((), "")
    parts = tuple((name, made(paths)) for name, paths in several.names(each).items())
    runs = {
        name: [(path, read(path)) for path in paths]
        for name, paths in several.names(again, "--again").items()
    }
    told = several_again.again(parts, runs)
    return write(several.Several(parts, lines, fitted, told), out, now, force=force)
