from __future__ import annotations

import gzip
import json
import random
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from speccli.core.errors import RecordingError
from speccli.core.sources.base import Scrape
from speccli.core.sources.recording import Recorder, Recording, scrape_of
from speccli.core.sources.replay import ReplaySource
from speccli.core.stats.snapshot import Snapshot
from speccli.core.stats.window import Settings, Window
from tests.core.pages import STARTED, Engine, page

AT = STARTED + 1000.25
A, B = "http://a:8000", "http://b:8000"
NAMES = ("r.jsonl", "r.jsonl.gz", "r.jsonl.zst")


def record(path: Path, rounds: list[list[Scrape]], **options: Any) -> Path:
    recorder = Recorder(path, interval_s=1.0, source="scrape", **options)
    for scrapes in rounds:
        recorder.write(scrapes)
    recorder.close()
    return path


def fleet(rounds: int, seed: int = 1) -> list[list[Scrape]]:
    """Two servers, one of which fails now and then and restarts once."""
    rng = random.Random(seed)
    engines = {A: Engine(k=3), B: Engine(k=4)}
    started, out = STARTED, []
    for i in range(rounds):
        batch = []
        for name, engine in engines.items():
            at = AT + i + rng.random() / 10
            engine.serve(rng, steps=8, batch=3)
            if name == B and i == rounds // 2:
                engines[B], started = Engine(k=4), at - 0.5
            if name == B and rng.random() < 0.3:
                batch.append(Scrape(at, name, error="connect refused"))
            else:
                began = started if name == B else STARTED
                info = {"version": "0.32.0", "method": "eagle3", "k": 4} if i == 0 else {}
                body = page(engines[name], started=began)
                batch.append(Scrape(at, name, 200, body, info=info))
        out.append(batch)
    return out


def text_of(path: Path) -> str:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(raw).decode()
    if path.suffix == ".zst":
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return reader.read().decode()
    return raw.decode()


def read(path: Path) -> list[Scrape]:
    return list(Recording(path))


async def through_a_window(path: Path) -> Snapshot:
    source, window = ReplaySource(path), Window(Settings(window_s=None, span_s=None))
    while (scrapes := await source.scrapes()) is not None:
        window.push(scrapes)
    await source.aclose()
    return window.snapshot()


@pytest.mark.parametrize("name", NAMES)
async def test_a_replay_says_what_live_said(tmp_path: Path, name: str) -> None:
    rounds = fleet(20)
    live = Window(Settings(window_s=None, span_s=None))
    for scrapes in rounds:
        live.push(scrapes)
    assert await through_a_window(record(tmp_path / name, rounds)) == live.snapshot()


@settings(max_examples=25, deadline=None)
@given(rounds=st.integers(1, 12), seed=st.integers(0, 10_000), name=st.sampled_from(NAMES))
async def test_a_replay_says_what_live_said_whatever_happened(
    rounds: int, seed: int, name: str
) -> None:
    happened = fleet(rounds, seed)
    live = Window(Settings(window_s=None, span_s=None))
    for scrapes in happened:
        live.push(scrapes)
    with tempfile.TemporaryDirectory() as folder:
        path = record(Path(folder) / name, happened)
        assert await through_a_window(path) == live.snapshot()


@pytest.mark.parametrize(
    "scrape",
    [
        Scrape(AT, A, 200, b""),
        Scrape(AT, A, 200, b"<html><body>sign in</body></html>"),
        Scrape(AT, A, 200, b'{"detail":"Not Found"}'),
        Scrape(AT, A, 200, b"go_goroutines 12\ngo_threads 4\n"),
        Scrape(AT, A, 200, b'vllm:num_requests_running{model_name="m'),
        Scrape(AT, A, 200, b'vllm:num_requests_running 1\nvllm:other{model_name="m'),
        Scrape(AT, A, 200, b"vllm:num_requests_running 1\n", truncated=True),
        Scrape(AT, A, 200, b"vllm:num_requests_running 1\nvllm:num_requests_running 2\n"),
        Scrape(AT, A, 500, b"oops"),
        Scrape(AT, A, 302, note="redirects to login.example.com, perhaps a login"),
        Scrape(AT, A, error="connect refused"),
        Scrape(AT, A, error="certificate not accepted: …"),
    ],
    ids=lambda scrape: (scrape.error or str(scrape.body[-24:]))[:24],
)
async def test_a_replay_gives_the_word_that_live_gave(tmp_path: Path, scrape: Scrape) -> None:
    live = Window(Settings())
    live.push([scrape])
    replayed = await through_a_window(record(tmp_path / "r", [[scrape]]))
    now, then = live.snapshot().engines[0], replayed.engines[0]
    assert (then.state, (then.reason or "")[:9]) == (now.state, (now.reason or "")[:9])


