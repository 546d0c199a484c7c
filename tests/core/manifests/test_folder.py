"""`--out`: whole or not at all, others' files kept, the same bytes again."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from speccli.core.errors import UsageError
from speccli.core.manifests import RenderOptions
from speccli.core.manifests.folder import write
from speccli.core.manifests.render import KUSTOMIZATION, files, render
from speccli.core.recipes.load import load
from tests.support.manifests import HUB

PLAIN = RenderOptions(namespace="llm")


def texts(options: RenderOptions = PLAIN) -> dict[str, str]:
    return files(render(load(HUB), options))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_folder_is_what_kustomize_takes(tmp_path: Path) -> None:
    held = os.umask(0o027)
    try:
        paths = write(tmp_path / "deep" / "chat", texts())
    finally:
        os.umask(held)
    kustomization = yaml.safe_load((tmp_path / "deep" / "chat" / KUSTOMIZATION).read_text())
    assert {path.name for path in paths} == {*kustomization["resources"], KUSTOMIZATION}
    assert kustomization["resources"][0].startswith("serviceaccount-")
    assert (paths[0].stat().st_mode & 0o777, paths[0].parent.stat().st_mode & 0o777) == (
        0o640,
        0o750,
    )


def test_a_second_writing_changes_no_byte_and_no_time(tmp_path: Path) -> None:
    folder = tmp_path / "chat"
    write(folder, texts())
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    write(folder, texts())
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert before == after


def test_what_is_no_more_is_removed_and_what_others_wrote_stays(tmp_path: Path) -> None:
    folder = tmp_path / "chat"
    write(folder, texts(replace(PLAIN, autoscaler="hpa")))
    (folder / "patch.yaml").write_text("mine\n")
    write(folder, texts())
    names = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert "scaledobject" in names
    assert not names & {"horizontalpodautoscaler", "prometheus"}
    assert (folder / "patch.yaml").read_text() == "mine\n"


def test_others_files_are_not_replaced_unless_told(tmp_path: Path) -> None:
    folder = tmp_path / "chat"
    folder.mkdir()
    (folder / KUSTOMIZATION).write_text("resources: []\n")
    with pytest.raises(UsageError, match="not of specctl's making"):
        write(folder, texts())
    assert contents(folder) == {KUSTOMIZATION: "resources: []\n"}
    write(folder, texts(), force=True)
    assert contents(folder) == texts()


def test_another_deployments_folder_is_not_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "chat"
    write(folder, texts(replace(PLAIN, name="code")))
    with pytest.raises(UsageError, match="holds another deployment: for code"):
        write(folder, texts())
    write(folder, texts(), force=True)
    assert contents(folder) == texts()


def test_a_disk_that_is_full_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "chat"
    write(folder, texts())
    before = contents(folder)
    other = {name: text + "# more\n" for name, text in texts().items()}

    def full(self: Path, mode: int) -> None:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "chmod", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write(folder, other)
    monkeypatch.undo()
    assert contents(folder) == before


def test_a_new_folder_is_not_left_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(UsageError):
        write(tmp_path / "chat", texts())
    assert [*tmp_path.iterdir()] == []


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "chat").write_text("")
    with pytest.raises(UsageError, match="is no folder"):
        write(tmp_path / "chat", texts())
    with pytest.raises(UsageError, match="cannot write"):
        write(tmp_path / "chat" / "inner", texts())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_it(tmp_path: Path) -> None:
    folder = tmp_path / "chat"
    write(folder, texts(replace(PLAIN, pools=("structured",), autoscaler="hpa")))
    ran = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    built = {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(ran.stdout)
    }
    options = replace(PLAIN, pools=("structured",), autoscaler="hpa")
    for each in render(load(HUB), options).objects:
        assert built.pop((each["kind"], each["metadata"]["name"])) == each
    assert built == {}


@pytest.mark.parametrize("folder", ["/proc/chat", "/proc"], ids=["new", "there"])
def test_an_error_names_what_was_to_be_written_and_no_temporary_file(folder: str) -> None:
    """Nobody makes a file or a folder there, not even root."""
    with pytest.raises(UsageError) as refused:
        write(Path(folder), texts())
    said = refused.value.message.removeprefix("cannot write ").partition(": ")[0]
    assert said in {"/proc/chat", *(f"/proc/{name}" for name in texts())}
