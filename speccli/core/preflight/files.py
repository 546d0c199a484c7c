"""A model's config.json and the names of its weights: from a folder, or from the hub.

Nothing is loaded: of a safetensors file only the header is read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccli.core.errors import DeadlineError, NotAuthorisedError, UnreachableError, UsageError
from speccli.core.preflight.base import Model

_LARGEST_HEADER = 100 << 20
HUB_TIMEOUT_S = 4.0


def read_model(name: str) -> Model:
    """A model by folder, by path of its config.json, or by its name on the hub.

    Raises:
        UsageError: no such folder, or no config.json that can be read in it.
        SpecctlError: the hub cannot be asked (exit 3).
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".json":
        return Model(name, _json(path), None)
    if path.is_dir():
        return Model(name, _json(path / "config.json"), _weights(path))
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise UsageError(
            f"no folder {name}", hint="give a folder with config.json, or a name like ORG/MODEL"
        )
    return from_hub(name)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no JSON object")
    return value


def _weights(folder: Path) -> frozenset[str] | None:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        told = _json(index).get("weight_map")
        return frozenset(told) if isinstance(told, Mapping) else None
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return frozenset(name for file in files for name in header(file))
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        return None  # pickled: their names cannot be told without loading them
    return frozenset()


def header(path: Path) -> list[str]:
    """The names of the weights in a safetensors file."""
    try:
        with path.open("rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            if size > _LARGEST_HEADER:
                raise ValueError("its header is too large")
            names = json.loads(file.read(size))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, struct.error, RecursionError) as error:
        raise UsageError(f"{path} is no safetensors file: {error}") from error
    return [name for name in names if name != "__metadata__"]


def from_hub(name: str) -> Model:
    """A model by its name on the hub, through huggingface_hub.

    Raises:
        SpecctlError: it is not installed, does not answer, or refuses.
    """
    hint = "copy config.json (and model.safetensors.index.json) into a folder and give that"
    hub = the_hub(f"{name} is no folder here", hint)
    try:
        path = hub.hf_hub_download(name, "config.json", etag_timeout=HUB_TIMEOUT_S)
        names = _hub_weights(hub, name)
    except Exception as error:  # noqa: BLE001 - the library's own tree changes by version
        raise hub_error(name, error, hint) from error
    return Model(name, _json(Path(path)), names)


def the_hub(what: str, hint: str) -> Any:
    """huggingface_hub; `what` cannot be done without it.

    Raises:
        UnreachableError: it is not installed.
    """
    try:
        import huggingface_hub  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise UnreachableError(
            f"{what}, and huggingface_hub is not installed", hint=hint
        ) from error
    return huggingface_hub


def _hub_weights(hub: Any, name: str) -> frozenset[str] | None:
    try:
        told = hub.get_safetensors_metadata(name)
    except Exception:  # noqa: BLE001 - not every repository has them; then they are unknown
        return None
    return frozenset(told.weight_map)


def hub_error(name: str, error: Exception, hint: str) -> Exception:
    """What the library's failure means."""
    kind, text = type(error).__name__, str(error).strip().splitlines()[0][:200]
    if "Gated" in kind or "401" in text or "403" in text:
        return NotAuthorisedError(
            f"the hub refuses {name}: {text}", hint="accept its licence there, and set HF_TOKEN"
        )
    if "NotFound" in kind:
        return UnreachableError(f"the hub has no {name}, or hides it: {text}", hint=hint)
    if "Timeout" in kind:
        return DeadlineError(f"the hub did not answer for {name}", hint=hint)
    return UnreachableError(f"the hub cannot be asked for {name}: {text}", hint=hint)