def test_the_file_has_the_form_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    when = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
    body = b"# HELP x y\nvllm:num_requests_running 1\nvllm:not_read 5\n"
    rounds = [
        [
            Scrape(1795975219.25, A, 200, body, info={"version": "0.32.0", "method": "eagle3"}),
            Scrape(1795975219.5, B, error="connect refused"),
        ],
        [Scrape(1795975220.25, A, 200, body, info={"version": "0.32.0", "method": "eagle3"})],
    ]
    record(path, rounds, now=lambda: when)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = "vllm:num_requests_running 1\n"
    assert lines == [
        {
            "schema": "specctl.recording/v1",
            "created": "2026-11-29T18:00:00+00:00",
            "interval_s": 1.0,
            "source": "scrape",
            "simulated": False,
        },
        {
            "at": 1795975219.25,
            "target": A,
            "status": 200,
            "body": kept,
            "info": {"version": "0.32.0", "method": "eagle3"},
        },
        {"at": 1795975219.5, "target": B, "error": "connect refused"},
        {"at": 1795975220.25, "target": A, "status": 200, "body": kept},
    ]


def test_full_keeps_every_line_of_the_page(tmp_path: Path) -> None:
    body = b"# HELP x y\nvllm:not_read 5\n\ngo_goroutines 3\n"
    path = record(tmp_path / "r", [[Scrape(AT, A, 200, body)]], full=True)
    assert read(path)[0].body == body


def test_the_pool_of_a_pod_is_kept(tmp_path: Path) -> None:
    scrapes = [Scrape(AT, A, 200, b"x 1\n", pool="standby"), Scrape(AT, B, 200, b"x 1\n")]
    path = record(tmp_path / "r", [scrapes])
    assert [scrape.pool for scrape in read(path)] == ["standby", None]


@pytest.mark.parametrize("told", [7, "", None, {"a": 1}])
def test_a_pool_that_is_no_name_is_none(told: object) -> None:
    assert scrape_of({"at": AT, "target": A, "body": "x 1\n", "pool": told}).pool is None


@pytest.mark.parametrize("full", [False, True])
def test_no_secret_reaches_the_file(tmp_path: Path, full: bool) -> None:
    line = (
        'vllm:num_requests_running{hf_token="hunter2",url="https://me:hunter2@h/?key=hunter2",'
        'auth="Bearer hunter2hunter2",max_num_batched_tokens="8192"} 3\n'
    )
    scrapes = [
        Scrape(AT, A, 200, line.encode(), info={"draft": "https://me:hunter2@hub/draft"}),
        Scrape(AT, A, 302, note="redirects to https://me:hunter2@h, perhaps a login"),
        Scrape(AT, A, error="cannot GET https://me:hunter2@h/"),
        Scrape(AT, A, 200, b'<form><input name="csrf" value="x">' + b"<p>" * 500 + b"hunter2"),
    ]
    if full:
        scrapes.pop()
    text = record(tmp_path / "r", [scrapes], full=full).read_text()
    assert "hunter2" not in text
    assert 'max_num_batched_tokens=\\"8192\\"' in text


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_can_be_read_before_the_file_is_finished(
    tmp_path: Path, name: str
) -> None:
    recorder = Recorder(tmp_path / name, interval_s=1.0, source="scrape")
    recorder.write([Scrape(AT, A, error="connect refused")])
    recorder.write([Scrape(AT + 1, A, error="connect refused")])
    assert [scrape.at for scrape in read(tmp_path / name)] == [AT, AT + 1]
    recorder.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_cut_anywhere_gives_what_is_whole_and_says_so(tmp_path: Path, name: str) -> None:
    whole = record(tmp_path / name, fleet(6))
    raw, count = whole.read_bytes(), len(read(whole))
    assert count == 12
    cut = tmp_path / f"cut-{name}"
    seen = set()
    for at in range(len(raw) // 3, len(raw), max(1, len(raw) // 40)):
        cut.write_bytes(raw[:at])
        recording = Recording(cut)
        found = len(list(recording))
        seen.add(found)
        assert found < count
        at_a_seam = name == "r.jsonl" and raw[at - 1 : at] in {b"\n", b"}"}
        at_a_seam = at_a_seam or (name.endswith("zst") and raw[at : at + 4] == b"\x28\xb5\x2f\xfd")
        assert recording.note or at_a_seam
        assert "cut line" in (recording.note or "cut line") or "stops early" in recording.note  # type: ignore[operator]
    assert len(seen) > 2


def test_a_last_line_without_a_newline_counts_if_it_is_whole(tmp_path: Path) -> None:
    path = record(tmp_path / "r", fleet(2))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    recording = Recording(path)
    assert len(list(recording)) == 4
    assert recording.note is None


def test_a_cut_inside_a_character_is_a_cut_line(tmp_path: Path) -> None:
    body = 'vllm:num_requests_running{model_name="模型"} 1\n'
    path = record(tmp_path / "r", [[Scrape(AT, A, 200, body.encode())]] * 2)
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.rindex("型".encode()) + 1])
    recording = Recording(path)
    assert len(list(recording)) == 1
    assert recording.note == "the recording ends in a cut line (line 3), which is left out"


