"""A report's four files, each replaced as a whole."""

from __future__ import annotations

from pathlib import Path

from speccli.core.errors import UsageError
from speccli.core.report.build import Report
from speccli.core.report.card import card
from speccli.core.report.document import document
from speccli.core.report.markdown import markdown
from speccli.core.report.page import page
from speccli.core.views.document import json_text

CARD = "skill-inference-server.md"


def texts(report: Report) -> dict[str, str]:
    """Name and text of each file."""
    return {
        "report.md": markdown(report),
        "report.html": page(report),
        "report.json": json_text(document(report)) + "\n",
        CARD: card(report),
    }


def write(report: Report, folder: Path) -> list[Path]:
    """Write them all into a folder, which is made.

    Raises:
        UsageError: it cannot be written.
    """
    made = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts(report).items():
            path = folder / name
            part = folder / f".{name}.part"
            part.write_text(text, encoding="utf-8")
            part.replace(path)
            made.append(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or folder}: {error.strerror}", hint="give --out DIR"
        ) from error
    return made
