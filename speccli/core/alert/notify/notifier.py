"""Who was told what."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from speccli.core.alert.notify.alertmanager import Alertmanager
from speccli.core.alert.notify.apprise_channel import Apprise
from speccli.core.alert.notify.notice import Channel, Key, News, NotTold, Told
from speccli.core.alert.verdict import Verdict, readable
from speccli.core.deadline import Clock, run
from speccli.core.errors import DeadlineError
from speccli.core.findings.base import FLEET, Finding
from speccli.core.sources.scrape import Access


def channels_of(
    alertmanagers: Sequence[str], urls: Sequence[str], access: Access | None = None
) -> tuple[Channel, ...]:
    """The channels of the command line.

    Raises:
        UsageError: an address that cannot be one.
    """
    return (*(Alertmanager(url, access) for url in alertmanagers), *(Apprise(url) for url in urls))


class Notifier:
    """Tells channels what is news to them; called once a check."""

    def __init__(
        self, channels: Sequence[Channel], deployment: str, state: Any = None, *, dry: bool = False
    ) -> None:
        """`state`: what `to_json` gave; `dry`: tell nobody, but say what would be told."""
        self.channels = tuple(channels)
        self._deployment = deployment
        self._dry = dry
        self._known: dict[str, dict[Key, Told]] = {}
        self.load(state)

    def load(self, state: Any) -> None:
        """Know what `to_json` gave, perhaps to another process; nothing where it is none."""
        self._known = {}
        try:
            for mark, told in (state or {}).items():
                pairs = ((tuple(key), Told.from_json(value)) for key, value in told)
                self._known[str(mark)] = {(str(k[0]), str(k[1])): v for k, v in pairs}
        except (AttributeError, TypeError, ValueError, KeyError, IndexError):
            self._known = {}

    def to_json(self) -> dict[str, Any]:
        """What every channel was told."""
        marks = {channel.mark for channel in self.channels}
        return {
            mark: [[list(key), told.to_json()] for key, told in known.items()]
            for mark, known in self._known.items()
            if mark in marks
        }

    async def tell(self, verdict: Verdict, now: float) -> list[str]:
        """Tell every channel; what there is to say about that."""
        said: list[str] = []
        for channel in self.channels:
            news = self._news(channel, verdict, now)
            due = news.begun or news.over or (channel.repeats and news.active)
            if self._dry or not due:
                said += await self._untold(channel, news)
                continue
            try:
                await channel.tell(news)
            except NotTold as why:
                said.append(f"{channel.name} was not told ({len(news.lines)} to tell): {why}")
            else:
                self._known[channel.mark] = dict(news.active)
        return said

    async def _untold(self, channel: Channel, news: News) -> list[str]:
        """What there is to say of a channel that is told nothing now."""
        dry = "dry run: " if self._dry else ""
        if why := await channel.unusable():
            lost = f" ({len(news.lines)} to tell)" if news.lines else ""
            return [f"{dry}{channel.name} cannot be told anything{lost}: {why}"]
        return [f"{dry}{channel.name} would be told: {line}" for line in news.lines if dry]

    def tell_within(self, clock: Clock, verdict: Verdict) -> list[str]:
        """The same, within what is left of a deadline."""
        if not self.channels:
            return []
        try:
            return run(clock, self.tell(verdict, time.time()))
        except DeadlineError:
            return [f"notifications took more time than --deadline {clock.deadline_s:g} s left"]

    def _news(self, channel: Channel, verdict: Verdict, now: float) -> News:
        known = self._known.get(channel.mark, {})
        blind = verdict.snapshot is None or not readable(verdict.snapshot)
        active = {key: _told(finding, known.get(key), now) for key, finding in _wrong(verdict)}
        begun: Mapping[Key, Told] = {
            key: told
            for key, told in active.items()
            if key not in known or known[key].finding.severity != told.finding.severity
        }
        # Alertmanager knows an alert by its labels, the severity among them: the old one ends.
        over = {
            key: told
            for key, told in known.items()
            if (key in begun if key in active else not blind)
        }
        if blind:
            active = {**{k: v for k, v in known.items() if k not in over}, **active}
        simulated = verdict.snapshot is not None and verdict.snapshot.simulated
        return News(self._deployment, now, active, begun, over, simulated)


def _wrong(verdict: Verdict) -> list[tuple[Key, Finding]]:
    found = [((f.code, f.subject), f) for f in verdict.findings if f.severity != "info"]
    if not found and verdict.snapshot is None and verdict.word == "unknown":
        unread = Finding(
            "METRICS_MISSING",
            "unknown",
            FLEET,
            verdict.message,
            "the check came to nothing: what was wrong before may be so still",
            "run the check by hand; `specctl doctor` looks closer",
        )
        found = [((unread.code, unread.subject), unread)]
    return found


def _told(finding: Finding, before: Told | None, now: float) -> Told:
    if before is not None:
        return Told(finding, before.since)
    return Told(finding, min(now, finding.since) if finding.since is not None else now)
