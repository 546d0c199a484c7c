"""What is remembered of kernel checks, and whether that is enough to let traffic in.

A result is kept for each GPU and image: in a cluster as a ConfigMap beside what is deployed, on a
machine in the state folder. It stands for an image, a driver and a GPU, and it ages.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccli.core.errors import ExitCode

if TYPE_CHECKING:
    from speccli.core.kube.client import Cluster

SCHEMA = "specctl.kernels-result/v1"
LABEL = "specctl.dev/kernels"
_FILE = "result.json"
_FOLDER = "kernels"


@dataclass(frozen=True, slots=True)
class Kept:
    """The latest result of one GPU with one image."""

    at: str
    """When the run began, RFC 3339."""
    exit: int
    """0 ok, 1 warning, 2 critical, 3 unknown."""
    whole: bool
    """Whether every check was run that is always run."""
    shared: bool
    """Whether it ran beside an engine, without measuring speeds."""
    image: str | None
    """As it was deployed."""
    image_digest: str | None
    """`sha256:…`, as the node named it."""
    driver: str | None
    gpu: str | None
    gpu_uuid: str | None
    node: str | None
    versions: Mapping[str, str]
    seed: int
    seconds: float
    counts: Mapping[str, int]
    """Checks by how they ended."""
    findings: tuple[Mapping[str, Any], ...]

    @property
    def passed(self) -> bool:
        """Nothing critical was found, and something was looked at."""
        return self.exit in {ExitCode.OK, ExitCode.WARNING}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pass must be of."""

    image: str | None = None
    """As it will be deployed: by its digest where it has one, else as it is spelled."""
    driver: str | None = None
    """None: any."""
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Of nodes, as they are now."""
    gpu_uuids: Collection[str] | None = None
    """None: any."""
    nodes: Collection[str] | None = None
    """Each of them needs a pass; None: one pass is enough, wherever."""
    max_age_s: float = 7 * 86400


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether there is a fresh pass."""

    passes: tuple[Kept, ...]
    """Those that count, newest first."""
    lacks: tuple[str, ...]
    """What is missing, a line each, with the reason; empty: go ahead."""

    @property
    def ok(self) -> bool:
        """Whether traffic may be let in."""
        return not self.lacks


def fresh_pass(results: Iterable[Kept], wanted: Wanted, now: datetime) -> Answer:
    """Whether what is remembered has a pass of this image, driver and GPU that is new enough.

    A node that is named has none while the latest result of one of its GPUs is a failure: pods may
    be given that GPU, whatever another one of the node passed.
    """
    known = sorted(results, key=lambda kept: datetime.fromisoformat(kept.at), reverse=True)
    judged = [(kept, _against(kept, wanted, now)) for kept in _latest(known, wanted.image)]
    passes = tuple(kept for kept, why in judged if why is None)
    if wanted.nodes is None:
        return Answer(passes, () if passes else (_nearest(judged, wanted),))
    lacks = []
    for node in sorted(wanted.nodes):
        here = [(kept, why) for kept, why in judged if kept.node == node]
        wrong = [kept for kept, _ in here if _is_wrong(kept, wanted)]
        if wrong:
            lacks += [f"{node}: {_failure(kept)} (at {kept.at})" for kept in wrong]
        elif not any(why is None for _, why in here):
            lacks.append(f"{node}: {_nearest(here, wanted)}")
    return Answer(tuple(kept for kept in passes if kept.node in wanted.nodes), tuple(lacks))


def _latest(known: Iterable[Kept], image: str | None) -> Iterator[Kept]:
    """The newest result of each GPU with this image, of those of other images all. Newest first."""
    seen = set()
    for kept in known:
        gpu = _gpu(kept)
        if same_image(kept, image):
            if gpu in seen:
                continue
            seen.add(gpu)
        yield kept


def _is_wrong(kept: Kept, wanted: Wanted) -> bool:
    """Whether a GPU is known to give wrong results with this image and driver."""
    driver = wanted.driver or wanted.drivers.get(kept.node or "")
    same = same_image(kept, wanted.image) and driver in {None, kept.driver}
    return same and kept.exit == ExitCode.CRITICAL


def _failure(kept: Kept) -> str:
    worst = kept.findings[0] if kept.findings else {}
    gpu = kept.gpu_uuid or "an unknown GPU"
    return f"they failed on {gpu}: {worst.get('code', 'nothing could be looked at')}"


def _nearest(judged: list[tuple[Kept, str | None]], wanted: Wanted) -> str:
    """Why the result that comes closest does not count."""
    same = [why for kept, why in judged if why and same_image(kept, wanted.image)]
    if same:
        return same[0]
    others = sorted({kept.image or kept.image_digest or "an unknown image" for kept, _ in judged})
    what = f"the kernels of {wanted.image}" if wanted.image else "the kernels"
    if others:
        return f"{what} were never checked here (those of {', '.join(others[:3])} were)"
    return f"{what} were never checked here"


