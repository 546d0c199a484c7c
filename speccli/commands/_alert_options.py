"""Options that the commands of `specctl alert` and `specctl baseline` share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli.options import CLUSTER

if TYPE_CHECKING:
    from speccli.core.baseline import Key

BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Judge drift by this baseline (or file)."),
]
RequireTraffic = Annotated[
    bool, typer.Option("--require-traffic", help="No traffic is unknown (3), not ok.")
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Where specctl remembers things.",
        show_default="SPECCTL_STATE, else ~/.local/state/specctl",
    ),
]


@dataclass(frozen=True)
class KeyOptions:
    """Parts of a baseline's key that no metric tells."""

    target_revision: Annotated[
        str | None, typer.Option(metavar="REV", help="Revision of the target's weights.")
    ] = None
    draft: Annotated[str | None, typer.Option("--draft", metavar="MODEL", help="The draft.")] = None
    draft_revision: Annotated[
        str | None, typer.Option(metavar="REV", help="Revision of the draft's weights.")
    ] = None
    runner: Annotated[
        str | None, typer.Option(help="Model runner, where the engine has two: v1, v2.")
    ] = None
    sampling: Annotated[
        str | None, typer.Option(metavar="WORDS", help="How requests sample: temperature=0.")
    ] = None
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="A fixed set of prompts, by name or hash.")
    ] = None

    def key(self) -> Key:
        """What was told."""
        from speccli.core.baseline import Key

        return Key(**{name: value or None for name, value in asdict(self).items()})


@dataclass(frozen=True)
class JudgeOptions:
    """How a check judges, what it remembers, and whom it tells."""

    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What the deployment is called.",
            show_default="its source",
        ),
    ] = None
    baseline: BaselineOption = None
    force: Annotated[
        bool, typer.Option("--force", help="Compare with a baseline of another key.")
    ] = False
    confirm: Annotated[
        str,
        typer.Option(
            "--confirm",
            metavar="N/M",
            help="A finding counts (line, exit code, notifications) once N of the last M checks "
            "saw it, and is pending until then. What is sure at once counts at once: acceptance "
            "that is zero, low or has drifted, speculation that is off, an engine that hangs.",
        ),
    ] = "1/1"
    clear: Annotated[
        int,
        typer.Option(
            "--clear",
            min=1,
            max=100,
            help="A finding that counts is over once so many checks in a row did not see it.",
        ),
    ] = 1
    require_traffic: RequireTraffic = False
    alertmanager: Annotated[
        list[str] | None,
        typer.Option(
            "--alertmanager", metavar="URL", help="Tell this Alertmanager; repeat for a cluster's."
        ),
    ] = None
    notify: Annotated[
        list[str] | None,
        typer.Option(
            "--notify",
            metavar="URL",
            help="Tell this apprise URL (better: SPECCTL_NOTIFY); repeat.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say who would be told what; tell nobody.")
    ] = False
    state: StateOption = None


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
