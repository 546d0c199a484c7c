"""A training job: from what was typed to the file that the stages read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from draft_training.bounds import OutOfBoundsError
from draft_training.job import ANSWERS_FREE, METHODS, from_dict
from speccli.core.bench import datasets
from speccli.core.bench.datasets import Prompts
from speccli.core.errors import UsageError, unwritable
from speccli.core.state import replace_whole
from speccli.core.training import mix, near

STAGES = ("prompts", "answers", "train", "export")
HELD_OUT = 1000
"""Prompts of each dataset that are never trained on: the first in the order that a bench takes."""
TESTS = ("mtbench", "humaneval")
"""Never trained on, whole."""
_MUCH = 0.2
"""Of a source's prompts, left out as near a test: from here on it is said, and why."""


_OPTIONS = {"training.minutes": "--minutes ", "training.steps": "--steps ", "seed": "--seed "}
"""Settings that have an option of their own."""
_FREE = ("init", "aux_layers", "tests_sha256")
"""What may change in a folder beside the training: the answers do not depend on it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was typed."""

    target: str
    out: Path
    method: str = "eagle3"
    data: tuple[str, ...] = ("sharegpt",)
    """Sources, each `NAME` or `NAME=SHARE`."""
    folder: Path | None = None
    """Where the packages' data files lie, if not installed."""
    minutes: float | None = None
    steps: int | None = None
    init: Path | None = None
    prompts: int | None = None
    """At most so many are answered."""
    measured: int = 100
    """Prompts of each test that acceptance is watched on in training."""
    held_out: int = HELD_OUT
    seed: int = 0
    tests: tuple[str, ...] = ()
    """Further datasets that the head is measured with, and never trained on."""
    changes: tuple[str, ...] = ()
    """`answers.samples=1`, `training.lr=1e-3`: any field of the job."""
    elsewhere: bool = False
    """It runs on another machine: the folder of `init` is not looked for on this one."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job on disk, ready for its first stage."""

    file: Path
    document: Mapping[str, Any]
    tests: tuple[Prompts, ...]
    """Held-out prompts, to measure the head with."""
    trained_on: int
    """Prompts that will be answered."""
    near: int = 0
    """Prompts left out because a test asks nearly the same."""
    warnings: tuple[str, ...] = ()
    """What the caller should know of its prompts."""
    ends: str | None = None
    """Which source is used up, at how many prompts, and what of the others is left; in words."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What of a source may be trained on."""

    name: str
    share: float | None
    prompts: list[datasets.Prompt]
    before: int
    """Prompts, with those that are near one of a test."""

    @property
    def near(self) -> int:
        return self.before - len(self.prompts)

    def lost(self) -> str:
        """How many are left out, in words."""
        return f"{self.name}: {self.near:,} of {self.before:,} prompts are near one of a test"


@dataclass(frozen=True, slots=True)
class _Split:
    train: list[tuple[int, datasets.Prompt]]
    """Each with the place of its source."""
    tests: list[Prompts]
    sources: list[_Source]
    ends: str | None

    def shares(self) -> dict[str, float]:
        """Of each source, if they have any."""
        return {s.name: s.share for s in self.sources if s.share is not None}

    def lines(self) -> str:
        """What is trained on; with its source, where it is to keep a share."""
        shares = self.shares()
        named = [{"source": s.name} if shares else {} for s in self.sources]
        return "".join(_line(prompt, **named[at]) for at, prompt in self.train)

    def warnings(self) -> tuple[str, ...]:
        """Sources that lost much."""
        lost = [source for source in self.sources if source.near > _MUCH * source.before]
        return tuple(f"{source.lost()}, and left out" for source in lost)


