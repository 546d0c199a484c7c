"""Objects that are written whole, by one of several writers: made once, replaced as they were read.

Server-side apply merges; a lease or an event is no matter of fields. Whoever comes second is told
(409) instead of overwriting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from speccli.core.kube.errors import Asked

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster


def create(cluster: Cluster, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Make it; as it is then.

    Raises:
        Conflict: there is one of that name.
    """
    metadata = obj["metadata"]
    version, kind = str(obj["apiVersion"]), str(obj["kind"])
    path, place = cluster.path(version, kind, None, metadata.get("namespace"))
    named = metadata.get("name") or metadata.get("generateName")
    asked = Asked("make", f"{kind} {named}", place)
    query = {"fieldManager": "specctl"}
    return cluster.ask("POST", path, asked, query=query, body=dict(obj))


def replace(cluster: Cluster, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Put it in the place of what was read, by its `metadata.resourceVersion`; as it is then.

    Raises:
        Conflict: it has changed since.
        NotThere: it is gone.
    """
    metadata = obj["metadata"]
    version, kind = str(obj["apiVersion"]), str(obj["kind"])
    path, place = cluster.path(version, kind, metadata["name"], metadata.get("namespace"))
    asked = Asked("replace", f"{kind} {metadata['name']}", place)
    query = {"fieldManager": "specctl"}
    return cluster.ask("PUT", path, asked, query=query, body=dict(obj))
