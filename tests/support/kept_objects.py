"""A script for `ApiServer` that keeps objects, with resource versions and their conflicts."""

from __future__ import annotations

import copy
import re
from typing import Any

from tests.support.api_server import GROUPS, Question, Reply, not_there, status

KNOWN = {
    **GROUPS,
    "v1": [*GROUPS["v1"], ("configmaps", "ConfigMap", True), ("services", "Service", True)],
    "coordination.k8s.io/v1": [("leases", "Lease", True)],
}
_PATH = re.compile(
    r"/apis?/[\w./]+?/namespaces/(?P<place>[\w-]+)/(?P<plural>\w+)(?:/(?P<name>[^/]+))?"
)


class Kept:
    """Objects by plural and name; `away`: what is answered instead of everything."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.away: Reply | None = None
        self.before_write: Any = None
        """Called before each write, as another client that is faster."""
        self._version = 0

    def __call__(self, question: Question) -> Reply | None:
        if self.away is not None:
            return self.away
        found = _PATH.fullmatch(question.path)
        if found is None:
            return None
        key = (found["plural"], found["name"] or "")
        if question.method == "GET":
            value = self.objects.get(key)
            return Reply(body=copy.deepcopy(value)) if value else not_there(key[1], key[0])
        if self.before_write is not None:
            self.before_write()
        body = question.json
        meta = body["metadata"]
        if question.method == "POST":
            meta.setdefault("name", f"{meta.get('generateName', '')}{self._version}")
            key = (key[0], meta["name"])
            if key in self.objects:
                return status(409, "AlreadyExists", "it exists", name=key[1])
            return self._put(key, body, 201)
        there = self.objects.get(key)
        version = meta.get("resourceVersion")
        if there is None and question.method == "PUT":
            return not_there(key[1], key[0])
        if there and version and version != there["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified", name=key[1])
        return self._put(key, body, 200)

    def _put(self, key: tuple[str, str], body: dict[str, Any], code: int) -> Reply:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = body
        return Reply(code, copy.deepcopy(body))
