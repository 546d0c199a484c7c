"""`specctl draft`: whether a draft fits its target, and a new one for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.commands._draft_train import train
from speccli.commands._grouped import with_group
from speccli.options import FormatOption

if TYPE_CHECKING:
    from rich.console import RenderableType

_EPILOG = """Exit codes: 0 ok · 1 warning · 2 critical · 3 unknown (the hub cannot be asked) ·
64 usage · 70 a bug in specctl · 130 interrupted."""

app = typer.Typer(
    help="Say whether a draft fits its target; train or fetch one.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(epilog=_EPILOG)
def _root() -> None:
    """Say whether a draft fits its target; train or fetch one."""


@dataclass(frozen=True)
class PairOptions:
    """How a pair is to be served."""

    method: Annotated[
        str | None,
        typer.Option(
            help="eagle3, p-eagle, draft_model, …", show_default="what the draft looks like"
        ),
    ] = None
    k: Annotated[
        int, typer.Option("--k", min=1, max=64, metavar="K", help="Tokens drafted per step.")
    ] = 3
    version: Annotated[
        str,
        typer.Option("--engine-version", metavar="VERSION", help="The vLLM that is to serve them."),
    ] = "0.32.0"
    max_model_len: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Longest request.")
    ] = None
    gpu: Annotated[str | None, typer.Option(help="h100, h100-nvl, h200, a100.")] = None
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, fp8, …")] = "auto"
    tensor_parallel: Annotated[int, typer.Option(min=1, metavar="GPUS")] = 1
    draft_tensor_parallel: Annotated[int | None, typer.Option(min=1, metavar="GPUS")] = None
    lora: Annotated[bool, typer.Option("--lora", help="Adapters are served.")] = False


@app.command("check", epilog=_EPILOG)
@with_group("how", PairOptions)
def check(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A folder with config.json, or a name on the hub."),
    ],
    draft: Annotated[
        str,
        typer.Argument(metavar="DRAFT", help="A folder with config.json, or a name on the hub."),
    ],
    how: PairOptions,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say whether a draft fits its target, and what to change if not.

    Reads config.json and the names of the weights, nothing else: no GPU, and no network for
    folders. Exits by the worst finding: 2 critical, 1 warning; 3 when the hub cannot be asked.
    """
    from dataclasses import asdict

    from speccli.core.preflight import check_pair
    from speccli.core.preflight.ask import pair_from
    from speccli.core.views import plan as view

    asked = pair_from(target, draft, **asdict(how))
    verdicts = check_pair(asked)

    def table() -> RenderableType:
        from speccli.tables.plan import pair_table

        return pair_table(f"{target} with {draft} · {asked.method}", verdicts)

    output.emit(lambda: view.pair(asked, verdicts), table, output_format)
    raise typer.Exit(int(view.exit_code(verdicts)))


@app.command("fetch", epilog=_EPILOG)
def fetch(
    name: Annotated[str, typer.Argument(metavar="ORG/MODEL", help="Its name on the hub.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where it goes.")],
    revision: Annotated[
        str | None, typer.Option(help="Commit, tag or branch.", show_default="the newest")
    ] = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Bring a published draft into a folder, and say which commit it is."""
    from dataclasses import asdict

    from speccli.core.preflight.fetch import fetch as bring

    found = bring(name, revision, out)

    def table() -> RenderableType:
        size = f"{found.weights} tensors, {found.bytes / 1e6:,.1f} MB"
        return f"{found.folder}: {found.name} at {found.revision}, {size}"

    output.emit(lambda: asdict(found), table, output_format)


app.command("train", epilog=_EPILOG)(train)
