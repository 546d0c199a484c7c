"""The recording: an incident kept as JSON Lines, and looked at again through the same path.

First line a header, then one line a scrape (`specctl.recording/v1`). `.gz` and `.zst` by name.
Written so that whatever was flushed can be read; a cut last line is tolerated, and said.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

from speccli.core.errors import RecordingError
from speccli.core.metrics.parse import name_of
from speccli.core.metrics.reader import WANTED_BYTES
from speccli.core.sources.base import Scrape
from speccli.core.sources.body import bounded
from speccli.core.sources.redact import redact_line

SCHEMA = "specctl.recording/v1"
_INFO = ("version", "method", "k", "draft")


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
            raise RecordingError(f"cannot write {path}: {error.strerror}") from error
        self._out, self._flush = _compressor(path, self._raw)
        header = {
            "schema": SCHEMA,
            "created": now().isoformat(timespec="seconds"),
            "interval_s": interval_s,
            "source": source,
            "simulated": simulated,
        }
        self._line(header)

    def write(self, scrapes: Iterable[Scrape]) -> None:
        """Keep a round; on disk when this returns."""
        for scrape in scrapes:
            line: dict[str, Any] = {"at": round(scrape.at, 3), "target": scrape.target}
            if scrape.error is not None:
                line["error"] = scrape.error
            else:
                line["status"] = scrape.status
                line["body"] = self._body(scrape.body)
                if scrape.truncated:
                    line["truncated"] = True
                if scrape.note:
                    line["note"] = scrape.note
            info = {key: scrape.info[key] for key in _INFO if key in scrape.info}
            if info and self._told.get(scrape.target) != info:
                self._told[scrape.target] = line["info"] = info
            self._line(line)
            self.scrapes += 1
        self._flush()

    def close(self) -> None:
        """Finish the file."""
        if not self._raw.closed:
            if self._out is not self._raw:
                self._out.close()
            self._raw.close()

    def _body(self, body: bytes) -> str:
        if not self._full and body.lstrip()[:1] != b"<":
            kept = [line for line in body.split(b"\n") if name_of(line) in WANTED_BYTES]
            body = b"".join(line + b"\n" for line in kept)
        return "\n".join(map(redact_line, body.decode("utf-8", "replace").split("\n")))

    def _line(self, value: dict[str, Any]) -> None:
        try:
            self._out.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise RecordingError(f"cannot write {self.path}: {error.strerror}") from error


def _compressor(path: Path, raw: IO[bytes]) -> tuple[IO[bytes], Callable[[], Any]]:
    if path.suffix == ".gz":
        out = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0)

        def flush_gz() -> None:
            out.flush()
            raw.flush()

        return cast(IO[bytes], out), flush_gz
    if path.suffix == ".zst":
        import zstandard

        writer = zstandard.ZstdCompressor(level=6).stream_writer(raw, closefd=False)

        def flush_zst() -> None:
            writer.flush(zstandard.FLUSH_FRAME)
            raw.flush()

        return writer, flush_zst
    return raw, raw.flush


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
        self._lines = _numbered(path)
        _, first = next(self._lines, (0, ""))
        if not first:
            raise RecordingError(f"{path} is empty", hint=_HINT)
        self.header = _header(path, first)

    def __iter__(self) -> Iterator[Scrape]:
        """Every scrape, in order.

        Raises:
            RecordingError: a line other than the last is not a scrape.
        """
        bad: tuple[int, str] | None = None
        for number, line in self._lines:
            if bad is not None:
                raise RecordingError(f"{self.path}, line {bad[0]}: {bad[1]}", hint=_HINT)
            if not line.strip():
                continue
            try:
                scrape = _scrape(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                bad = (number, _why(error))
                continue
            self.scrapes += 1
            yield scrape
        if bad is not None:
            if bad[1].startswith("not JSON") or bad[1].startswith("ends"):
                self.note = f"the recording ends in a cut line (line {bad[0]}), which is left out"
            else:
                raise RecordingError(f"{self.path}, line {bad[0]}: {bad[1]}", hint=_HINT)


_HINT = "a recording is made by `specctl record FILE`; docs/contracts.md has its form"


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg})"
    if isinstance(error, KeyError):
        return f"not a scrape: {error.args[0]!r} is missing"
    return f"not a scrape: {error}"


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a compressed file that stops early ends in its last whole line."""
    number = 0
    try:
        with path.open("rb") as raw, _decompressor(path, raw) as stream:
            while True:
                try:
                    line = stream.readline()
                except EOFError:
                    yield number + 1, "{"
                    return
                if not line:
                    return
                number += 1
                yield number, line.decode("utf-8")
    except OSError as error:
        raise RecordingError(
            f"cannot read {path}: {error.strerror or error}", hint="check --replay FILE"
        ) from error
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path}, line {number + 1}: not UTF-8 text", hint=_HINT) from error


def _decompressor(path: Path, raw: IO[bytes]) -> IO[bytes]:
    head = raw.read(4)
    raw.seek(0)
    if head[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if head == b"\x28\xb5\x2f\xfd":
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return io.BufferedReader(reader)
    if path.suffix in {".gz", ".zst"} and head:
        raise RecordingError(f"{path} is not {path.suffix} data", hint=_HINT)
    return raw


def _header(path: Path, line: str) -> Header:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict) or "schema" not in value:
        raise RecordingError(f"{path} is not a recording: its first line is no header", hint=_HINT)
    if value["schema"] != SCHEMA:
        raise RecordingError(
            f"{path} has schema {value['schema']!r}; this specctl reads {SCHEMA}", hint=_HINT
        )
    interval = value.get("interval_s", 1.0)
    if not isinstance(interval, int | float) or not interval > 0:
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
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise TypeError(f"at {at!r} is not a time")
    if not isinstance(target, str):
        raise TypeError(f"target {target!r} is not a string")
    target = re.sub(r"//[^/@]*@", "//", target).rstrip("/").removesuffix("/metrics")
    raw_info = value.get("info")
    info = raw_info if isinstance(raw_info, dict) else {}
    if "version" in value:
        info = {"version": value["version"], **info}
    if "error" in value:
        return Scrape(float(at), target, error=str(value["error"]), info=info)
    status, body = value.get("status", 200), value["body"]
    if not isinstance(body, str) or isinstance(status, bool) or not isinstance(status, int):
        raise TypeError("status is not a number or body not a string")
    kept, note = bounded(body.encode())
    return Scrape(
        float(at),
        target,
        status,
        kept,
        truncated=bool(value.get("truncated", False)),
        note=value.get("note") or note,
        info=info,
    )
