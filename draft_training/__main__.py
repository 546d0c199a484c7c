"""`python -m draft_training STAGE JOB.json [LATER…]`: one stage of a job; events on stdout.

LATER are stages that will follow in this Python: what they lack is said before this one begins.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from draft_training import events, job, packages

STAGES = ("prompts", "answers", "train", "export", "tokens")
USAGE = 64


def main(arguments: Sequence[str]) -> int:
    """0 done, 1 failed (the last event says how), 64 usage."""
    stage, later = (arguments[0], arguments[2:]) if len(arguments) > 1 else ("", ())
    if not {stage, *later} <= set(STAGES):
        sys.stderr.write(f"draft_training: want one of {', '.join(STAGES)}, and a job file\n")
        return USAGE
    with events.quiet():
        try:
            wanted = job.read(Path(arguments[1]))
            packages.need([stage, *later])
            facts = importlib.import_module(f"draft_training.{stage}").run(wanted)
        except Exception as error:  # noqa: BLE001 - every failure gets a name
            traceback.print_exc()
            failure = events.named(error)
            events.tell(
                "failed", stage=stage, kind=failure.kind, message=str(failure), fix=failure.fix
            )
            return 1
        events.tell("done", stage=stage, facts=facts)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
