"""A published draft, by revision, into a folder: what `draft check` and an engine can read."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError, unwritable
from speccli.core.preflight.files import HUB_TIMEOUT_S, header, hub_error, the_hub

SOURCE = "specctl-source.json"
"""Beside the weights: which revision of what they are."""
_WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "LICENSE*")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A draft that is here now."""

    name: str
    revision: str
    """The commit, also where a branch or tag was asked for."""
    folder: str
    weights: int
    """Tensors."""
    bytes: int


def fetch(name: str, revision: str | None, folder: Path) -> Fetched:
    """Bring a draft; the folder is there whole, or not at all.

    Raises:
        UsageError: the folder is there already, or what came is no draft.
        SpecctlError: huggingface_hub is missing, or the hub does not answer or refuses.
    """
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UsageError(f"{name!r} is no name on the hub", hint="write ORG/MODEL")
    if folder.exists():
        raise UsageError(f"{folder} is there already", hint="give another --out, or remove it")
    hint = "fetch it where the hub can be reached, and copy the folder"
    hub = the_hub(f"{name} cannot be fetched", hint)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as place:
            commit = _bring(hub, name, revision, Path(place), hint)
            found = _whole(Path(place), name, commit, folder)
            (Path(place) / SOURCE).write_text(json.dumps(asdict(found), indent=1))
            shutil.rmtree(Path(place) / ".cache", ignore_errors=True)
            shutil.copytree(place, folder)
    except OSError as error:
        raise unwritable(error, folder, UsageError) from error
    return found


def _bring(hub: Any, name: str, revision: str | None, place: Path, hint: str) -> str:
    try:
        told = hub.HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT_S)
        hub.snapshot_download(
            name, revision=told.sha, allow_patterns=list(_WANTED), local_dir=str(place)
        )
    except Exception as error:  # noqa: BLE001 - the library's own tree changes by version
        raise hub_error(f"{name}@{revision}" if revision else name, error, hint) from error
    return str(told.sha)


def _whole(place: Path, name: str, commit: str, folder: Path) -> Fetched:
    files = sorted(place.glob("*.safetensors"))
    if not (place / "config.json").is_file() or not files:
        raise UsageError(
            f"{name} holds no config.json with safetensors",
            hint="is it a draft, and this revision?",
        )
    return Fetched(
        name=name,
        revision=commit,
        folder=str(folder),
        weights=sum(len(header(file)) for file in files),
        bytes=sum(file.stat().st_size for file in files),
    )
