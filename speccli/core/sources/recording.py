"""The recording: an incident kept as JSON Lines, and looked at again through the same path.

First line a header, then one line a scrape (`specctl.recording/v1`). `.gz` and `.zst` by name.
Written so that whatever was flushed can be read; torn lines are left out, and said.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, get_args

from speccli.core.errors import RecordingError, unwritable
from speccli.core.metrics.page import WANTED_BYTES
from speccli.core.metrics.parse import name_of
from speccli.core.sources import streams
from speccli.core.sources.base import Scrape, Stage, facts
from speccli.core.sources.body import bounded
from speccli.core.sources.redact import redact, redact_page

SCHEMA = "specctl.recording/v1"
_FOREIGN_LINES = 5
_FOREIGN_BYTES = 200
"""What is kept of a page that is no engine's: enough to say again what it was."""
_MOST_TORN = 10
"""Torn lines beyond the number of whole ones after which a file is no recording."""
_YEAR_10000 = 253_402_300_800
_HUGE = 1e300


@dataclass(frozen=True, slots=True)
class Header:
    """The first line."""

    created: str
    interval_s: float
    source: str
    simulated: bool


class Recorder:
    """Writes rounds to a file."""

    def __init__(
        self,
        path: Path,
        *,
        interval_s: float,
        source: str,
        simulated: bool = False,
        full: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`full`: keep every family, not only those specctl reads.

        Raises:
            RecordingError: the file cannot be written.
        """
        self.path = path
        self.scrapes = 0
        self._full = full
        self._told: dict[str, dict[str, Any]] = {}
        try:
            self._raw: IO[bytes] = path.open("wb")
        except OSError as error:
            raise unwritable(error, path, RecordingError) from error
        self._out, self._flush = streams.compressor(path, self._raw)
        header = {
            "schema": SCHEMA,
            "created": now().isoformat(timespec="seconds"),
            "interval_s": interval_s,
            "source": source,
            "simulated": simulated,
        }
        with self._writing():
            self._line(header)
            self._flush()

    def write(self, scrapes: Iterable[Scrape]) -> None:
        """Keep a round; on disk when this returns.

        Raises:
            RecordingError: the file takes no more; what it took before stays.
        """
        with self._writing():
            for scrape in scrapes:
                self._line(self._kept(scrape))
                self.scrapes += 1
            self._flush()

    def close(self) -> None:
        """Finish the file.

        Raises:
            RecordingError: its end cannot be written.
        """
        if not self._raw.closed:
            with self._writing():
                if self._out is not self._raw:
                    self._out.close()
                self._raw.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            for file in (self._out, self._raw):  # they would try again, and fail again
                with contextlib.suppress(OSError, ValueError):
                    file.close()
            kept = f", {self.scrapes} scrapes are in it" if self.scrapes else ""
            raise unwritable(error, self.path, RecordingError, more=kept) from error

    def _kept(self, scrape: Scrape) -> dict[str, Any]:
        line = line_of(scrape, full=self._full)
        info = line.get("info")
        if info and self._told.get(scrape.target) == info:
            del line["info"]
        elif info:
            self._told[scrape.target] = info
        return line

    def _line(self, value: dict[str, Any]) -> None:
        self._out.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")


def line_of(scrape: Scrape, *, full: bool = False) -> dict[str, Any]:
    """A scrape in the contract's form; without `full`, only the families that are read."""
    line: dict[str, Any] = {"at": scrape.at, "target": scrape.target}
    if scrape.error is not None:
        line["error"] = redact(scrape.error)
        if scrape.stage:
            line["stage"] = scrape.stage
        if scrape.fix:
            line["fix"] = redact(scrape.fix)
    else:
        line["status"] = scrape.status
        body = scrape.body if full else _read_of(scrape.body)
        line["body"] = redact_page(body.decode("utf-8", "replace"))
        if scrape.truncated:
            line["truncated"] = True
        if scrape.note:
            line["note"] = redact(scrape.note)
        if scrape.pool:
            line["pool"] = scrape.pool
    info = facts(scrape.info)
    if info:
        line["info"] = {k: redact(v) if isinstance(v, str) else v for k, v in info.items()}
    return line


def scrape_of(value: Any) -> Scrape:
    """The scrape of such a line.

    Raises:
        TypeError: it is none.
        KeyError: a part is missing.
    """
    return _scrape(value)


def _read_of(body: bytes) -> bytes:
    """The lines of a page that are read, and the line it stops in the middle of.

    Of a page on which nothing is read, the beginning: a replay must say the same of it.
    """
    *whole, rest = body.split(b"\n")
    kept = [line for line in whole if _is_read(line)]
    if kept or name_of(rest) in WANTED_BYTES:
        return b"".join(line + b"\n" for line in kept) + rest[: 1 << 16]
    start = body.lstrip()
    samples = [line[:_FOREIGN_BYTES] for line in whole if name_of(line)][:_FOREIGN_LINES]
    if start[:1] == b"<" or not samples:
        return start[:_FOREIGN_BYTES]
    return b"".join(line + b"\n" for line in samples)


def _is_read(line: bytes) -> bool:
    """Whether a line is of a family that is read; of the few names of a page this is known."""
    name, labels, _ = line.partition(b"{")
    return _is_wanted(name if labels and len(name) <= _FOREIGN_BYTES else line[:_FOREIGN_BYTES])


@lru_cache(maxsize=4096)
def _is_wanted(start: bytes) -> bool:
    return name_of(start) in WANTED_BYTES


class Recording:
    """A recording being read."""

    def __init__(self, path: Path) -> None:
        """Open a recording and read its header.

        Raises:
            RecordingError: no such file, not readable, not a recording.
        """
        self.path = path
        self.note: str | None = None
        """How it ends badly, once that is known."""
        self.scrapes = 0
        self._file = _lines(path)
        self._lines = enumerate(self._file, 1)
        try:
            _, first = next(self._lines, (0, b""))
        except EOFError:
            raise RecordingError(f"{path} stops in its first line", hint=_HINT) from None
        if not first:
            raise RecordingError(f"{path} is empty", hint=_HINT)
        self.header = _header(path, first)

    def __iter__(self) -> Iterator[Scrape]:
        """Every scrape, in order. A torn line is left out, and `note` says which.

        Raises:
            RecordingError: a line is whole and is not a scrape, or no line is one.
        """
        torn: list[int] = []
        number, last_is_torn = 1, False
        try:
            for number, line in self._lines:
                if not line.strip():
                    continue
                last_is_torn = False
                try:
                    scrape = _scrape(json.loads(line.decode()))
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                    why = _why(error)
                    if not why.startswith("not JSON") or len(torn) > _MOST_TORN + self.scrapes:
                        raise RecordingError(
                            f"{self.path}, line {number}: {why}", hint=_HINT
                        ) from error
                    torn.append(number)
                    last_is_torn = True
                    continue
                self.scrapes += 1
                yield scrape
        except EOFError:
            self.note = f"the recording's compressed data stops early, in or after line {number}"
        self.note = _torn(torn, self.note, last_is_torn=last_is_torn)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _torn(lines: list[int], note: str | None, *, last_is_torn: bool) -> str | None:
    """What is said of lines that were left out, after what is said already."""
    told = [note] if note else []
    if last_is_torn:
        told.append(f"the recording ends in a cut line (line {lines.pop()}), which is left out")
    if lines:
        which = f"line {lines[0]} is" if len(lines) == 1 else f"{len(lines)} lines are"
        first = f", the first is line {lines[0]}" if len(lines) > 1 else ""
        told.append(f"{which} torn and left out{first}")
    return "; ".join(told) or None


_HINT = "a recording is made by `specctl record FILE`; docs/contracts.md has its form"


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg})"
    if isinstance(error, UnicodeDecodeError):
        return "not JSON (not UTF-8 text)"
    if isinstance(error, RecursionError | OverflowError):
        return "not a scrape"
    if isinstance(error, KeyError):
        return f"not a scrape: {error.args[0]!r} is missing"
    return f"not a scrape: {error}"


