"""What the options of `specctl draft train` mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speccli.core.engines.local import INSTALL_HINT, find_vllm_python
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.training.job import Wanted, readable


def python_for(named: str | None, wanted: Wanted) -> Path:
    """The interpreter of the stages.

    Raises:
        UsageError: there is none, and what is wanted cannot be: that is said first.
        SpecctlError: there is none with vLLM.
    """
    if named is not None:
        return Path(named)
    found = find_vllm_python()
    if found is None:
        readable(wanted)
        raise SpecctlError("training needs a Python with torch and vLLM", hint=INSTALL_HINT)
    return found


def heads(texts: Sequence[str] | None) -> tuple[tuple[str, Path], ...]:
    """`NAME=DIR`, each.

    Raises:
        UsageError: one is not of that form, or no head lies there.
    """
    made = []
    for text in texts or ():
        name, equals, folder = text.partition("=")
        if not equals or not name.strip() or "/" in name:
            raise UsageError(
                f"--against {text!r} is not NAME=DIR", hint="write --against shipped=heads/eagle3"
            )
        if not (Path(folder) / "config.json").is_file():
            raise UsageError(f"--against {name}: no config.json in {folder}")
        made.append((name.strip(), Path(folder)))
    return tuple(made)
