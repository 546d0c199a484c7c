from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.metrics.reader import Reader
from speccli.core.sources.body import HARD, SMALL, WARN, BodyBuffer, bounded

WANTED = b'vllm:num_requests_running{model_name="m"} 3\n'
OTHER = b'vllm:other_thing{model_name="m"} 3\n'


def fed(body: bytes, chunk: int = 65536) -> tuple[bytes, str | None]:
    buffer = BodyBuffer()
    for at in range(0, len(body), chunk):
        buffer.feed(body[at : at + chunk])
    return buffer.finish()


def test_a_small_body_is_kept_as_it_is() -> None:
    body = b"anything \xff at all\n" * 100
    assert fed(body, 7) == (body, None)


def test_of_a_large_body_only_what_is_read_is_kept() -> None:
    body = WANTED + OTHER * 60_000 + WANTED.replace(b"running", b"waiting")
    kept, note = fed(body)
    assert kept == WANTED + WANTED.replace(b"running", b"waiting")
    assert note is None, "2 MB are nothing to speak of"


def test_a_body_over_5_mib_is_said_to_be_large() -> None:
    kept, note = fed(WANTED + OTHER * (WARN // len(OTHER) + 1))
    assert kept == WANTED
    assert note == "TOO_LARGE: a page of 5 MB"


def test_reading_stops_after_32_mib() -> None:
    buffer = BodyBuffer()
    buffer.feed(WANTED)
    while not buffer.stopped:
        buffer.feed((OTHER[:-1].rjust(1000) + b"\n") * 1000)
    kept, note = buffer.finish()
    assert kept == WANTED
    assert note == f"TOO_LARGE: reading stopped after {HARD >> 20} MiB"


def test_a_wanted_line_that_is_too_long_is_left_as_a_line_that_cannot_be_read() -> None:
    long = b'vllm:num_requests_waiting{pid="' + b"x" * 200_000 + b'"} 5\n'
    kept, note = fed(WANTED + long * 30 + OTHER)
    assert note == "TOO_LARGE: a page of 6 MB, 30 line(s) over 64 KiB left out"
    reading = Reader().read("http://h", kept, 0.0)
    assert reading.word == "GARBLED"
    assert reading.engines[0].gauges == {"running": 3.0}


def test_a_line_without_an_end_costs_no_memory() -> None:
    chunk = b"x" * SMALL
    tracemalloc.start()
    try:
        buffer = BodyBuffer()
        buffer.feed(WANTED)
        for _ in range(30):
            buffer.feed(chunk)
        buffer.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * SMALL


@pytest.mark.parametrize("start", [b"<!DOCTYPE html>\n", b'{"detail": "', b"hello\n"])
def test_a_large_body_that_is_no_page_can_still_be_recognised(start: bytes) -> None:
    body = start + b"y" * (2 * SMALL)
    kept, _ = fed(body)
    small = Reader().read("http://h", start + b"y" * 500, 0.0)
    large = Reader().read("http://h", kept, 0.0)
    assert large.word == small.word
    assert 0 < len(kept) < 1000


def test_an_unfinished_last_line_stays_unfinished() -> None:
    body = WANTED + OTHER * 60_000 + b'vllm:other{name="cut in the mid'
    kept, _ = fed(body)
    assert Reader().read("http://h", kept, 0.0).word == "TRUNCATED"


@given(
    st.lists(st.sampled_from([WANTED, OTHER, b"# HELP x\n", b"\n", b"junk"])), st.integers(1, 64)
)
def test_filtering_reads_the_same_however_it_is_cut(lines: list[bytes], chunk: int) -> None:
    body = b"".join(lines)
    buffer = BodyBuffer(_filtering=True)
    for at in range(0, len(body), chunk):
        buffer.feed(body[at : at + chunk])
    kept, _ = buffer.finish()
    whole = b"".join(line + b"\n" for line in body.split(b"\n") if line + b"\n" == WANTED)
    tail = body.rpartition(b"\n")[2] if whole else b""
    assert kept == whole + tail


def test_a_whole_body_goes_through_the_same_limits() -> None:
    assert bounded(WANTED) == (WANTED, None)
    assert bounded(WANTED + OTHER * 60_000) == (WANTED, None)
