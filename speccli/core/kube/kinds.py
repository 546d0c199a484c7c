"""Which path a kind lives at: the dynamic client's discovery, kept in the user's own cache.

The client's usual cache is a file of a known name in /tmp, shared by users and by clusters that
had the same address. Here it is keyed by server, authority and version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.discovery import CacheEncoder, LazyDiscoverer

from speccli.core.kube.credentials import Credentials
from speccli.core.state import StateError, write_atomic


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """XDG_CACHE_HOME/specctl, else ~/.cache/specctl; None where there is no home."""
    if root := environment.get("XDG_CACHE_HOME"):
        return Path(root) / "specctl"
    home = environment.get("HOME")
    return Path(home) / ".cache" / "specctl" if home else None


def dynamic_client(
    api: Any, credentials: Credentials, version: str, environment: Mapping[str, str]
) -> Any:
    """The dynamic client of one cluster.

    Args:
        api: The transport.
        credentials: Of the cluster.
        version: The server's `gitVersion`: another one may serve other kinds.
        environment: Where the cache folder is named.
    """
    key = hashlib.sha256(
        b"\0".join([credentials.server.encode(), credentials.identity, version.encode()])
    ).hexdigest()
    folder = cache_folder(environment)
    file = folder / f"kinds-{key[:24]}.json" if folder else None
    if file is not None and not _sound(file):
        with suppress(OSError):
            file.unlink(missing_ok=True)
    # Without a home nothing is kept; the name of no file keeps the client from its own.
    return DynamicClient(api, cache_file=str(file or "/dev/null/kinds"), discoverer=_Discoverer)


def _sound(file: Path) -> bool:
    """Whether the client could read it: it would log what is wrong, over the screen."""
    try:
        told = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(told, dict) and isinstance(told.get("resources"), dict)


class _Discoverer(LazyDiscoverer):  # type: ignore[misc]  # the package is not looked into
    """Writes its cache whole or not at all: two commands may run at once."""

    def __init__(self, client: Any, cache_file: str) -> None:
        self._file = Path(cache_file)
        super().__init__(client, cache_file)

    def _write_cache(self) -> None:
        with suppress(StateError, OSError, ValueError, TypeError):
            write_atomic(self._file, json.dumps(self._cache, cls=CacheEncoder))
