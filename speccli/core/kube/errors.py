"""What an API server refuses, in words an operator can act on.

Every error here ends in exit 3: nothing is known of the cluster, or it was left as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speccli.core.errors import (
    DeadlineError,
    NotAuthorisedError,
    SourceError,
    UnreachableError,
)
from speccli.core.sources.redact import redact

_LONGEST = 400
"""Characters of a server's own words that are repeated."""


class ClusterError(SourceError):
    """The API server answered, and not as it should."""


class Unreachable(ClusterError, UnreachableError):
    """No API server answered: refused, name not found, certificate not accepted, cut off."""


class TimedOut(ClusterError, DeadlineError):
    """It did not answer in time."""


class CredentialsError(ClusterError, NotAuthorisedError):
    """The kubeconfig's credentials could not be had: its plugin failed, its token file is gone."""


class Expired(ClusterError, NotAuthorisedError):
    """401: the server does not accept the credentials, and newer ones were not to be had."""


class Denied(ClusterError, NotAuthorisedError):
    """403: these credentials may not do this."""


class NotInstalled(ClusterError):
    """The server knows no such kind: an operator or its definitions are missing."""


class NotThere(ClusterError):
    """404: the object that something was to be done with is gone."""


class Invalid(ClusterError):
    """The server does not take this object."""


class Gone(ClusterError):
    """410: what was to be continued is too old; list again."""


class Busy(ClusterError):
    """429: the server sheds load."""


@dataclass(frozen=True, slots=True)
class Clash:
    """A field that somebody else set last."""

    manager: str
    """Who: kubectl, an autoscaler, another deployer."""
    field: str
    """`.spec.replicas`."""

    def __str__(self) -> str:
        """As it is printed."""
        return f"{self.field} is set by {self.manager}"


class Conflict(ClusterError):
    """409: the object changed, or fields of it belong to somebody else."""

    def __init__(
        self, message: str, *, clashes: Sequence[Clash] = (), hint: str | None = None
    ) -> None:
        """`clashes`: every field that is not ours; empty where it is no matter of fields."""
        super().__init__(message, hint=hint)
        self.clashes = tuple(clashes)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of the server, to say so when it refuses."""

    verb: str
    what: str
    """`Deployment chat`, `pods`."""
    namespace: str | None = None

    def __str__(self) -> str:
        """`apply Deployment chat in namespace prod`."""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.what}{place}"


def refusal(
    status: int, body: bytes, asked: Asked, *, headers: Mapping[str, str] | None = None
) -> ClusterError:
    """The error for an answer that is not a success."""
    told = status_of(body)
    said = _words(told.get("message") if told else body)
    if 300 <= status < 400:
        onward = (headers or {}).get("Location", "")
        host = re.sub(r"^\w+://([^/?#]*@)?([^/?#]*).*", r"\2", onward)
        return Unreachable(
            f"cannot {asked}: the server redirects to {host or 'nowhere'}, perhaps a login",
            hint="the kubeconfig's server must be the API server itself",
        )
    if status == 401:
        return Expired(
            f"cannot {asked}: the API server does not accept the credentials (401)",
            hint="log in again, or choose another --context",
        )
    if status == 403:
        return _denied(said, asked)
    if status == 404:
        return NotThere(f"cannot {asked}: {said or 'not found'}")
    if status == 409:
        return _conflict(told, said, asked)
    if status == 410:
        return Gone(f"cannot {asked}: {said or 'the list is too old'}")
    if status == 429:
        return Busy(
            f"cannot {asked}: the API server is busy (429) {said}".rstrip(),
            hint="try again, or raise --deadline",
        )
    if status in {400, 413, 415, 422} or _is_schema(said):
        return _invalid(told, said, asked)
    return ClusterError(f"cannot {asked}: the API server answered {status}: {said or 'no reason'}")


def status_of(body: bytes) -> dict[str, Any] | None:
    """The `Status` object in an answer; None where it is none (a proxy, a pod)."""
    if b'"Status"' not in body[:2000]:
        return None
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    is_status = isinstance(told, dict) and told.get("kind") == "Status"
    return told if is_status and str(told.get("apiVersion", "v1")) == "v1" else None


def _words(said: Any) -> str:
    """What somebody else said, on one line and without secrets."""
    if isinstance(said, bytes):
        said = said[: 4 * _LONGEST].decode("utf-8", "replace")
    text = " ".join(redact(str(said or "")).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_RBAC = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]*)")?'
)


def _denied(said: str, asked: Asked) -> Denied:
    told = _RBAC.search(said)
    if told is None:  # admission: a quota, Pod Security, a webhook
        return Denied(f"cannot {asked}: forbidden: {said or 'no reason given'}")
    resource = told["resource"] + (f".{told['group']}" if told["group"] else "")
    place = f"in namespace {told['namespace']}" if told["namespace"] else "in the whole cluster"
    return Denied(
        f"not allowed: {told['user']} may not {told['verb']} {resource} {place}",
        hint="grant it (docs/kubernetes.md has the least that is needed), "
        "or choose another --context",
    )


def _causes(told: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    details = (told or {}).get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []


_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')


def _conflict(told: Mapping[str, Any] | None, said: str, asked: Asked) -> Conflict:
    clashes = []
    for cause in _causes(told):
        named = _MANAGER.search(str(cause.get("message", "")))
        if cause.get("reason") == "FieldManagerConflict" or named:
            manager = named[1] if named else _words(cause.get("message"))
            clashes.append(Clash(manager, str(cause.get("field", "a field"))))
    if not clashes:
        return Conflict(f"cannot {asked}: {said or 'it changed meanwhile'}", hint="try again")
    return Conflict(
        f"cannot {asked}: {'; '.join(map(str, clashes))}",
        clashes=clashes,
        hint="leave the field to them, or take it over on purpose",
    )


def _is_schema(said: str) -> bool:
    """Whether a 500 is an object that does not fit its schema (server-side apply)."""
    return "field not declared in schema" in said or "failed to create typed patch" in said


_UNDECLARED = re.compile(r"(\.[^\s:]+(?:\[[^\]]*\][^\s:]*)*): field not declared in schema")


def _invalid(told: Mapping[str, Any] | None, said: str, asked: Asked) -> Invalid:
    named = _UNDECLARED.findall(said)
    if named:
        plural = "s" if len(named) > 1 else ""
        return Invalid(f"cannot {asked}: unknown field{plural} {', '.join(named)}")
    causes = [
        f"{cause.get('field') or 'object'}: {_words(cause.get('message'))}"
        for cause in _causes(told)
        if cause.get("message")
    ]
    return Invalid(f"cannot {asked}: {'; '.join(causes) or said or 'not valid'}")
