"""Fetching with a hub that is played: the real one is not reachable where tests run."""

import json
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from speccli.core.errors import SpecctlError, UsageError
from speccli.core.preflight.fetch import SOURCE, fetch

SHA = "c0ffee" + "0" * 34


class Hub:
    """What fetch uses of huggingface_hub."""

    def __init__(self, files: dict[str, bytes], error: Exception | None = None) -> None:
        self.files, self.error = files, error
        self.asked: list[Any] = []

    def HfApi(self) -> "Hub":
        return self

    def model_info(self, name: str, revision: str | None, timeout: float) -> SimpleNamespace:
        self.asked.append((name, revision))
        if self.error:
            raise self.error
        return SimpleNamespace(sha=SHA)

    def snapshot_download(
        self, name: str, revision: str, allow_patterns: list[str], local_dir: str
    ) -> None:
        self.asked.append(revision)
        for file, content in self.files.items():
            (Path(local_dir) / file).write_bytes(content)


def _safetensors() -> bytes:
    names = json.dumps({"fc.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    return struct.pack("<Q", len(names)) + names.encode()


def _hub(monkeypatch: pytest.MonkeyPatch, *args: Any) -> Hub:
    hub = Hub(*args)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


WHOLE = {"config.json": b"{}", "model.safetensors": _safetensors()}


def test_the_commit_is_what_is_fetched_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = _hub(monkeypatch, WHOLE)
    found = fetch("org/head", "main", tmp_path / "head")
    assert hub.asked == [("org/head", "main"), SHA]
    assert (found.revision, found.weights) == (SHA, 1)
    assert json.loads((tmp_path / "head" / SOURCE).read_text())["revision"] == SHA
    assert not list(tmp_path.glob(".fetch-*"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("Name or service not known"), "cannot be asked for org/head@v1"),
        (type("RepositoryNotFoundError", (Exception,), {})("404"), "has no org/head@v1"),
        (type("GatedRepoError", (Exception,), {})("401"), "refuses"),
    ],
)
def test_a_hub_that_does_not_give_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    _hub(monkeypatch, WHOLE, error)
    with pytest.raises(SpecctlError, match=words):
        fetch("org/head", "v1", tmp_path / "head")
    assert not list(tmp_path.iterdir())


def test_without_the_library_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SpecctlError, match="huggingface_hub is not installed"):
        fetch("org/head", None, tmp_path / "head")


@pytest.mark.parametrize("files", [{"config.json": b"{}"}, {"model.safetensors": _safetensors()}])
def test_what_is_no_draft_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]
) -> None:
    _hub(monkeypatch, files)
    with pytest.raises(UsageError, match="holds no config"):
        fetch("org/head", None, tmp_path / "head")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there already"):
        fetch("org/head", None, tmp_path)
    with pytest.raises(UsageError, match="no name on the hub"):
        fetch("./head", None, tmp_path / "x")
