"""What keeps a canary from being made: refusals, no metrics, no GPU, no room. Reads only."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from speccli.core.baseline import Baseline
from speccli.core.deploy import room
from speccli.core.errors import UsageError
from speccli.core.fallback import trial
from speccli.core.fallback.canary import Verdict
from speccli.core.fallback.ladder import Ladder
from speccli.core.fallback.moving import Mover
from speccli.core.fallback.refusals import MOST_REFUSALS, configuration, refusals
from speccli.core.fallback.rungs import draft_words
from speccli.core.fallback.serving import Serving
from speccli.core.fallback.sight import baseline_of
from speccli.core.fallback.standing import top_label
from speccli.core.fallback.way_back import with_canary
from speccli.core.kube.record import Record
from speccli.core.manifests.build import objects
from speccli.core.units import seconds


@dataclass(frozen=True, slots=True)
class Held:
    """Why a draft is not tried now."""

    verdict: Verdict
    words: str
    refusals: int = 0


def held(record: Record, mover: Mover, to: Serving, *, force: bool) -> Held | None:
    """Why no canary of it is made now; None: one is. `force`: whatever was refused before."""
    if not force and (refused := _refused(record, to)):
        return refused
    why = _blind(mover) or _crowded(mover, to) or _short(mover, to)
    return Held("inconclusive", f"{why}; nothing was changed") if why else None


def _refused(record: Record, to: Serving) -> Held | None:
    seen = refusals(record, configuration(to.recipe))
    if not seen.count or seen.last is None:
        return None
    what = f"{to.words} was refused"
    if seen.count >= MOST_REFUSALS:
        words = (
            f"{what} {seen.count} times and stays down until its draft or the recipe changes, "
            "or --force has it tried again"
        )
        return Held("refused", words, seen.count)
    pause = timedelta(seconds=seconds(to.recipe.fallback.restore_after) * 2**seen.count)
    due = datetime.fromisoformat(seen.last) + pause
    if datetime.now(UTC) >= due:
        return None
    words = f"{what} at {seen.last}, and is tried again from {due.isoformat()} on, or by --force"
    return Held("refused", words, seen.count)


def _blind(mover: Mover) -> str | None:
    """Why the siblings cannot be seen; None: they can."""
    here, cluster = mover.here, mover.cluster
    pods = trial.both_sides(cluster, here.namespace, here.name, here.traffic)
    found = trial.pages(cluster, here.namespace, pods, time.time())
    if any(page.pool == here.traffic for page in found.values()):
        return None
    return (
        f"metrics are gone: no answer from the servers of the pool {here.traffic}, "
        "so that no canary could be compared with them"
    )


def _crowded(mover: Mover, to: Serving) -> str | None:
    """Why the canary finds no GPU; None: it does, or it cannot be told."""
    tried = with_canary(mover.here, to)
    unit, made = tried.unit("canary"), objects(tried.recipe, tried.options)
    seen = room.look(mover.cluster, [unit], made, mover.here.namespace)
    if seen.stocks["canary"].unknown is not None or not seen.crowded:
        return None
    per_pod, free = seen.stocks["canary"].per_pod, seen.stocks["canary"].free
    return f"a canary needs {per_pod} GPUs of one node, and {free} are free in all"


def _short(mover: Mover, to: Serving) -> str | None:
    """Why the main pool could not take what the standby serves; None: it could."""
    if mover.here.traffic == to.traffic:
        return None
    why = mover.lacks("main")
    return f"the traffic stays with the pool standby: {why}" if why else None


def rate_of(baseline: Baseline | float | None, found: Ladder) -> float | None:
    """Acceptance rate of a baseline of what is to serve again.

    Raises:
        UsageError: it is of another method, or another K.
    """
    if baseline is None or isinstance(baseline, float):
        return baseline
    if baseline_of((baseline,), top_label(found), own=True) is not None:
        return baseline.rate
    key = baseline.key
    of = f"{key.method or 'any method'}, K = {key.k or 'any'}"
    raise UsageError(
        f"baseline {baseline.name} is of {of}, and {found.record.name} drafts with "
        f"{draft_words(found.top.draft)}",
        hint="specctl baseline list says what each is of",
    )
