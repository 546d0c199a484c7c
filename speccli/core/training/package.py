"""Where the stages are installed; they are not imported for that."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from speccli.core.errors import SpecctlError

PACKAGE = "draft_training"


def package() -> Path:
    """The folder of the stages.

    Raises:
        SpecctlError: it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SpecctlError(f"{PACKAGE} is not installed beside specctl")
    return Path(next(iter(spec.submodule_search_locations)))
