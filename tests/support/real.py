"""What a test does when a real part it needs is not here."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent(reason: str) -> NoReturn:
    """Skip, and say why; fail where real parts are required (SPECCTL_REQUIRE_REAL=1)."""
    if os.environ.get("SPECCTL_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
