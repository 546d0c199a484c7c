"""Who leads, said once at each change; and that nobody is known to."""

from __future__ import annotations

from dataclasses import dataclass

from speccli.core.deploy.asked import Reporter
from speccli.core.fallback.lease import Lease


@dataclass(slots=True)
class Leading:
    """Says who decides."""

    lease: Lease
    reporter: Reporter
    _led: bool | None = None
    _trouble: str | None = None

    def say(self) -> None:
        """What has changed since it was last said."""
        leads, holder, trouble = self.lease.leads, self.lease.holder, self.lease.trouble
        if trouble is None and self._trouble is not None:
            self.reporter.say("who leads can be told again")
            self._trouble = None
        elif trouble is not None and self._trouble is None and not leads:
            self.reporter.warn(
                f"who leads cannot be told ({trouble}): nothing is decided here until it can"
            )
            self._trouble = trouble
        if not leads and holder is None and self._led is None:
            return  # nobody has been asked yet
        if leads != self._led:
            who = f" ({holder} does)" if not leads and holder else ""
            self.reporter.say("this watch leads" if leads else f"this watch follows{who}")
            self._led = leads
