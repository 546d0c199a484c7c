"""What of a decision is news, for the audit. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from speccli.core.fallback.audit import Entry, What, entry
from speccli.core.fallback.notices import accept_command
from speccli.core.fallback.terms import Decision, Go, Propose, State, Stay

_TOLD: dict[str, What] = {
    "bottom": "exhausted",
    "exhausted": "exhausted",
    "stays_down": "stays_down",
}


@dataclass(frozen=True, slots=True)
class Teller:
    """Who tells of which deployment."""

    name: str
    namespace: str
    who: str

    def news(
        self, before: State, after: State, decision: Decision, said: str | None, at: float
    ) -> tuple[Entry, ...]:
        """Entries of what has changed.

        Args:
            before: What was remembered.
            after: What is to be.
            decision: That led to it.
            said: Why nothing moved at the last look; None: there was none.
            at: Unix seconds.
        """
        found: list[Entry] = []
        for made in (m for m in after.moves if m not in before.moves):
            words = f"{made.source} → {made.target}, not by this watch"
            found.append(entry("moved_by_others", self.name, "others", at, words))
        old, new = before.proposal, after.proposal
        if old is not None and (new is None or new.id != old.id) and not isinstance(decision, Go):
            words = f"proposal {old.id} is withdrawn: {decision.words}"
            found.append(entry("withdrawn", self.name, self.who, at, words, old))
        if isinstance(decision, Propose) and (old is None or old.id != decision.move.id):
            words = self._proposal(decision)
            found.append(entry("proposed", self.name, self.who, at, words, new))
        if isinstance(decision, Go):
            words = f"{decision.move.source} → {decision.move.target}: {decision.move.why}"
            found.append(entry("begun", self.name, self.who, at, words, decision.move))
        if isinstance(decision, Stay) and decision.why in _TOLD and decision.why != said:
            found.append(entry(_TOLD[decision.why], self.name, self.who, at, decision.words))
        return tuple(found)

    def _proposal(self, decision: Propose) -> str:
        move = decision.move
        yes = accept_command(self.name, self.namespace, move.id)
        return f"{move.source} → {move.target}: {move.why} ({decision.words}); to accept: {yes}"
