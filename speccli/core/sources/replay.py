"""A recording as a source: the same rounds again, at once or at their own pace."""

from __future__ import annotations

from pathlib import Path

from speccli.core.sources.base import Scrape
from speccli.core.sources.recording import Recording


class ReplaySource:
    """Rounds out of a recording."""

    def __init__(self, path: Path, *, pace: float = 0.0) -> None:
        """`pace`: how many times faster than it happened; 0: without waiting.

        Raises:
            RecordingError: not a recording.
        """
        self.recording = Recording(path)
        self.simulated = self.recording.header.simulated
        self.recorded_interval_s = self.recording.header.interval_s
        self.interval_s = self.recorded_interval_s / pace if pace > 0 else 0.0
        self._scrapes = iter(self.recording)
        self._next: Scrape | None = None

    async def scrapes(self) -> list[Scrape] | None:
        """The next round."""
        return self.next_round()

    def next_round(self) -> list[Scrape] | None:
        """Scrapes of different targets that belong to one interval; None after the last."""
        first = self._next or next(self._scrapes, None)
        self._next = None
        if first is None:
            return None
        batch, seen = [first], {first.target}
        for scrape in self._scrapes:
            late = scrape.at - first.at >= 0.9 * self.recorded_interval_s
            if scrape.target in seen or late:
                self._next = scrape
                break
            batch.append(scrape)
            seen.add(scrape.target)
        return batch

    async def aclose(self) -> None:
        """Close the file."""
        self.recording.close()
