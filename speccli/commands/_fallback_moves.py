"""`specctl fallback apply` and `restore` on a cluster: moved, tried, or written as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speccli import diagnostics, output
from speccli.commands._cluster_options import Told
from speccli.commands.deploy import interrupted
from speccli.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.baseline import Baseline
    from speccli.core.bench.results import Result
    from speccli.core.fallback.preview import Preview
    from speccli.core.kube.client import Cluster

    Connect = Callable[[float | None], Cluster]

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show each call, tried on the server; change nothing.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write what would serve as manifests, for a repository; change nothing.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Try again what was refused before, without waiting.")
]
BaselineName = Annotated[
    str | None,
    typer.Option(
        "--baseline", metavar="NAME", help="What the canary's acceptance is held against too."
    ),
]
Lasting = Annotated[
    str,
    typer.Option("--canary-for", metavar="TIME", help="How long a canary is tried at most."),
]
Window = Annotated[
    str,
    typer.Option(
        "--window", metavar="TIME", help="Over how long canary and siblings are compared at a time."
    ),
]
Benches = Annotated[
    list[Path] | None,
    typer.Option(
        "--bench",
        metavar="FILE",
        help="A bench of the rungs: the standby gets the servers for the present speed; repeat.",
    ),
]
_GOES_ON = "what was begun goes on; the same command completes it"


@dataclass(frozen=True)
class Move:
    """What was typed of a move."""

    connect: Connect
    namespace: str | None
    name: str
    accept: tuple[str, ...]
    timeout: str | None
    dry_run: bool
    out: Path | None
    output_format: output.Format

    def __post_init__(self) -> None:
        if self.dry_run and self.out:
            raise UsageError("--dry-run and --out are two ways to see a move", hint="give one")

    @property
    def timeout_s(self) -> float | None:
        """For each rollout."""
        from speccli.core.units import seconds

        return None if self.timeout is None else seconds(self.timeout, what="--timeout")


def here_only(
    move: Move, *, force: bool = False, baseline: str | None = None, bench: bool = False
) -> None:
    """Refuse what is for clusters, where the deployment is on this machine.

    Raises:
        UsageError: such an option was given.
    """
    given = {
        "--dry-run": move.dry_run,
        "--out": move.out is not None,
        "--force": force,
        "--baseline": baseline is not None,
        "--bench": bench,
    }
    for option, there in given.items():
        if there:
            raise UsageError(
                f"{option} is for deployments on a cluster; {move.name} is on this machine",
                hint="specctl fallback plan shows what would be done",
            )


def apply(move: Move, rung: str | None, *, wait: bool, benches: Sequence[Path] = ()) -> int:
    """Down the ladder; the exit code."""
    from speccli.core.bench.merge import read_all
    from speccli.core.fallback import carry
    from speccli.core.views import fallback_moves as view

    bench = read_all(benches) if benches else None
    if move.dry_run or move.out:
        return _down(move, rung, bench)
    with interrupted(_GOES_ON):
        outcome = carry.go(
            move.connect,
            move.namespace,
            move.name,
            rung,
            Told(),
            accept=move.accept,
            wait=wait,
            timeout_s=move.timeout_s,
            bench=bench,
        )
    diagnostics.settle()

    def table() -> RenderableType:
        from speccli.tables.fallback_moves import moved_table

        return moved_table(outcome)

    output.emit(lambda: view.moved(outcome), table, move.output_format)
    return int(outcome.exit_code)


def preview_of(move: Move, kind: str, rung: str) -> int:
    """A proposal that is not made: its calls, or its files."""
    return _back(move) if kind == "restore" else _down(move, rung)


def _down(move: Move, rung: str | None, bench: Result | None = None) -> int:
    from speccli.core.fallback import preview

    place = (move.connect, move.namespace, move.name)
    return _shown(move, preview.down(*place, rung, Told(), accept=move.accept, bench=bench))


def _back(move: Move, *, force: bool = False, baseline: Baseline | None = None) -> int:
    from speccli.core.fallback import preview

    place, accept = (move.connect, move.namespace, move.name), move.accept
    made = preview.back(*place, Told(), accept=accept, force=force, baseline=baseline)
    return _shown(move, made)


def restore(move: Move, *, force: bool, baseline: str | None, lasting: str, window: str) -> int:
    """Back through a canary; the exit code."""
    from speccli.core.fallback import carry
    from speccli.core.fallback.canary import LEAST_WINDOWS
    from speccli.core.units import seconds
    from speccli.core.views import fallback_moves as view

    lasting_s, window_s = seconds(lasting, what="--canary-for"), seconds(window, what="--window")
    if not 1 <= window_s <= lasting_s / LEAST_WINDOWS:
        raise UsageError(
            f"--window {window} of --canary-for {lasting}: no time to compare in",
            hint=f"at least 1 s, and {LEAST_WINDOWS} of them while the canary is tried",
        )
    known = _baseline(baseline)
    if move.dry_run or move.out:
        return _back(move, force=force, baseline=known)
    with interrupted(_GOES_ON):
        told = carry.restore(
            move.connect,
            move.namespace,
            move.name,
            Told(),
            force=force,
            accept=move.accept,
            timeout_s=move.timeout_s,
            baseline=known,
            window_s=window_s,
            lasting_s=lasting_s,
        )
    diagnostics.settle()

    def table() -> RenderableType:
        from speccli.tables.fallback_moves import restored_table

        return restored_table(told)

    output.emit(lambda: view.restored(told), table, move.output_format)
    return int(told.exit_code)


def _baseline(name: str | None) -> Baseline | None:
    """What is kept under a name."""
    from speccli.commands._cluster_options import state
    from speccli.core.baseline.store import Store

    return None if name is None else Store(state()).get(name)


def _shown(move: Move, made: Preview) -> int:
    """A move that is not made: its calls, or its files."""
    from speccli.core.manifests.folder import write
    from speccli.core.views import fallback_moves as view

    if move.out is not None:
        paths = write(move.out, made.texts)
        diagnostics.say(f"{len(paths)} files in {move.out}: {made.source} → {made.target}")
        for part in made.parts[:-1]:
            diagnostics.warn(f"see to it before they are applied: {part.words}")

    def table() -> RenderableType:
        from speccli.tables.fallback_moves import preview_table

        return preview_table(made)

    output.emit(lambda: view.previewed(made), table, move.output_format)
    return 0
