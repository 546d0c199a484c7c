"""A report's four files, each replaced as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from speccli.core.errors import UsageError, unwritable
from speccli.core.report.build import Report
from speccli.core.report.card import card
from speccli.core.report.document import document
from speccli.core.report.markdown import markdown
from speccli.core.report.page import page
from speccli.core.state import replace_whole
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


def write(report: Report, folder: Path, *, force: bool = False) -> list[Path]:
    """Write them all into a folder, which is made.

    Raises:
        UsageError: one is somebody else's, and `force` is not given; or it cannot be written.
    """
    return save({folder / name: text for name, text in texts(report).items()}, force=force)


def save(files: Mapping[Path, str], *, force: bool = False) -> list[Path]:
    """Write files, each whole; none where one of them is somebody else's.

    Raises:
        UsageError: one is somebody else's, and `force` is not given; or it cannot be written.
    """
    try:
        for path in files:
            if not force and path.exists() and not _OURS.search(path.read_bytes()):
                raise UsageError(
                    f"{path} is not of specctl's making",
                    hint="give another --out; --force overwrites it",
                )
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(path, text)
    except OSError as error:
        raise unwritable(error, path, UsageError, hint="give --out DIR") from error
    return list(files)


_OURS = re.compile(
    rb"made by specctl(\*\s*\Z|, \d{4}-\d\d-\d\d</)|\A\{\s*\"schema\": \"specctl\.report/"
    rb"|\A# Is speculation worth it|\A---\nname: inference-server-"
)
"""What a report of ours has: its foot, its schema, its title or a card's name."""
