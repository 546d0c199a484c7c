"""What one call has begun, remembered while it is begun again: an answer may never have come."""

from __future__ import annotations

from speccli.core.deploy.asked import Prepared
from speccli.core.deploy.cluster import identity, who_else
from speccli.core.errors import SpecctlError
from speccli.core.kube.record import Record, Revision


class Ours:
    """The revisions that are of one call, however often it is begun again."""

    def __init__(self, began: float) -> None:
        """`began`: when it did, on its clock."""
        self.began = began
        self._known: list[tuple[object, ...]] = []

    def sees(self, told: Record) -> None:
        """See that what is deployed was there when the call began, or is its own.

        Raises:
            SpecctlError: somebody else has deployed since.
        """
        self._see(told.name, told.current)

    def begins(self, prepared: Prepared) -> None:
        """It is about to write a revision, which is its own whether or not an answer comes.

        Raises:
            SpecctlError: somebody else has deployed since the call began, or taken it all away.
        """
        told = prepared.record
        there = told.current if prepared.known else next(iter(told.previous), None)
        self._see(told.name, there)
        self._known.append(identity(told.current))

    def _see(self, name: str, there: Revision | None) -> None:
        if there is None:
            raise SpecctlError(
                f"deployment {name} was taken away while a move of it was under way",
                hint="specctl list shows those there are",
            )
        if not self._known:
            self._known.append(identity(there))
        elif identity(there) not in self._known:
            raise SpecctlError(
                f"{who_else(there)} deployed revision {there.number} of {name} at {there.at}, "
                "while a move of it was under way",
                hint=f"specctl status {name}, then do the same again where it is still wanted",
            )
