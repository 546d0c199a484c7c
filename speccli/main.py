"""The `specctl` command: where the console script enters."""

import typer

app = typer.Typer(
    help="The operator's console for speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None:
    """The operator's console for speculative decoding."""


def main() -> None:
    """Run the command line."""
    app()