HEADER = json.dumps({"schema": "specctl.recording/v1", "interval_s": 1.0}).encode() + b"\n"
GOOD = json.dumps({"at": AT, "target": A, "error": "refused"}).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (GOOD + b"garbage\n" + GOOD, "line 3 is torn and left out"),
        (GOOD + b"\xff\xff\n" + GOOD, "line 3 is torn and left out"),
        (GOOD[:30] + b"\n" + GOOD + GOOD[:9] + GOOD + GOOD, "2 lines are torn"),
        (GOOD + b"x\n" + GOOD + b'{"at": 12', "line 5), which is left out; line 3 is torn"),
    ],
)
def test_a_torn_line_is_left_out_and_named(tmp_path: Path, content: bytes, note: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(HEADER + content)
    recording = Recording(path)
    assert len(list(recording)) == 2
    assert note in (recording.note or "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hello\n", "not a recording: its first line is no header"),
        (b"\x00\x01\xff\xfe binary", "not a recording"),
        (b"[" * 100_000, "not a recording"),
        (b'{"at": 1}\n', "not a recording"),
        (b"null\n", "not a recording"),
        (b'{"schema": "specctl.recording/v2"}\n', "'specctl.recording/v2'; this specctl reads"),
        (b'{"schema": "specctl.status/v1"}\n', "'specctl.status/v1'"),
        (b'{"schema": "specctl.recording/v1", "interval_s": 0}\n', "interval_s 0"),
        (b'{"schema": "specctl.recording/v1", "interval_s": "1s"}\n', "interval_s '1s'"),
        (b'{"schema": "specctl.recording/v1", "interval_s": 1e999}\n', "interval_s inf"),
        (b'{"schema": "specctl.recording/v1", "interval_s": 1' + b"0" * 400 + b"}\n", "interval_s"),
        (HEADER + GOOD + b"garbage\n" * 20 + GOOD, "line 15: not JSON"),
        (HEADER + b"[]\n" + GOOD, "line 2: not a scrape: not an object"),
        (HEADER + b'{"target": "http://a"}\n', "line 2: not a scrape: 'at' is missing"),
        (HEADER + b'{"at": 1}\n', "line 2: not a scrape: 'target' is missing"),
        (HEADER + b'{"at": 1, "target": "http://a"}\n', "line 2: not a scrape: 'body' is missing"),
        (HEADER + b'{"at": "1", "target": "a", "body": ""}\n' + GOOD, "line 2: not a scrape: at"),
        (HEADER + b'{"at": NaN, "target": "a", "body": ""}\n', "line 2: not a scrape: at"),
        (HEADER + b'{"at": 1e999, "target": "a", "body": ""}\n', "line 2: not a scrape: at"),
        (HEADER + b'{"at": 1795975219250, "target": "a", "body": ""}\n', "not a time in Unix sec"),
        (HEADER + b'{"at": 1' + b"0" * 400 + b', "target": "a", "body": ""}\n', "line 2"),
        (HEADER + b'{"at": 1, "target": "", "body": ""}\n', "line 2: not a scrape: target"),
        (HEADER + b'{"at": 1, "target": "a", "body": 5}\n', "line 2: not a scrape: status"),
        (HEADER + b'{"at": 1, "target": "a", "status": "200", "body": ""}\n', "line 2"),
        (HEADER + b"[" * 100_000 + b"\n" + GOOD, "line 2"),
        (b"\x1f\x8b not gzip at all", "damaged compressed data"),
        (b"\x28\xb5\x2f\xfd not zstd at all", "damaged compressed data"),
    ],
    ids=lambda part: repr(part)[:36],
)
def test_what_is_no_recording_is_refused_in_one_line(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 900


def test_a_damaged_archive_names_the_line_it_was_read_to(tmp_path: Path) -> None:
    path = record(tmp_path / "r.gz", fleet(30))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 40] = b"\x00" * 40
    path.write_bytes(raw)
    with pytest.raises(RecordingError, match=r"r\.gz, line \d+: "):
        read(path)


