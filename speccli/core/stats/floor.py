"""Which engines accept less than the floor, and since when without a pause."""

from __future__ import annotations

from collections.abc import Iterator

from speccli.core.stats.track import Track

_LONGEST_S = 60.0
_MIN_DRAFTS = 200
"""Draft tokens a window needs before its acceptance is held against a floor."""

Key = tuple[str, str]


class Floor:
    """Holds each engine's last window against the floor, round after round."""

    def __init__(self) -> None:
        """Nothing is low yet."""
        self.since: dict[Key, float] = {}
        """Engines under the floor, and when they were first seen there, Unix seconds."""

    def forget(self, key: Key) -> None:
        """Another process: nothing is known of it yet."""
        self.since.pop(key, None)

    def set_back(self, at: float) -> None:
        """The clock was wrong: nothing has been low since a time that is to come."""
        self.since = {key: min(since, at) for key, since in self.since.items()}

    def judge(self, key: Key, track: Track, floor: float, window_s: float | None) -> Iterator[str]:
        """What there is to tell: that acceptance fell under the floor, or came back.

        `floor`: acceptance rate, 0..1; `window_s`: what is judged, at most a minute of it.
        Time without drafts is not time under the floor: a whole window that has too few of them to
        be judged ends the run, and the next low one begins another.
        """
        window_s = min(window_s or _LONGEST_S, _LONGEST_S)
        growth = track.increase(window_s, pooled_start=False)
        if growth is None:
            return
        index = growth.layout.index
        i, j = index.get("accepted_tokens"), index.get("draft_tokens")
        if i is None or j is None:
            return
        if growth.values[j] < _MIN_DRAFTS:
            if (growth.seconds or 0.0) >= window_s - 1e-3:
                self.forget(key)
            return
        rate = growth.values[i] / growth.values[j]
        if rate >= floor:
            if self.since.pop(key, None) is not None:
                yield f"acceptance {rate:.3f} is back over the floor"
        elif key not in self.since:
            self.since[key] = track.last.at
            yield f"acceptance {rate:.3f} fell under the floor {floor:g}"
