"""The folder of baselines: one JSON file each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speccli.core.baseline.model import Baseline, BatchSpeed, Key, differences, dumps, loads
from speccli.core.baseline.reference import REFERENCES
from speccli.core.errors import UsageError
from speccli.core.state import ensure_writable, write_atomic

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_SAME_WITHOUT = frozenset({"engine", "version", "target", "target_revision"})
"""Parts of the key that an arm without speculation must share."""


class Store:
    """Baselines under a state folder, and the public references beside them."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the state folder; need not exist."""
        self.folder = folder / "baselines"

    def names(self) -> list[str]:
        """What is kept here, without the references."""
        try:
            return sorted(path.stem for path in self.folder.glob("*.json"))
        except OSError as error:
            raise UsageError(f"cannot read {self.folder}: {error.strerror}") from error

    def all(self) -> tuple[list[Baseline], list[str]]:
        """Every baseline, the references last, and a note for each file that is none."""
        found: list[Baseline] = []
        notes: list[str] = []
        for name in self.names():
            try:
                found.append(self._read(self._path(name)))
            except UsageError as error:
                notes.append(error.message)
        return [*found, *REFERENCES], notes

    def get(self, name: str) -> Baseline:
        """One by its name, or by the path of its file.

        Raises:
            UsageError: there is none; the message names the nearest.
        """
        for reference in REFERENCES:
            if reference.name == name:
                return reference
        if _NAME.fullmatch(name) and self._path(name).is_file():
            return self._read(self._path(name))
        if name.endswith(".json") and Path(name).is_file():
            return self._read(Path(name))
        names = [*self.names(), *(reference.name for reference in REFERENCES)]
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        nearest = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"no baseline {name!r}{nearest}", hint="`specctl baseline list` has them")

    def refuse_to_lose(self, name: str, *, force: bool) -> None:
        """Refuse a name under which nothing can be put; nothing is touched.

        Raises:
            UsageError: the name is none, or one is kept under it and `force` is not given.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a baseline", hint="letters, digits, . _ and -")
        try:
            there = self._path(name).exists()
        except OSError as error:
            raise UsageError(f"cannot read {self.folder}: {error.strerror}") from error
        if there and not force:
            raise UsageError(
                f"baseline {name} exists in {self.folder}",
                hint="--force overwrites it; or choose another name",
            )

    def ensure_writable(self, name: str) -> None:
        """See that one can be kept under that name, before it is watched for.

        Raises:
            UsageError: the folder takes none.
        """
        ensure_writable(self._path(name))

    def put(self, baseline: Baseline, *, force: bool = False) -> Path:
        """Keep one; with `force`, in place of another of its name.

        Raises:
            UsageError: the name is none, or one is kept under it and `force` is not given.
            StateError: it cannot be written.
        """
        self.refuse_to_lose(baseline.name, force=force)
        path = self._path(baseline.name)
        write_atomic(path, dumps(baseline))
        return path

    def to_add_to(self, name: str) -> Baseline:
        """One that may be changed.

        Raises:
            UsageError: there is none of that name, or it is a public reference.
        """
        kept = self.get(name)
        if kept.origin == "reference":
            raise UsageError(f"{name} is a public reference: it is not changed")
        return kept

    def add_plain(
        self, name: str, speed: Sequence[BatchSpeed], key: Key, *, force: bool = False
    ) -> Baseline:
        """Add to a baseline what the same engines make without speculation.

        Raises:
            UsageError: there is no such baseline, no speed, or the engines are others.
            StateError: it cannot be written.
        """
        kept = self.to_add_to(name)
        if not speed:
            raise UsageError("no speed by batch size was seen", hint="watch it under traffic")
        unlike = [d for d in differences(kept.key, key) if d.part in _SAME_WITHOUT]
        if unlike and not force:
            raise UsageError(
                f"{name} is of something else: " + "; ".join(map(str, unlike)),
                hint="--force adds it all the same",
            )
        sizes = [row.batch for row in speed]
        others = [row for row in kept.plain if all(abs(row.batch - s) > 0.5 for s in sizes)]
        plain = tuple(sorted([*others, *speed], key=lambda row: row.batch))
        whole = replace(kept, plain=plain)
        self.put(whole, force=True)
        return whole

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _read(self, path: Path) -> Baseline:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not text") from error
        return loads(text, str(path))