@pytest.mark.parametrize("name", ["r.gz", "r.zst"])
def test_a_name_that_promises_compression_is_held_to_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HEADER)
    with pytest.raises(RecordingError, match="is not|not .* data"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["r.gz", "r.zst"])
def test_compressed_data_is_known_by_its_content_too(tmp_path: Path, name: str) -> None:
    path = record(tmp_path / name, fleet(2))
    renamed = path.rename(tmp_path / "renamed.jsonl")
    assert len(read(renamed)) == 4


def test_several_archives_in_a_row_are_one(tmp_path: Path) -> None:
    path = tmp_path / "r.gz"
    path.write_bytes(gzip.compress(HEADER) + gzip.compress(GOOD) + gzip.compress(GOOD) + b"\0" * 64)
    assert len(read(path)) == 2


@pytest.mark.parametrize(
    ("path", "words"),
    [("nowhere.jsonl", "No such file"), (".", "Is a directory"), ("r/x", "Not a directory")],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "r").write_text("x")
    with pytest.raises(RecordingError, match=words):
        Recording(tmp_path / path)


@pytest.mark.parametrize(
    ("path", "words"),
    [("no/such/folder/r", "No such file"), (".", "Is a directory")],
)
def test_a_place_that_cannot_be_written_says_why(tmp_path: Path, path: str, words: str) -> None:
    with pytest.raises(RecordingError, match=words):
        Recorder(tmp_path / path, interval_s=1.0, source="scrape")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_full_disk_is_one_clear_line(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"full{suffix}"
    path.symlink_to("/dev/full")
    with pytest.raises(RecordingError, match=r"cannot write .*full.*: No space left on device"):
        Recorder(path, interval_s=1.0, source="scrape")


def test_a_disk_that_fills_later_keeps_what_it_took(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", interval_s=1.0, source="scrape")
    recorder.write(fleet(1)[0])
    recorder._raw.close()
    recorder._raw = recorder._out = Path("/dev/full").open("wb")  # noqa: SIM115
    recorder._flush = recorder._raw.flush
    with pytest.raises(RecordingError, match="2 scrapes are in it|3 scrapes are in it"):
        recorder.write(fleet(1)[0][:1])
    recorder.close()
    assert len(read(tmp_path / "r")) == 2


def test_facts_of_the_wrong_type_are_no_facts(tmp_path: Path) -> None:
    path = tmp_path / "r"
    line = {
        "at": AT,
        "target": A,
        "status": 200,
        "body": "",
        "note": ["x"],
        "info": {"version": 5, "method": ["x"], "k": "4", "draft": {"a": 1}},
    }
    path.write_bytes(HEADER + json.dumps(line).encode() + b"\n")
    (scrape,) = read(path)
    assert scrape.info == {}
    assert scrape.note is None


def test_halves_of_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(HEADER + b'{"at": 1, "target": "http://\\ud800", "error": "\\udfff"}\n')
    (scrape,) = read(path)
    (scrape.target + str(scrape.error)).encode()


async def test_a_round_is_every_target_once_within_an_interval(tmp_path: Path) -> None:
    times = [(0.0, A), (0.1, B), (1.0, A), (1.6, B), (2.0, A), (2.05, B)]
    rounds = [[Scrape(AT + at, name, error="x") for at, name in times]]
    source = ReplaySource(record(tmp_path / "r", rounds))
    sizes = []
    while (scrapes := await source.scrapes()) is not None:
        sizes.append(len(scrapes))
    assert sizes == [2, 2, 2]
    await source.aclose()


async def test_a_recording_of_a_simulation_says_so(tmp_path: Path) -> None:
    path = record(tmp_path / "r", fleet(1), simulated=True)
    assert ReplaySource(path).simulated
    assert ReplaySource(path, pace=10.0).interval_s == pytest.approx(0.1)
