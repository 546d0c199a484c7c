"""A deployment as `specctl status NAME` prints it for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from speccli.core.deploy.look import Deployed, DeployedHere
from speccli.core.kube.record import Record
from speccli.core.views import deploy as deploying
from speccli.core.views import deployed as view
from speccli.core.views.text import clean
from speccli.tables.deploy import progress_table

if TYPE_CHECKING:
    from speccli.core.oneshot import Answer

_FORMER = 3
"""Former revisions shown; `-o json` has every one."""


def deployed_table(found: Deployed, answer: Answer | None) -> RenderableType:
    """Record, rollout, engines."""
    told = found.record
    head = deploying.title(told.name, found.namespace, found.context, told.current)
    lines = [Text(clean(each.line)) for each in found.progress.workloads]
    told_of = (view.serving_words(found), view.trial_words(told))
    lines += [Text(clean(words)) for words in told_of if words is not None]
    return Group(
        Text(clean(head), "bold"),
        *_record(told),
        Padding(Group(*lines, progress_table(found.progress)), (0, 0, 0, 2)),
        *_engines(answer),
    )


def here_table(found: DeployedHere, answer: Answer | None) -> RenderableType:
    """Record, process, engine."""
    told = found.record
    head = deploying.local_title(told)
    lines = [Text(clean(found.words)), Text(clean(f"log {found.here.log}"), "dim")]
    return Group(
        Text(clean(head), "bold"),
        *_record(told),
        Padding(Group(*lines), (0, 0, 0, 2)),
        *_engines(answer),
    )


def _record(told: Record) -> list[RenderableType]:
    former = view.former_words(told)[:_FORMER]
    return [
        Text(clean(view.state_words(told))),
        *(Text(clean(f"  {line}"), "dim") for line in former),
    ]


def _engines(answer: Answer | None) -> list[RenderableType]:
    if answer is None:
        return []
    from speccli.tables.status import status_table

    return [Text(), status_table(answer.snapshot, answer.shown)]
