"""`specctl bench`: what speculation earns, measured."""

from __future__ import annotations

import typer

from speccli.commands._bench_compare import compare
from speccli.commands._bench_import import import_
from speccli.commands._bench_lossless import lossless
from speccli.commands._bench_run import run
from speccli.commands._bench_schedule import schedule

_EPILOG = """Exit codes: 0 ok · 1 warning (a row is contaminated or lacks answers) · 2 a row
failed · 3 nothing could be measured · 64 usage · 70 a bug in specctl · 130 interrupted."""
_JUDGED = """Exit codes: 0 PASS, or no wrong answer · 2 FAIL, or a wrong answer · 3 not to be told ·
64 usage · 70 a bug in specctl · 130 interrupted."""
_MADE = "Exit codes: 0 ok · 64 usage · 70 a bug in specctl · 130 interrupted."

app = typer.Typer(
    help="Measure what speculation earns, and judge it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)


@app.callback(epilog=_EPILOG)
def _root() -> None:
    """Measure what speculation earns, and judge it."""


app.command("run", epilog=_EPILOG)(run)
app.command("compare", epilog=_JUDGED)(compare)
app.command("schedule", epilog=_MADE)(schedule)
app.command("lossless", epilog=_JUDGED)(lossless)
app.command("import", epilog=_MADE)(import_)
