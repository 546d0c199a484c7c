"""A folder of manifests, replaced whole or not at all; what others wrote in it stays."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from speccli.core.errors import UsageError, unwritable
from speccli.core.manifests.render import KUSTOMIZATION, MARK


def write(folder: Path, texts: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Write files into a folder, and remove those of an earlier rendering that are no more.

    A new folder appears complete. In one that is there, every new text lies on the disk before the
    first file is replaced, so a full disk changes nothing.

    Raises:
        UsageError: a file is somebody else's, the folder is another deployment's, or it cannot be
            written.
    """
    try:
        if not folder.exists():
            _make(folder, texts)
        else:
            stale = _checked(folder, texts, force=force)
            _replace(folder, texts)
            for path in stale:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(error, error.filename or folder, UsageError) from error
    return [folder / name for name in texts]


def _checked(folder: Path, texts: Mapping[str, str], *, force: bool) -> list[Path]:
    """The files of an earlier rendering that the new one has not."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    for name, text in texts.items():
        path = folder / name
        if force or not path.exists():
            continue
        head = _head(path)
        if not head.startswith(MARK):
            raise UsageError(f"{path} is not of specctl's making", hint="--force overwrites it")
        if name == KUSTOMIZATION and head != text.partition("\n")[0]:
            raise UsageError(
                f"{folder} holds another deployment: {head.removeprefix(MARK).strip()}",
                hint="another --out, or --force to replace it",
            )
    ours = {texts[KUSTOMIZATION].partition("\n")[0]}
    if (folder / KUSTOMIZATION).is_file() and _head(folder / KUSTOMIZATION).startswith(MARK):
        ours.add(_head(folder / KUSTOMIZATION))
    return [
        path
        for path in sorted(folder.glob("*.yaml"))
        if path.name not in texts and path.is_file() and _head(path) in ours
    ]


def _head(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(400).rstrip("\n")


def _make(folder: Path, texts: Mapping[str, str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _named(folder):
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with _named(folder):
            made.chmod(0o777 & ~_umask())
            for name, text in texts.items():
                (made / name).write_text(text, encoding="utf-8")
            made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _replace(folder: Path, texts: Mapping[str, str]) -> None:
    made: dict[Path, Path] = {}
    try:
        for name, text in texts.items():
            path = folder / name
            if path.exists() and path.read_text(encoding="utf-8", errors="replace") == text:
                continue
            with _named(path):
                file, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
                made[Path(temporary)] = path
                with open(file, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
                    stream.write(text)
                Path(temporary).chmod(0o666 & ~_umask())
        while made:
            temporary_path, path = next(iter(made.items()))
            with _named(path):
                temporary_path.replace(path)
            del made[temporary_path]
    finally:
        for left in made:
            with contextlib.suppress(OSError):
                left.unlink()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error names what was to be written, never the temporary file beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