def prepare(wanted: Wanted) -> Prepared:
    """Write the job and its prompts below `--out`.

    Raises:
        UsageError: it cannot be trained so, or `--out` holds another job.
    """
    document = checked(wanted)
    split = _split(wanted)
    lines = split.lines()
    held = {_plain(t.name): t.prompts[: wanted.measured] for t in split.tests}
    tests = "".join(_line(p, test=test) for test, prompts in sorted(held.items()) for p in prompts)
    document["prompts"] = str(wanted.out / "work" / "prompts.jsonl")
    if shares := split.shares():
        document["shares"] = shares
    document["prompts_sha256"] = hashlib.sha256(lines.encode()).hexdigest()
    document["tests_sha256"] = hashlib.sha256(tests.encode()).hexdigest()
    file = wanted.out / "job.json"
    _same_as_before(file, document)
    try:
        (wanted.out / "work").mkdir(parents=True, exist_ok=True)
        replace_whole(Path(document["prompts"]), lines + tests)
        replace_whole(file, json.dumps(document, indent=1))
    except OSError as error:
        raise unwritable(error, error.filename or wanted.out, UsageError) from error
    return Prepared(
        file,
        document,
        tuple(split.tests),
        len(split.train),
        sum(source.near for source in split.sources),
        split.warnings(),
        split.ends,
    )


def _line(prompt: datasets.Prompt, **more: str) -> str:
    row = {"id": prompt.id, "messages": [dict(m) for m in prompt.messages]}
    return json.dumps({**row, **more}) + "\n"


def _plain(name: str) -> str:
    """A test's name as part of a file's."""
    return re.sub(r"[^\w-]+", "-", name)


def readable(wanted: Wanted) -> None:
    """That `prepare` would find nothing to object to in what was typed; nothing is written.

    Raises:
        UsageError: it cannot be trained so.
    """
    checked(wanted)
    _split(wanted)


def _load(name: str, wanted: Wanted) -> Prompts:
    return datasets.load(name, folder=wanted.folder, option="--data-folder")


