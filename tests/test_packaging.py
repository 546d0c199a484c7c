"""What is built and installed: two packages, and nothing else of the checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from speccli import __version__
from tests.support.processes import ROOT, environment

NAMES = {"speccli", "tui", "kernels_check", "draft_training"}
"""Import names that may ever be installed; pyproject.toml says which of them are."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in (*sorted(NAMES), "tests", "docs", "manifests"):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.safetensors", "__snapshots__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out)],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_its_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"specctl-{__version__}-py3-none-any.whl"
    tops = {name.partition("/")[0] for name in names_in(wheel)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert tops - {f"specctl-{__version__}.dist-info"} == packages
    assert {"speccli", "tui"} <= packages <= NAMES


def test_the_wheel_is_typed_and_has_every_module(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(names_in(wheel))
    assert {"speccli/py.typed", "tui/py.typed"} <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "speccli").rglob("*.py")}
    assert modules <= names
    assert {str(p.relative_to(ROOT)) for p in (ROOT / "tui").rglob("*.tcss")} <= names
    assert not [name for name in names if name.endswith((".pyc", ".safetensors"))]


def test_the_command_is_installed_under_its_name(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        points = archive.read(f"specctl-{__version__}.dist-info/entry_points.txt").decode()
        metadata = archive.read(f"specctl-{__version__}.dist-info/METADATA").decode()
    assert "specctl = speccli.start:main" in points
    assert "Requires-Python: >=3.11" in metadata


def test_the_source_archive_can_be_tested_and_holds_no_environment(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
    assert "speccli/main.py" in names
    assert "tests/test_packaging.py" in names
    assert "pyproject.toml" in names
    assert not [name for name in names if name.startswith((".venv", ".vllm", "outputs"))]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name
)
def test_a_lock_file_names_no_index(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--?(index|extra-index|find-links|trusted)", text, re.MULTILINE)


def test_what_the_command_needs_is_locked() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    block = pyproject.partition("dependencies = [")[2].partition("]")[0]
    needed = set(re.findall(r'"([a-z-]+)', block))
    locked = (ROOT / "requirements" / "run.txt").read_text()
    assert needed
    assert not [name for name in needed if not re.search(rf"^{name}==", locked, re.MULTILINE)]
