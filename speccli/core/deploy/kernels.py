"""`--require-kernels`: whether what verifies drafts was found right wherever pods may run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from speccli.core.kernels_gate import Kept, Wanted, fresh_pass
from speccli.core.kube.stock import Node
from speccli.core.preflight.base import Verdict


def lacking(
    results: Iterable[Kept],
    image: str | None,
    nodes: Sequence[Node] | None,
    max_age_s: float,
    now: datetime,
    *,
    here: bool = False,
) -> Iterator[Verdict]:
    """A critical finding for each node that pods may be put on and that has no fresh pass.

    Where nodes are not known, one pass is all that can be asked for, and that is told.

    Args:
        results: What is remembered of kernel checks.
        image: What will run; None: whatever this machine has.
        nodes: Where pods may be put; None: not known. Empty: none is there yet, so none has a pass.
        here: Whether pods run on this machine, which results are then of.
        max_age_s: How old a pass may be.
        now: The time it is held against.
    """
    known = tuple(results)
    if nodes is None:
        answer = fresh_pass(known, Wanted(image=image, max_age_s=max_age_s), now)
        yield from (_verdict(lack, image, None) for lack in answer.lacks)
        if answer.ok and not here:
            where = ", ".join(sorted({kept.node or "an unknown node" for kept in answer.passes}))
            yield replace(
                _verdict(
                    f"they passed on {where}; where pods may be put is not known", image, None
                ),
                severity="unknown",
                action="let specctl list nodes and pods (manifests/rbac/deploy-cluster.yaml)",
            )
        return
    if not nodes:
        yield _verdict("no node is there yet that takes a pod, so none has a pass", image, None)
    for node in nodes:
        drivers = {node.name: node.driver} if node.driver else {}
        wanted = Wanted(image, drivers=drivers, nodes=(node.name,), max_age_s=max_age_s)
        for lack in fresh_pass(known, wanted, now).lacks:
            yield _verdict(lack, image, node.name)


def _verdict(lack: str, image: str | None, node: str | None) -> Verdict:
    how = "specctl kernels check"
    if image is not None:
        how += f" --job --image {image}" + (f" --node {node}" if node else "")
    return Verdict(
        "D-KERNELS",
        "critical",
        lack,
        "whether drafts are verified rightly there is not known",
        how,
        subject="kernels",
    )
