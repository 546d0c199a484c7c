"""Lines in and out of a file, plain or compressed, of which the end may be missing."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LONGEST_LINE = 128 << 20
"""Bytes of one line; a page is cut down long before it takes so many."""
_CHUNK = 4096
"""Small, because a few bytes of compressed data may be very many of text."""


class DamagedError(ValueError):
    """Compressed data, or a line, that cannot be read on from here."""


def compressor(path: Path, raw: IO[bytes]) -> tuple[IO[bytes], Callable[[], Any]]:
    """What to write into, by the file's name; and what brings everything written to the disk."""
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


def lines(path: Path) -> Iterator[bytes]:
    """Every line without its newline, the last one even where it has none.

    Raises:
        OSError: the file cannot be read.
        DamagedError: it cannot be read on.
        EOFError: it is compressed and stops early; all that could be read was given before.
    """
    with path.open("rb") as raw:
        rest = bytearray()
        early = False
        chunks = _chunks(path, raw)
        while True:
            try:
                chunk = next(chunks, None)
            except EOFError:
                chunk, early = None, True
            if chunk is None:
                break
            rest += chunk
            if b"\n" in chunk:
                *whole, rest = rest.split(b"\n")
                yield from map(bytes, whole)
            elif len(rest) > LONGEST_LINE:
                raise DamagedError(f"longer than {LONGEST_LINE >> 20} MiB")
        if rest:
            yield bytes(rest)
        if early:
            raise EOFError


def _chunks(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    head = cast(Any, raw).peek(4)[:4]
    if head[:2] == GZIP_MAGIC:
        yield from _inflated(raw, lambda: zlib.decompressobj(wbits=31), zlib.error)
    elif head == ZSTD_MAGIC:
        import zstandard

        decompressor = zstandard.ZstdDecompressor()
        yield from _inflated(raw, decompressor.decompressobj, zstandard.ZstdError)
    elif path.suffix in {".gz", ".zst"} and head:
        raise DamagedError(f"not {path.suffix} data")
    else:
        while chunk := raw.read(1 << 16):
            yield chunk


def _inflated(raw: IO[bytes], new: Callable[[], Any], broken: type[Exception]) -> Iterator[bytes]:
    """One compressed frame after another."""
    frame, begun = new(), False
    while chunk := raw.read(_CHUNK):
        while chunk:
            begun = True
            try:
                yield frame.decompress(chunk)
            except broken as error:
                raise DamagedError(f"damaged compressed data ({error})") from error
            if not frame.eof:
                break
            chunk, frame, begun = frame.unused_data.lstrip(b"\0"), new(), False
    if begun:
        raise EOFError
