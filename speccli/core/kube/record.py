"""What is written down of a deployment: what was asked for, when, and how it went.

It is written before anything is applied, so that a run that was killed can be completed, and it
travels with the cluster (a ConfigMap) or the state folder (a local engine), not with who deployed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from speccli.core.errors import SpecctlError, UsageError
from speccli.core.kube.refs import Ref
from speccli.core.manifests.names import labels
from speccli.core.recipes.load import plain
from speccli.core.recipes.marks import Marks
from speccli.core.recipes.model import Recipe
from speccli.core.recipes.strict import build

SCHEMA = "specctl.deployment/v1"
LABEL = "specctl.dev/record"
KEPT = 10
"""Former revisions that are remembered."""
_FILE = "record.json"

State = Literal["applying", "applied", "ready", "failed"]
"""applying: the intent is written, objects may be half applied. applied: every object is as it
should be. ready: every pod of it was ready. failed: they were not."""


class RecordError(SpecctlError):
    """The record cannot be understood."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One thing that was asked for."""

    number: int
    recipe: Mapping[str, Any]
    """As `recipes.load.plain` gives it."""
    options: Mapping[str, Any]
    """How it was rendered, beyond the recipe."""
    objects_hash: str
    """Of what was rendered: another version of specctl may render another set."""
    objects: tuple[Ref, ...]
    """What was to be applied, in order."""
    image: str | None
    state: State
    at: str
    """When the intent was written, RFC 3339."""
    by: str
    """`user@host`."""
    tool: str
    """specctl's version."""
    ended: str | None = None
    """When its state last changed."""
    accepted: tuple[str, ...] = ()
    """Critical findings that were accepted."""
    proof: Mapping[str, Any] | None = None
    restores: int | None = None
    """The revision that it brought back."""
    trial: Mapping[str, Any] | None = None
    """Of a canary that a restore is tried with: what it is tried for, and what came of it."""
    uid: str | None = None
    """No other attempt's: two may write the same at the same second. None: of an older specctl, or
    of this machine, where a lock keeps them apart."""

    @property
    def hash(self) -> str:
        """Of the recipe."""
        return digest(self.recipe)

    @property
    def proven(self) -> bool:
        """Whether it was seen to do what its recipe says."""
        return self.state == "ready" and bool(self.proof and self.proof.get("verdict") == "proven")

    def is_for(self, recipe: Recipe, options: Mapping[str, Any], objects: str) -> bool:
        """Whether the same is asked for; a newer form of recipes may have keys of its own."""
        if self.options != options or self.objects_hash != objects:
            return False
        try:
            return recipe_of(self) == recipe
        except UsageError:
            return False

    def to_json(self) -> dict[str, Any]:
        """Its part of the record."""
        told: dict[str, Any] = {
            "revision": self.number,
            "state": self.state,
            "at": self.at,
            "ended": self.ended,
            "by": self.by,
            "specctl": self.tool,
            "recipe_hash": self.hash,
            "objects_hash": self.objects_hash,
            "image": self.image,
            "accepted": list(self.accepted),
            "restores": self.restores,
            "proof": self.proof,
            "options": dict(self.options),
            "objects": [ref.to_json() for ref in self.objects],
            "recipe": dict(self.recipe),
        }
        if self.uid is not None:
            told["uid"] = self.uid
        return told if self.trial is None else {**told, "trial": dict(self.trial)}


