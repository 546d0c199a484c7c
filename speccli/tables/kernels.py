"""The kernel checks as a table."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from speccli.tables.whole import Whole

STYLES = {"passed": "green", "skipped": "dim", "broken": "yellow"}


def kernels_table(document: dict[str, Any]) -> RenderableType:
    """A line a check, then what to do about those that did not pass."""
    table = Whole(box=None, pad_edge=False)
    for column in ("check", "result", "s", "evidence"):
        table.add_column(column, justify="right" if column == "s" else "left")
    for one in document["checks"]:
        status = str(one["status"])
        table.add_row(
            Text(one["name"]),
            Text(status, STYLES.get(status, "red")),
            Text(f"{one['seconds']:.1f}"),
            Text(one["evidence"]),
        )
    where = document["environment"]
    engine = where.get("versions", {}).get("vllm", "no vLLM")
    last = Text(
        f"{document['verdict']}: {len(document['checks'])} checks in {document['seconds']:.0f} s,"
        f" seed {document['seed']}, {where.get('gpu')}, driver {where.get('driver')}, vLLM {engine}"
    )
    todo = [
        Text(f"{one['severity']} {one['code']} {one['subject']}: {one['action']}")
        for one in document["findings"]
    ]
    return Group(table, Text(), *todo, last)
