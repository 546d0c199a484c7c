"""promtool on what was written: the rules are rules, and each fires and stays silent as it must."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from speccli.core.alert.rules.write import ALERTING, RECORDING, TESTS, TESTS_OF_A_DAY
from speccli.core.errors import SpecctlError, UsageError

_PATIENCE_S = 300


def prove(folder: Path) -> list[str]:
    """Check and test the rules of a folder; what was proven.

    Raises:
        UsageError: promtool is not installed.
        SpecctlError: it finds something.
    """
    tool = shutil.which("promtool")
    if tool is None:
        raise UsageError("promtool is not installed", hint="it comes with Prometheus")
    said = []
    for words in (
        ["check", "rules", RECORDING, ALERTING],
        ["test", "rules", TESTS, TESTS_OF_A_DAY],
    ):
        command = " ".join(["promtool", *words])
        try:
            done = subprocess.run(
                [tool, *words],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SpecctlError(f"{command} did not end within {_PATIENCE_S} s") from error
        if done.returncode:
            why = " ".join((done.stdout + done.stderr).split())[-600:]
            raise SpecctlError(f"{command} failed: {why}")
        said.append(f"{command}: SUCCESS")
    return said