def _lines(path: Path) -> Generator[bytes, None, None]:
    number = 0
    try:
        for number, line in enumerate(streams.lines(path), 1):  # noqa: B007 - told if it breaks
            yield line
    except streams.DamagedError as error:
        where = f", line {number + 1}" if number else ""
        raise RecordingError(f"{path}{where}: {error}", hint=_HINT) from error
    except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"cannot read {path}: {why}", hint="check --replay FILE") from error


def _header(path: Path, line: bytes) -> Header:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or "schema" not in value:
        raise RecordingError(f"{path} is not a recording: its first line is no header", hint=_HINT)
    if value["schema"] != SCHEMA:
        raise RecordingError(
            f"{path} has schema {value['schema']!r}; this specctl reads {SCHEMA}", hint=_HINT
        )
    interval = value.get("interval_s", 1.0)
    if not _is_number(interval) or not 0 < interval < _YEAR_10000:
        raise RecordingError(f"{path}: interval_s {interval!r} is not a positive number")
    return Header(
        created=str(value.get("created", "")),
        interval_s=float(interval),
        source=str(value.get("source", "scrape")),
        simulated=bool(value.get("simulated", False)),
    )


def _scrape(value: Any) -> Scrape:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    at, target = value["at"], value["target"]
    if not _is_number(at) or not 0 <= at < _YEAR_10000:
        raise TypeError(f"at {at!r} is not a time in Unix seconds")
    if not isinstance(target, str) or not target:
        raise TypeError(f"target {target!r} is not the address of a server")
    target = re.sub(r"//[^/@]*@", "//", _plain(target)).rstrip("/").removesuffix("/metrics")
    raw_info = value.get("info")
    info = facts({**value, **(raw_info if isinstance(raw_info, dict) else {})})
    if value.get("error") is not None:
        error, fix = _plain(str(value["error"])), value.get("fix")
        stage = next((each for each in get_args(Stage) if each == value.get("stage")), None)
        fix = _plain(fix) if isinstance(fix, str) else None
        return Scrape(float(at), target, error=error, info=info, stage=stage, fix=fix)
    status, body = value.get("status", 200), value["body"]
    if not isinstance(body, str) or isinstance(status, bool) or not isinstance(status, int):
        raise TypeError("status is not a number or body not a string")
    kept, note = bounded(body.encode("utf-8", "replace"))
    said, pool = value.get("note"), value.get("pool")
    return Scrape(
        float(at),
        target,
        status,
        kept,
        truncated=bool(value.get("truncated", False)),
        note=_plain(said) if isinstance(said, str) and said else note,
        info=info,
        pool=_plain(pool) if isinstance(pool, str) and pool else None,
    )


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -_HUGE < value < _HUGE  # not NaN either


def _plain(text: str) -> str:
    """Text that can be encoded again: JSON can spell halves of characters."""
    return text.encode("utf-8", "replace").decode()
