"""`specctl fallback plan`: what would be done about a deployment now, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import output
from speccli.commands._cluster_options import ToOption, connector, is_local, state
from speccli.options import FormatOption, SourceOptions, source_without

if TYPE_CHECKING:
    from rich.console import RenderableType


Rung = Annotated[
    str | None,
    typer.Option(metavar="RUNG", help="Plan the move to this rung, whatever is found."),
]
Findings = Annotated[
    list[str] | None,
    typer.Option("--finding", metavar="CODE", help="What is wrong, by hand; repeat for more."),
]
Benches = Annotated[
    list[Path] | None,
    typer.Option(
        "--bench",
        metavar="FILE",
        help="A bench of the rungs, by which they are ordered; repeat.",
    ),
]
Batch = Annotated[
    float | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="Requests that one server runs now.",
        show_default="as its engines tell",
    ),
]


@source_without(
    *("deployment", "interval", "method", "hold", "gpus_per_engine", "baseline_cost"),
)
def command(
    source: SourceOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")],
    to: ToOption = None,
    rung: Rung = None,
    finding: Findings = None,
    bench: Benches = None,
    batch: Batch = None,
    output_format: FormatOption = output.Format.TABLE,
) -> None:
    """Say what would be done about a deployment now, why, and what it would cost.

    Findings are those that `alert` remembers and those of a look at the engines (5 s). First the
    move in words, then how it would be made, then the rungs. Changes nothing.
    """
    from speccli.core import config
    from speccli.core.deploy.place import place
    from speccli.core.fallback.planning import Asked, of_cluster, of_machine
    from speccli.core.views import fallback as view

    asked = Asked(
        source.settings(),
        source.replay,
        batch,
        tuple(bench or ()),
        tuple(finding or ()),
        rung,
        config.here()[0],
    )
    where = (source.namespace, source.context, source.kubeconfig)
    if is_local(name, to, *where):
        made = of_machine(place(state(), name), asked)
    else:
        connect = connector(source.kubeconfig, source.context, source.namespace)
        made = of_cluster(lambda: connect(None), source.namespace, name, asked)

    def table() -> RenderableType:
        from speccli.tables.fallback import plan_table

        return plan_table(made)

    output.emit(lambda: view.planned(made), table, output_format)
