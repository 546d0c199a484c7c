"""What is missing or wrong here, with the fix: checks of this machine, its settings, its sources.

A check looks at one thing and says it in one line; it never raises. `run` makes them all within a
deadline: whatever has not answered by then is said to be unknown.
"""

from speccli.core.doctor.base import AREAS, Check, State, exit_code
from speccli.core.doctor.run import Asked, run

__all__ = ["AREAS", "Asked", "Check", "State", "exit_code", "run"]
