"""Options that the commands of `specctl alert` share."""

from __future__ import annotations

from typing import Annotated

import typer

from speccli.options import CLUSTER

NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="What the deployment is called.", show_default="its source"
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Judge drift by this baseline (or file)."),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Compare with a baseline of another key.")
]
ConfirmOption = Annotated[
    str,
    typer.Option("--confirm", metavar="N/M", help="Say it when seen in N of the last M checks."),
]
ClearOption = Annotated[
    int, typer.Option("--clear", min=1, max=100, help="It is over after so many checks without it.")
]
AlertmanagerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--alertmanager", metavar="URL", help="Tell this Alertmanager; repeat for a cluster's."
    ),
]
NotifyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--notify", metavar="URL", help="Tell this apprise URL (better: SPECCTL_NOTIFY); repeat."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say who would be told what; tell nobody.")]
RequireTraffic = Annotated[
    bool, typer.Option("--require-traffic", help="No traffic is unknown (3), not ok.")
]

ASKING = (
    "prometheus",
    "selector",
    "token",
    "token_file",
    "ca",
    "cert",
    "key",
    "insecure",
    *CLUSTER,
)
"""Options about asking a source."""
POOLING = ("prometheus", "selector", "replay", "interval", "window", *CLUSTER)
"""Options about a Prometheus, and about windows."""
JUDGING = ("method", "floor", "hold", "gpu_hour_usd", "gpus_per_engine", "baseline_cost")
"""Options about what numbers are held against."""