def _split(wanted: Wanted) -> _Split:
    parts, named = [], list[tuple[str, Prompts]]()
    for name, share in mix.sources(wanted.data):
        if name in TESTS:
            raise UsageError(
                f"--data {name}: it is what heads are measured with, and not trained on",
                hint="train on sharegpt or on prompts of your own",
            )
        found = _load(name, wanted)
        held = min(wanted.held_out, len(found.prompts) // 5)
        parts.append((name, found.prompts[held:], share))
        if held:
            note = f"first {held} of {len(found.prompts)}: held out of training"
            named.append((name, Prompts(found.name, found.source, found.prompts[:held], note)))
    named += [(name, _load(name, wanted)) for name in wanted.tests]
    for name in TESTS:
        try:
            named.append((name, _load(name, wanted)))
        except UsageError:
            continue  # an extra where it is installed, not a need
    tests = _each_once(named)
    kept_out = [test for _, test in named]
    made = [_apart(name, prompts, share, kept_out) for name, prompts, share in parts]
    train, ended_by = mix.mixed([(source.prompts, source.share) for source in made])
    if not train:
        raise _nothing(made)
    ends = None
    if ended_by is not None and (wanted.prompts is None or wanted.prompts > len(train)):
        left = sum(len(source.prompts) for source in made) - len(train)
        ends = f"with {made[ended_by].name}, after {len(train):,}; {left:,} of others are not used"
    return _Split(train[: wanted.prompts], tests, made, ends)


def _each_once(named: Sequence[tuple[str, Prompts]]) -> list[Prompts]:
    """Tests, of which each has a name of its own: figures and files are kept by it.

    Raises:
        UsageError: two are called the same.
    """
    made: dict[str, tuple[str, Prompts]] = {}
    for typed, test in named:
        known, _ = made.setdefault(_plain(test.name), (typed, test))
        if known != typed:
            raise UsageError(
                f"two tests are called {_plain(test.name)}: {known} and {typed}",
                hint="rename one of the files; a --data file is one, unless --held-out 0",
            )
    return [test for _, test in made.values()]


def _apart(
    name: str, prompts: Sequence[datasets.Prompt], share: float | None, tests: Sequence[Prompts]
) -> _Source:
    """A source without what a test asks as well."""
    known = near.Known((p.text for t in tests for p in t.prompts), (p.text for p in prompts))
    return _Source(name, share, [p for p in prompts if not known.has(p.text)], len(prompts))


def _nothing(sources: Sequence[_Source]) -> UsageError:
    """Why nothing can be trained on: with shares, one empty source is enough."""
    empty = [source for source in sources if not source.prompts]
    told = "; ".join(s.lost() if s.before else f"{s.name} has no prompts" for s in empty)
    hint = "give prompts of more kinds, or fewer tests to keep them apart from (--test)"
    if not any(source.near for source in empty):
        hint = "give a file with prompts"
    elif len(empty) < len(sources):
        hint = f"leave it out, or give no shares; or {hint}"
    return UsageError(f"nothing to train on: {told}", hint=hint)


def checked(wanted: Wanted) -> dict[str, Any]:
    """The job, but for its prompts; nothing is written.

    Raises:
        UsageError: it cannot be trained so.
    """
    if wanted.method not in METHODS:
        raise UsageError(
            f"--method {wanted.method}: no head of that kind is trained here",
            hint=f"one of: {', '.join(METHODS)}",
        )
    if (wanted.minutes is None) == (wanted.steps is None):
        raise UsageError("how long to train?", hint="give --minutes or --steps, one of them")
    if wanted.init is not None and not wanted.elsewhere:
        _is_head(wanted.init)
    document: dict[str, Any] = {
        "target": wanted.target,
        "out": str(wanted.out.absolute()),
        "method": wanted.method,
        "init": None if wanted.init is None else str(wanted.init.absolute()),
        "seed": wanted.seed,
        "answers": {},
        "training": {"minutes": wanted.minutes, "steps": wanted.steps},
    }
    for change in wanted.changes:
        _change(document, change)
    if None not in (document["training"].get("minutes"), document["training"].get("steps")):
        raise UsageError("how long to train?", hint="give --minutes or --steps, one of them")
    try:
        from_dict(document)
    except OutOfBoundsError as error:
        option = _OPTIONS.get(error.name, f"--set {error.name}=")
        raise UsageError(
            f"{option}{_told(error.value)}: wants {error.wanted}",
            hint="docs/training.md lists what can be set",
        ) from error
    except (TypeError, ValueError) as error:
        told = str(error).partition("() got an ")[2] or str(error)
        raise UsageError(f"--set: {told}", hint="docs/training.md lists the names") from error
    return document


def _is_head(folder: Path) -> None:
    """That there is a head to go on from; the training looks into it."""
    weights = (*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"))
    missing = [
        what
        for what, there in (
            ("config.json", (folder / "config.json").is_file()),
            ("*.safetensors or pytorch_model.bin", bool(weights)),
        )
        if not there
    ]
    if missing:
        raise UsageError(
            f"--init {folder}: no {missing[0]} there",
            hint="give the folder of a head, as an engine loads it or as Speculators keeps it",
        )


def _told(value: object) -> str:
    return "none" if value is None else str(value).removesuffix(".0")


def _change(document: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    section, _, name = path.strip().rpartition(".")
    if not equals or not name or section not in {"", "answers", "training"}:
        raise UsageError(
            f"--set {change!r} is not answers.NAME=VALUE or training.NAME=VALUE",
            hint="docs/training.md lists the names",
        )
    if not section and name in document.keys() - {"seed"}:
        raise UsageError(f"--set {name}: it is not set so", hint="it has an option of its own")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {change!r}: {text!r} is no value") from error
    if isinstance(value, str) and _number(value) is not None:
        value = _number(value)  # YAML 1.1 takes 1e-3 for a word
    (document[section] if section else document)[name] = value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _same_as_before(file: Path, document: Mapping[str, Any]) -> None:
    """A folder holds one target's answers: what differs in them must not be taken for the same.

    What only the training depends on may change: it begins anew, with the same answers.
    """
    if not file.exists():
        return
    try:
        before = _flat(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} is no job: {error}", hint="take another --out") from error
    now = _flat(document)
    differ = sorted(
        key for key in {*before, *now} if before.get(key) != now.get(key) and not _may_change(key)
    )
    if differ:
        raise UsageError(
            f"{file.parent} holds another job: {', '.join(differ)} differ",
            hint="take another --out, or remove the folder",
        )


def _may_change(key: str) -> bool:
    section, _, name = key.rpartition(".")
    return section == "training" or key in _FREE or name in ANSWERS_FREE


def _flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            made |= _flat(value, f"{before}{key}.")
        else:
            made[f"{before}{key}"] = value
    return made