def _against(kept: Kept, wanted: Wanted, now: datetime) -> str | None:
    """Why a result does not count; None: it does."""
    gpu = kept.gpu_uuid or "an unknown GPU"
    if not same_image(kept, wanted.image):
        return "another image"
    if wanted.gpu_uuids is not None and kept.gpu_uuid not in wanted.gpu_uuids:
        return f"they were checked on {gpu}, which is not among the GPUs here"
    driver = wanted.driver or wanted.drivers.get(kept.node or "")
    if driver is not None and kept.driver != driver:
        return f"they were checked with driver {kept.driver or 'unknown'}, now it is {driver}"
    if not kept.passed:
        return _failure(kept)
    if not kept.whole:
        return f"only some checks were run on {gpu}"
    age = now - datetime.fromisoformat(kept.at)
    if age > timedelta(seconds=wanted.max_age_s):
        return f"they passed on {gpu} {_days(age)} ago"
    if age < timedelta(minutes=-5):
        return f"the result of {gpu} is from the future: a clock is wrong"
    return None


def same_image(kept: Kept, image: str | None) -> bool:
    """By digest where the image is named by one; else by its spelling."""
    if image is None:
        return True
    found = re.search(r"@(sha256:[0-9a-f]{64})$", image)
    if found:
        return kept.image_digest == found[1] or kept.image == image
    return kept.image == image


def _days(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} h"


def kept_of(document: Mapping[str, Any]) -> Kept:
    """What is worth remembering of a run's JSON (`specctl.kernels/v1`)."""
    environment = document["environment"]
    counts: dict[str, int] = {}
    for check in document["checks"]:
        counts[check["status"]] = counts.get(check["status"], 0) + 1
    return Kept(
        at=document["at"],
        exit=int(document["exit"]),
        whole=bool(document.get("whole", False)),
        shared=bool(document.get("shared", False)),
        image=environment.get("image"),
        image_digest=environment.get("image_digest"),
        driver=environment.get("driver"),
        gpu=environment.get("gpu"),
        gpu_uuid=environment.get("gpu_uuid"),
        node=environment.get("node"),
        versions=dict(environment.get("versions") or {}),
        seed=int(document["seed"]),
        seconds=float(document["seconds"]),
        counts=counts,
        findings=tuple(document.get("findings") or ()),
    )


def to_text(kept: Kept) -> str:
    """As it is written down."""
    return json.dumps({"schema": SCHEMA, **asdict(kept)}, indent=1, sort_keys=True) + "\n"


def from_text(text: str) -> Kept | None:
    """What was written down; None where it is something else, or of another version."""
    try:
        told = json.loads(text)
        if told.pop("schema") != SCHEMA:
            return None
        return Kept(**{**told, "findings": tuple(told["findings"])})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _gpu(kept: Kept) -> str:
    """Its UUID, or where it is."""
    return kept.gpu_uuid or f"{kept.node} {kept.gpu}"


def _key(kept: Kept) -> str:
    """Of a GPU with an image: another image's result says nothing of this one."""
    told = f"{_gpu(kept)} {kept.image_digest or kept.image}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def keep_in_cluster(cluster: Cluster, kept: Kept) -> str:
    """Write it down beside what is deployed; the ConfigMap's name.

    Raises:
        ClusterError: it may not be written.
    """
    name = f"specctl-kernels-{_key(kept)}"
    labels = {"app.kubernetes.io/managed-by": "specctl", LABEL: "true"}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": cluster.namespace, "labels": labels},
            "data": {_FILE: to_text(kept)},
        }
    )
    return name


def kept_in_cluster(cluster: Cluster, namespace: str | None = None) -> tuple[Kept, ...]:
    """What is remembered in a namespace.

    Raises:
        ClusterError: it may not be read.
    """
    found = cluster.list("v1", "ConfigMap", namespace, labels={LABEL: "true"})
    read = [from_text(str((each.get("data") or {}).get(_FILE, ""))) for each in found]
    return tuple(kept for kept in read if kept is not None)


def keep_here(state: Path, kept: Kept) -> Path:
    """Write it down in the state folder.

    Raises:
        StateError: it cannot be written.
    """
    from speccli.core.state import write_atomic

    path = state / _FOLDER / f"{_key(kept)}.json"
    write_atomic(path, to_text(kept))
    return path


def kept_here(state: Path) -> tuple[Kept, ...]:
    """What is remembered on this machine."""
    read = [from_text(path.read_text()) for path in sorted((state / _FOLDER).glob("*.json"))]
    return tuple(kept for kept in read if kept is not None)
