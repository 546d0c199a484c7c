"""What the poll worker tells the screen."""

from __future__ import annotations

from textual.message import Message

from speccli.core.stats.snapshot import Snapshot


class SnapshotReady(Message):
    """The fleet as of now. Only the newest one counts: a late screen skips, it never queues."""

    def __init__(self, snapshot: Snapshot) -> None:
        """`snapshot`: frozen, so handing it over is enough."""
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Take the place of one that has not been looked at yet."""
        return isinstance(message, SnapshotReady)


class SourceTrouble(Message):
    """The source as a whole could not be read."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        """`text`: one sentence for the reader. `final`: it is not being tried again."""
        super().__init__()
        self.text = text
        self.final = final

    def can_replace(self, message: Message) -> bool:
        """Take the place of one that has not been looked at yet."""
        return isinstance(message, SourceTrouble)
