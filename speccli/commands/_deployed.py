"""`specctl status NAME`: a deployment's record and rollout, and what its engines do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speccli import diagnostics, output
from speccli.commands._cluster_options import connector, is_local, state
from speccli.commands.status import answered, told
from speccli.core.errors import SourceError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from speccli.core.oneshot import Answer
    from speccli.options import SourceOptions

_OTHERS = ("endpoint", "prometheus", "deployment", "replay")


def look_at(
    name: str, source: SourceOptions, output_format: output.Format, *, since_start: bool
) -> int:
    """Look at a deployment, and print it; the exit code."""
    given = [option for option in _OTHERS if getattr(source, option)]
    if given:
        raise UsageError(
            f"{name} and --{given[0]} together: one source at a time",
            hint=f"specctl status {name}, or --{given[0]} alone",
        )
    if is_local(name, None, source.namespace, source.context, source.kubeconfig):
        return _here(name, source, output_format, since_start)
    from speccli.core.deploy.look import deployed
    from speccli.core.views import deployed as view

    found = deployed(
        connector(source.kubeconfig, source.context, source.namespace)(None), source.namespace, name
    )
    asked = replace(source, deployment=name, namespace=found.namespace)
    answer = _answered(asked, since_start) if found.progress.serving else None

    def table() -> RenderableType:
        from speccli.tables.deployed import deployed_table

        return deployed_table(found, answer)

    output.emit(lambda: view.deployed(found, answer), table, output_format)
    return int(found.exit_code) if answer is None else told(answer)


def _here(name: str, source: SourceOptions, output_format: output.Format, since_start: bool) -> int:
    from speccli.core.deploy.look import deployed_here
    from speccli.core.deploy.place import place
    from speccli.core.views import deployed as view

    found = deployed_here(place(state(), name))
    asked = replace(source, endpoint=[found.here.url or ""])
    answer = _answered(asked, since_start) if found.healthy else None

    def table() -> RenderableType:
        from speccli.tables.deployed import here_table

        return here_table(found, answer)

    output.emit(lambda: view.here(found, answer), table, output_format)
    return int(found.exit_code) if answer is None else told(answer)


def _answered(source: SourceOptions, since_start: bool) -> Answer | None:
    """What the engines say; None where they cannot be asked at all."""
    try:
        return answered(source, since_start=since_start)
    except SourceError as error:
        diagnostics.error(error.message, error.hint)
        return None
