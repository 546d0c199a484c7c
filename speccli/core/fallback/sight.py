"""What one way of drafting looks like: the alert's own round, for the pool that serves.

Each label has a window, a judge and a memory of its own. Another method's numbers are never in
them, and a baseline is used only for what it was recorded on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from speccli.core.alert.check import Asked
from speccli.core.alert.confirm import Policy
from speccli.core.alert.examine import Terms
from speccli.core.alert.notify import Notifier
from speccli.core.alert.verdict import Verdict, readable
from speccli.core.alert.watch import Watcher, watcher
from speccli.core.baseline import Baseline, Key
from speccli.core.bench.results import Result
from speccli.core.config import Settings
from speccli.core.fallback.signs import signs
from speccli.core.fallback.standing import Label, Standing
from speccli.core.fallback.terms import Sign
from speccli.core.kube.source import PodSource
from speccli.core.manifests.names import DEPLOYMENT_LABEL, POOL, POOL_LABEL
from speccli.core.open import thresholds_of
from speccli.core.values import Number

_CLEAR = 3
"""Looks in a row without a finding before it is over."""


@dataclass(frozen=True, slots=True)
class Looking:
    """How a deployment is looked at, whatever serves."""

    name: str
    namespace: str
    settings: Settings
    """A Prometheus, or none: then its pods, through the API server."""
    every_s: float
    baselines: tuple[Baseline, ...] = ()
    bench: Result | None = None
    """What was measured of the rungs."""
    state: Path | None = None
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One look."""

    verdict: Verdict
    signs: tuple[Sign, ...]
    blind: str | None
    """Why nothing can be judged; None where it can."""
    traffic: bool
    batch: Number
    """Requests in a step of one engine."""


class Sight:
    """Looks at one label, over and over."""

    def __init__(self, looking: Looking, standing: Standing, warn: Callable[[str], None]) -> None:
        """Nothing is asked before the first look.

        Raises:
            UsageError: a source that cannot be.
        """
        self.label = standing.label
        asked = _asked(looking, standing)
        keeper = asked.keeper("fallback")
        self._watcher: Watcher = watcher(asked, looking.every_s, keeper, _nobody, warn, warn)
        source = self._watcher.opened.poller.source
        if isinstance(source, PodSource):
            source.only = f"{POOL}={self.label.pool}"

    async def look(self) -> Seen:
        """Read and judge what serves."""
        verdict = await self._watcher.round()
        snapshot = verdict.snapshot
        if snapshot is None:
            nothing = Number.unknown("nothing could be read")
            return Seen(verdict, (), verdict.message, False, nothing)
        judgement = self._watcher.examiner.judgement
        tokens = snapshot.subject.pool.sums("generation_tokens")
        return Seen(
            verdict,
            signs(snapshot, verdict.findings, judgement),
            None if readable(snapshot) else verdict.message,
            tokens is not None and tokens[0] > 0,
            snapshot.fleet.batch_size,
        )

    async def aclose(self, at: float) -> None:
        """Keep what is known, and close the connections."""
        self._watcher.keep(at)
        await self._watcher.opened.poller.source.aclose()

    async def leave(self) -> None:
        """Something else serves: what was seen before says nothing of this way when it is back."""
        if (path := self._watcher.keeper.path) is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        await self._watcher.opened.poller.source.aclose()


def _nobody(_: object) -> Notifier:
    """Findings are told by `alert`; a watch tells of moves."""
    return Notifier((), "")


def _asked(looking: Looking, standing: Standing) -> Asked:
    settings = settings_of(looking, standing)
    recipe = standing.found.top
    running = Key()
    if standing.own:
        running = Key(
            target_revision=recipe.target.revision,
            draft=recipe.draft.model,
            draft_revision=recipe.draft.revision,
        )
    terms = Terms(
        thresholds_of(settings),
        baseline_of(looking.baselines, standing.label, own=standing.own),
        running,
        policy=Policy(clear=_CLEAR),
    )
    revision = standing.situation.revision
    name = f"{looking.namespace}-{looking.name}-{standing.label}-r{revision}"
    return Asked(settings, terms, name, looking.state, looking.environment or {})


def settings_of(looking: Looking, standing: Standing) -> Settings:
    """Source and thresholds of what serves.

    The recipe's floor is of its own draft: what n-gram accepts is no matter of it.
    """
    alerts, label, given = standing.found.top.alerts, standing.label, looking.settings
    if given.prometheus:
        mine = (
            f'namespace="{looking.namespace}",{DEPLOYMENT_LABEL}="{looking.name}",'
            f'{POOL_LABEL}="{label.pool}"'
        )
        selector = f"{given.selector},{mine}" if given.selector else mine
        source = replace(given, selector=selector)
    else:
        source = replace(given, deployment=looking.name, namespace=looking.namespace)
    floor = alerts.acceptance_floor if given.floor is None else given.floor
    return replace(
        source,
        method=label.method,
        floor=floor if standing.own else 0.0,
        hold=given.hold or alerts.hold,
        interval=f"{looking.every_s:g}s" if not given.prometheus else given.interval,
    )


def baseline_of(known: Iterable[Baseline], label: Label, *, own: bool) -> Baseline | None:
    """The one that was recorded on what serves; None where there is none.

    One that does not say what it was recorded on is of the recipe's own draft.
    """
    for each in known:
        method, k = each.key.method, each.key.k
        if method is None and not own:
            continue
        if method in {None, label.method} and k in {None, label.k}:
            return each
    return None