@dataclass(frozen=True, slots=True)
class Record:
    """A deployment's history, newest revision apart."""

    name: str
    current: Revision
    previous: tuple[Revision, ...] = field(default=())
    """Newest first."""

    def with_next(self, revision: Revision) -> Record:
        """The same with a revision after this one; the oldest is forgotten.

        But canaries before others, and what was brought back as it still is: however often a draft
        is tried again, the way back to it stays.
        """
        kept = [self.current, *self.previous]
        while len(kept) > KEPT:
            kept.remove(_oldest_of_no_use(kept))
        return Record(self.name, revision, tuple(kept))

    def with_current(self, **changes: Any) -> Record:
        """The same with the current revision changed."""
        return replace(self, current=replace(self.current, **changes))

    @property
    def known(self) -> tuple[Ref, ...]:
        """Every object that this or a former revision had, once."""
        every = (ref for each in (self.current, *self.previous) for ref in each.objects)
        return tuple(dict.fromkeys(every))

    def revision(self, number: int) -> Revision | None:
        """One by its number."""
        every = (self.current, *self.previous)
        return next((each for each in every if each.number == number), None)

    def to_json(self) -> dict[str, Any]:
        """`specctl.deployment/v1`."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            **self.current.to_json(),
            "previous": [each.to_json() for each in self.previous],
        }


def _oldest_of_no_use(revisions: list[Revision]) -> Revision:
    former = revisions[1:]  # the newest is what an undo goes to
    tried = [each for each in former if each.trial is not None]
    told_little = [each for each in tried if (each.trial or {}).get("verdict") != "refused"]
    same = [(each.recipe, each.options) for each in revisions]
    copies = [
        each
        for each in former
        if each.restores is not None and same.count((each.recipe, each.options)) > 1
    ]
    return min(told_little or copies or tried or former[-1:], key=lambda each: each.number)


def digest(value: Any) -> str:
    """A short name of plain values: equal values have equal ones."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recipe_of(revision: Revision) -> Recipe:
    """Its recipe again.

    Raises:
        UsageError: this version knows another form of recipes.
    """
    return build(Recipe, revision.recipe, Marks({(): f"revision {revision.number}"}))


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe as it is written down: what JSON gives back."""
    value: dict[str, Any] = json.loads(json.dumps(plain(recipe)))
    return value


def to_restore(record: Record, number: int | None) -> Revision:
    """The revision that a rollback brings back: the one named, or the newest that was in order.

    A rollback that is not through is completed: what it led away from looks newest and in order.
    What a canary was tried with is none of them.

    Raises:
        RecordError: there is none.
    """
    numbers = ", ".join(str(each.number) for each in record.previous) or "none"
    if number is not None:
        found = record.revision(number)
        if found is None:
            raise RecordError(
                f"{record.name} has no revision {number} to go back to",
                hint=f"it remembers {record.current.number} (now) and {numbers}",
            )
        return found
    current = record.current
    if current.restores is not None and current.state != "ready":
        return record.revision(current.restores) or current
    for wanted in (_sound, _was_ready):
        for each in record.previous:
            same = each.recipe == current.recipe and each.options == current.options
            if wanted(each) and not same and each.trial is None:
                return each
    raise RecordError(
        f"{record.name} has no former revision that was ready",
        hint=f"name one with --to-revision (it remembers {numbers}), or deploy a recipe",
    )


def _sound(revision: Revision) -> bool:
    return revision.proven


def _was_ready(revision: Revision) -> bool:
    refuted = bool(revision.proof and revision.proof.get("verdict") == "refuted")
    return revision.state == "ready" and not refuted


def name_of(deployment: str) -> str:
    """The ConfigMap's name."""
    return f"{deployment}-specctl"


def fallback_name(deployment: str) -> str:
    """The ConfigMap's with what a fallback watch remembers: it outlives every revision."""
    return f"{deployment}-fallback"


def as_object(record: Record, namespace: str) -> dict[str, Any]:
    """The ConfigMap that holds it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name_of(record.name),
            "namespace": namespace,
            "labels": {**labels(record.name), LABEL: "true"},
        },
        "data": {_FILE: json.dumps(record.to_json(), indent=1, sort_keys=True)},
    }


def from_object(value: Mapping[str, Any]) -> Record:
    """The record in a ConfigMap.

    Raises:
        RecordError: it is not one, or is of a newer specctl.
    """
    name = value.get("metadata", {}).get("name", "?")
    text = (value.get("data") or {}).get(_FILE)
    if not isinstance(text, str):
        raise RecordError(f"ConfigMap {name} holds no {_FILE}", hint=_HINT)
    return from_text(text, f"ConfigMap {name}")


def from_text(text: str, where: str) -> Record:
    """The record in a text.

    Raises:
        RecordError: it is not one, or is of a newer specctl.
    """
    try:
        told = json.loads(text)
        if told.get("schema") != SCHEMA:
            raise RecordError(
                f"{where} is of form {told.get('schema')!r}, this specctl reads {SCHEMA}",
                hint="a newer specctl wrote it: use that one",
            )
        previous = tuple(_revision(each) for each in told["previous"])
        return Record(str(told["name"]), _revision(told), previous)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{where} cannot be read: {error!r}", hint=_HINT) from error


_HINT = "it was changed by hand; delete it and deploy again: the running pool is not touched"


def _revision(told: Mapping[str, Any]) -> Revision:
    state = told["state"]
    if state not in get_args(State):
        raise ValueError(f"state {state!r}")
    return Revision(
        number=int(told["revision"]),
        recipe=told["recipe"],
        options=told["options"],
        objects_hash=str(told["objects_hash"]),
        objects=tuple(Ref.from_json(each) for each in told["objects"]),
        image=told["image"],
        state=state,
        at=str(told["at"]),
        by=str(told["by"]),
        tool=str(told["specctl"]),
        ended=told["ended"],
        accepted=tuple(told["accepted"]),
        proof=told["proof"],
        restores=told["restores"],
        trial=told.get("trial"),
        uid=told.get("uid"),
    )
