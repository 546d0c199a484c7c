"""One Ctrl-C ends a command while a name server keeps a thread that nothing can interrupt."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from speccli.core.sources.recording import Recording
from tests.support.engines import serving
from tests.support.processes import ROOT, started

HANGS_S = 300
ENDS_S = 60.0
"""A few seconds, on a machine that is busy."""
SILENT = "http://silent.invalid:8000"
PATCH = f"""
import pathlib, socket, time
answering = socket.getaddrinfo
def getaddrinfo(host, *args, **named):
    if host in ("silent.invalid", b"silent.invalid"):
        (pathlib.Path(__file__).parent / "asked").touch()
        time.sleep({HANGS_S})
    return answering(host, *args, **named)
socket.getaddrinfo = getaddrinfo
"""


@pytest.fixture
def name_server(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH; in it `asked` appears once a thread hangs."""
    place = tmp_path / "patched"
    place.mkdir()
    (place / "sitecustomize.py").write_text(PATCH)
    return place


def ended(
    name_server: Path, folder: Path, *words: str, ready: Callable[[], bool] = lambda: True
) -> str:
    """The exit code and what was said, of a command told once while the name server is silent."""
    path = f"{name_server}:{ROOT}"
    with started(*words, cwd=folder, PYTHONPATH=path) as process:
        try:
            patience = time.monotonic() + ENDS_S
            while not (name_server / "asked").exists() or not ready():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < patience
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=ENDS_S)
        finally:
            process.kill()
    return f"{process.returncode}: {said}"


def test_a_recording_is_kept_and_said(name_server: Path, tmp_path: Path) -> None:
    with serving() as served:
        words = ("record", "r", "-e", served.url, "-e", SILENT, "--interval", "0.1s")
        more = ("--deadline", "1s")
        said = ended(
            name_server, tmp_path, *words, *more, ready=lambda: served.asked.count("/metrics") > 5
        )
    scrapes = list(Recording(tmp_path / "r"))
    assert said == f"0: specctl: {len(scrapes)} scrapes in r\n"
    assert sum(scrape.error is None for scrape in scrapes) >= 4


@pytest.mark.parametrize(
    ("words", "last"),
    [
        pytest.param(
            ("baseline", "record", "b", "-e", SILENT, "--deadline", "2s"),
            "error: nothing kept, stopped after",
            id="baseline",
        ),
        pytest.param(
            ("alert", "watch", "-e", SILENT, "--listen", "none"), "interrupted", id="watch"
        ),
        pytest.param(
            ("bench", "run", "--arm", f"a={SILENT}", "--batch", "1", "--out", "b.json"),
            "interrupted: nothing was measured yet",
            id="bench",
        ),
    ],
)
def test_others_are_130_with_their_line(
    words: tuple[str, ...], last: str, name_server: Path, tmp_path: Path
) -> None:
    kept = () if words[0] == "bench" else ("--state", str(tmp_path / "state"))
    said = ended(name_server, tmp_path, *words, *kept)
    assert said.startswith("130: ")
    assert f"specctl: {last}" in said
