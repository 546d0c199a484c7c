"""What is so now: findings, each with who says so, and the batch that engines run.

Live counters say what a moment can; what `alert` remembers says what only shows over time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speccli.core.alert.check import Asked
from speccli.core.alert.examine import Terms
from speccli.core.alert.memory import SCHEMA as REMEMBERED
from speccli.core.config import Settings
from speccli.core.errors import UsageError
from speccli.core.findings._text import duration
from speccli.core.findings.base import CODES, FLEET, Finding
from speccli.core.oneshot import Answer
from speccli.core.recipes.strict import nearest
from speccli.core.values import Number

WINDOW_S = 5.0
"""How long a live source is watched."""
OLDEST_S = 3900.0
"""What alerting said longer ago says nothing of now; an hourly cron may be late."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A finding, and who says so."""

    finding: Finding
    source: str
    """`live`, `alert check, 3 min ago`, `by hand`."""


@dataclass(frozen=True, slots=True)
class Present:
    """What is known of a deployment now."""

    findings: tuple[Heard, ...]
    batch: Number
    """Requests in a step of one engine; its reason says where it is from, or why not."""
    running: Number
    """Requests in all engines together."""
    unknown: str | None = None
    """Why nobody looked for findings; None where somebody did."""
    simulated: bool = False

    @classmethod
    def nothing(cls, reason: str) -> Present:
        """Nobody was asked."""
        return cls((), Number.unknown(reason), Number.unknown(reason), reason)


def from_answer(answer: Answer, where: str) -> Present:
    """What a look at the engines says."""
    if not answer.readable:
        said = next((e.reason for e in answer.snapshot.engines if e.reason), "there is none")
        return Present.nothing(f"no engine could be read: {said}")
    found = [Heard(each, "live") for each in answer.findings if each.severity != "info"]
    if dark := _in_the_dark(answer):
        nothing = Present.nothing(dark)
        return replace(nothing, findings=tuple(found), simulated=answer.snapshot.simulated)
    fleet = answer.snapshot.fleet
    batch, running = fleet.batch_size, fleet.running
    if batch.value is None and running.value is not None and answer.snapshot.fresh:
        each = running.value / len(answer.snapshot.fresh)
        batch = Number.known(each, reason="running requests an engine")
    if batch.value is not None:
        over = f" over {duration(s)}" if (s := answer.snapshot.subject.pool.seconds) else ""
        batch = replace(batch, reason=f"{where}{over}")
    return Present(tuple(found), batch, running, simulated=answer.snapshot.simulated)


def _in_the_dark(answer: Answer) -> str | None:
    """Why those that could be read do not speak for all; None: they do.

    A warm standby that nobody asks anything says nothing of the servers that have the requests.
    """
    snapshot, every = answer.snapshot, answer.snapshot.engines
    dark = [each for each in every if each.engine == "?"]
    if snapshot.pooled_engines or not dark:
        return None
    idle = not snapshot.fleet.batch_size.value and not snapshot.fleet.running.value
    if not idle and len(dark) <= len(every) / 2:
        return None
    return f"{len(dark)} of {len(every)} engines could not be read: {dark[0].reason}"


def with_batch(now: Present, batch: float | None) -> Present:
    """The same with the batch that was given by hand.

    Raises:
        UsageError: no batch.
    """
    if batch is None:
        return now
    if not (1 <= batch < math.inf):
        raise UsageError(f"--batch {batch:g}: at least 1", hint="requests that one server runs")
    return replace(now, batch=Number.known(batch, reason="--batch"))


def with_codes(now: Present, codes: Sequence[str]) -> Present:
    """The same with findings that a person names.

    Raises:
        UsageError: no code of that name.
    """
    made = []
    for code in codes:
        if code.upper() not in CODES:
            hint = nearest(code.upper(), CODES).removeprefix("; ") or "docs/findings.md has them"
            raise UsageError(f"--finding {code}: no finding of that name", hint=hint)
        words = "named by hand"
        made.append(
            Heard(Finding(code.upper(), "critical", FLEET, words, words, ""), "by hand"),
        )
    if not made:
        return now
    return replace(now, findings=_once((*made, *now.findings)), unknown=None)


def with_remembered(
    now: Present, settings: Settings, name: str, environment: Mapping[str, str], at: float
) -> Present:
    """The same with what `alert check` and `alert watch` remember of the deployment.

    Args:
        now: What else is known.
        settings: The source that alerting would have been given.
        name: The deployment's, which alerting may have been given as its own.
        environment: Where the state folder is told.
        at: Unix seconds.
    """
    heard = tuple(_remembered(settings, name, environment, at))
    if not heard:
        return now
    return replace(now, findings=_once((*now.findings, *heard)), unknown=None)


def _once(heard: Iterable[Heard]) -> tuple[Heard, ...]:
    """Each code at each subject once: who is named first has it."""
    told: dict[tuple[str, str], Heard] = {}
    for each in heard:
        told.setdefault((each.finding.code, each.finding.subject), each)
    return tuple(told.values())


def _remembered(
    settings: Settings, name: str, environment: Mapping[str, str], at: float
) -> Iterator[Heard]:
    paths: dict[Path, str] = {}
    for source in (settings, replace(settings, namespace=None)):
        for named in (None, name):
            asked = Asked(source, Terms(), named, None, environment)
            for command in ("check", "watch"):
                if (path := asked.keeper(command).path) is not None:
                    paths.setdefault(path, command)
    for path, command in paths.items():
        memory = _read(path)
        said = memory.get("at")
        age = at - said if isinstance(said, int | float) else None
        if age is None or not -OLDEST_S <= age <= OLDEST_S:
            continue
        words = f"alert {command}, {duration(max(0.0, age))} ago"
        yield from (Heard(finding, words) for finding in _firing(memory.get("holds")))


def _read(path: Path) -> dict[str, Any]:
    """A memory, untouched; empty where there is none that can be used."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return value if value["schema"] == REMEMBERED else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _firing(holds: Any) -> Iterator[Finding]:
    try:
        for _code, _subject, _seen, firing, _absent, last in holds or ():
            if firing and last is not None:
                yield Finding(**last)
    except (TypeError, ValueError):
        return
