"""Bodies of any size, in bounded memory: only what is read is kept of a large one."""

from __future__ import annotations

from dataclasses import dataclass, field

from speccli.core.metrics.page import WANTED_BYTES
from speccli.core.metrics.parse import name_of

SMALL = 1 << 20
"""Bytes up to which a body is kept as it is; a page of vLLM 0.32 has 53 kB."""
WARN = 5 << 20
"""Bytes from which the size is worth a word (vLLM #44691 had 22 MB from one config label)."""
HARD = 32 << 20
"""Bytes at which reading stops."""
_LINE = 1 << 16
"""Bytes of a line worth keeping; a wanted sample is far shorter."""
_STUB = 120
"""Bytes kept of what cannot be used, so that the reader can say what it was."""


@dataclass(slots=True)
class BodyBuffer:
    """Collects the chunks of one body."""

    size: int = 0
    """Bytes seen."""
    stopped: bool = False
    """Whether the body went past HARD; feeding more is pointless."""
    _kept: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)
    _long: bool = False
    _filtering: bool = False
    _skipped: int = 0
    _first: bytes = b""

    def feed(self, chunk: bytes) -> None:
        """Take a chunk."""
        self.size += len(chunk)
        if self.size > HARD:
            self.stopped = True
            return
        if not self._filtering and self.size <= SMALL:
            self._kept += chunk
            return
        if not self._filtering:
            self._filtering = True
            whole, self._kept = self._kept, bytearray()
            self._first = bytes(whole or chunk)[:_STUB]
            self._filter(bytes(whole))
        self._filter(chunk)

    def finish(self) -> tuple[bytes, str | None]:
        """The body, or the lines of it that are read; and a word about its size."""
        if self._filtering:
            if not self._kept:
                self._kept += self._first  # not a page of metrics: what it is must stay visible
            elif not self.stopped:
                self._kept += self._tail  # an unfinished line stays one
        if self.size <= WARN:
            return bytes(self._kept), None
        megabytes = self.size / 1e6
        if self.stopped:
            return bytes(self._kept), f"TOO_LARGE: reading stopped after {HARD >> 20} MiB"
        note = f"TOO_LARGE: a page of {megabytes:.0f} MB"
        if self._skipped:
            note += f", {self._skipped} line(s) over {_LINE >> 10} KiB left out"
        return bytes(self._kept), note

    def _filter(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if self._long:
                self._long = False
                continue
            self._keep(bytes(self._tail) + line)
            self._tail.clear()
        if self._long:
            return
        self._tail += rest
        if len(self._tail) > _LINE:
            self._keep(bytes(self._tail))
            self._tail.clear()
            self._long = True

    def _keep(self, line: bytes) -> None:
        wanted = name_of(line) in WANTED_BYTES
        if len(line) > _LINE:
            self._skipped += 1
            line = line[:_STUB]  # if wanted, it must be missed: a sum without it would be wrong
        if wanted:
            self._kept += line + b"\n"


def bounded(body: bytes) -> tuple[bytes, str | None]:
    """A whole body through the same limits."""
    if len(body) <= SMALL:
        return body, None
    buffer = BodyBuffer()
    for at in range(0, len(body), SMALL):
        buffer.feed(body[at : at + SMALL])
    return buffer.finish()
