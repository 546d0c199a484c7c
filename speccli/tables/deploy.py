"""Deployments as `specctl deploy`, `status NAME` and `list` print them for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from speccli.core.deploy.asked import Pool, Prepared
from speccli.core.deploy.cluster import Outcome
from speccli.core.deploy.local import LocalOutcome
from speccli.core.kube.progress import Progress
from speccli.core.kube.proven import Proof
from speccli.core.kube.record import Record
from speccli.core.views import deploy as view
from speccli.core.views.text import GLYPHS, clean
from speccli.tables.whole import Whole

_STYLES = {
    "ok": "green",
    "info": "",
    "warning": "yellow",
    "critical": "red bold",
    "unknown": "magenta",
}
_PHASES = {"ready": "green", "crashed": "red bold", "leaving": "dim"}
_VERDICTS = {"proven": "ok", "refuted": "critical", "unknown": "unknown"}


def outcome_table(outcome: Outcome) -> RenderableType:
    """How a deployment went."""
    prepared = outcome.prepared
    head = view.title(prepared.name, prepared.namespace, prepared.context, outcome.record.current)
    parts: list[RenderableType] = [Text(clean(head), "bold"), _said(*view.state_words(outcome))]
    if outcome.crash is not None:
        crash = outcome.crash
        lines = [crash.line, *([crash.evidence] if crash.evidence else []), f"→ {crash.fix}"]
        parts.append(_indented(*(Text(clean(line)) for line in lines)))
    if outcome.proof is not None:
        parts.append(_indented(*proof_lines(outcome.proof)))
    if outcome.ended is not None and outcome.ended.end != "done":
        parts.append(_indented(progress_table(outcome.ended.progress)))
        parts.append(
            Text(clean(f"→ specctl rollback {prepared.name}, or mend it and deploy again"))
        )
    return Group(*parts)


def prepared_table(prepared: Prepared) -> RenderableType:
    """What a deployment would come to."""
    head = view.title(prepared.name, prepared.namespace, prepared.context, prepared.revision)
    table = _grid(3)
    for step in prepared.steps:
        style = {"create": "green", "change": "yellow", "same": "dim"}[step.verb]
        rolls = "its pods are replaced" if step.rolls else ""
        table.add_row(Text(step.verb, style), clean(str(step.ref)), Text(rolls, "yellow"))
    for ref in (*prepared.prune_first, *prepared.prune_last):
        table.add_row(Text("remove", "red"), clean(str(ref)), "")
    for ref in prepared.kept:
        table.add_row(Text("keep", "dim"), clean(str(ref)), Text("of a former revision", "dim"))
    pools = [Text(clean(_pool_words(pool)), "dim") for pool in prepared.pools]
    tried = Text("tried on the server; nothing was changed", "dim")
    return Group(Text(clean(head), "bold"), _indented(table, *pools), tried)


def _pool_words(pool: Pool) -> str:
    seen = pool.stock
    if seen.unknown is not None:
        return f"{pool.unit.name}: free GPUs are not known: {seen.unknown}"
    return (
        f"{pool.unit.name}: {seen.per_pod} GPUs a pod, {seen.free} of {seen.allocatable} free, "
        f"room for {seen.fits} more; {pool.strategy.words}"
    )


def local_table(outcome: LocalOutcome) -> RenderableType:
    """How a deployment on this machine went."""
    head = view.local_title(outcome.record)
    parts: list[RenderableType] = [Text(clean(head), "bold"), _said(*view.local_words(outcome))]
    if outcome.proof is not None:
        parts.append(_indented(*proof_lines(outcome.proof)))
    if outcome.end != "done":
        parts.append(Text(clean(f"→ its log is {outcome.log}")))
    return Group(*parts)


def proof_lines(proof: Proof) -> list[Text]:
    """A line a server, with what to do where it is not in order."""
    lines = []
    for each in proof.servers:
        style = _VERDICTS[each.verdict]
        line = Text(f"{GLYPHS[style]} ", _STYLES[style])
        code = f"{each.code} " if each.code else ""
        line.append(clean(f"{each.server}  {each.method}  {code}{each.evidence}"), "default")
        lines.append(line)
        if each.cause or each.action:
            why = f"{each.cause} → {each.action}" if each.cause else f"→ {each.action}"
            lines.append(Text(clean(f"  {why}"), "dim"))
    return lines


def progress_table(now: Progress) -> Table:
    """Pods, new ones first."""
    table = _grid(4)
    for pod in now.pods:
        old = "" if pod.fresh or pod.phase == "leaving" else "former"
        table.add_row(
            clean(pod.name),
            Text(pod.phase, _PHASES.get(pod.phase, "yellow")),
            Text(old, "dim"),
            clean(pod.detail),
        )
    return table


def list_table(records: Sequence[tuple[Record, str, str, int | None]]) -> RenderableType:
    """Deployments, a line each."""
    if not records:
        return Text("no deployments", "dim")
    table = _grid(7)
    head = ("name", "where", "revision", "state", "serving", "recipe", "since")
    table.add_row(*(Text(word, "dim") for word in head))
    for told, to, namespace, serving in records:
        current = told.current
        proof = (current.proof or {}).get("verdict")
        style = _STYLES.get(_VERDICTS.get(str(proof), "info"), "")
        table.add_row(
            clean(told.name),
            clean(namespace or to),
            str(current.number),
            Text(f"{current.state}{f', {proof}' if proof else ''}", style),
            "?" if serving is None else str(serving),
            clean(str(current.recipe.get("name", "?"))),
            Text(clean(f"{current.at} by {current.by}"), "dim"),
        )
    return table


def _said(style: str, words: str) -> Text:
    return Text(clean(f"{GLYPHS[style]} {words}"), _STYLES[style])


def _grid(columns: int) -> Table:
    table = Whole.grid(padding=(0, 2))
    for _ in range(columns):
        table.add_column(overflow="fold")
    return table


def _indented(*parts: RenderableType) -> Padding:
    return Padding(Group(*parts), (0, 0, 0, 2))
