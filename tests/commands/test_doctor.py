"""`specctl doctor`, as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from speccli.core.doctor.base import Check
from speccli.core.sim.process import simulated_fleet
from speccli.core.views.doctor import shown, total
from speccli.main import app

Run = Callable[..., Result]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("SPECCTL_VLLM_PYTHON", raising=False)
    return lambda *words: CliRunner().invoke(app, ["doctor", *words])


def states(result: Result, name: str) -> list[str]:
    return [c["state"] for c in json.loads(result.stdout)["checks"] if c["name"] == name]


def test_without_a_source_it_looks_at_this_machine(doctor: Run) -> None:
    result = doctor("-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    said = json.loads(result.stdout)
    assert (said["schema"], said["exit"], said["verdict"]) == ("specctl.doctor/v1", 0, "ok")
    assert states(result, "Python") == ["ok"]
    assert states(result, "sources") == ["skip"]
    assert set(said["checks"][0]) == {"area", "name", "state", "what", "why", "fix", "subject"}


def test_each_check_is_a_glyph_a_word_and_the_fix(doctor: Run) -> None:
    result = doctor("--endpoint", NOWHERE, "--deadline", "1s")
    assert result.exit_code == 3
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "machine"
    assert NOWHERE in lines
    (reach,) = [line for line in lines if "connect refused" in line]
    assert reach.startswith("  ○ unknown reach")
    assert "→ is it running" in reach
    assert lines[-1].startswith("1 unknown, ")


def test_a_running_engine(doctor: Run) -> None:
    with simulated_fleet(1, ()) as urls:
        result = doctor("--endpoint", urls[0], "-o", "json")
    assert result.exit_code == 1  # its buckets are vLLM's own, too coarse for a queue wait
    for name in ("metrics", "engine", "speculation", "one process", "clock", "scrape"):
        assert states(result, name) == ["ok"], name


def test_a_configured_source_is_looked_at(doctor: Run, tmp_path: Path) -> None:
    (tmp_path / "specctl.toml").write_text(f'[profile.prod]\nendpoint = "{NOWHERE}"\n')
    assert states(doctor("-o", "json"), "sources") == ["skip"]
    result = doctor("--profile", "prod", "--deadline", "1s", "-o", "json")
    assert (result.exit_code, states(result, "reach")) == (3, ["unknown"])


def test_a_broken_configuration_is_a_finding_and_no_usage_error(
    doctor: Run, tmp_path: Path
) -> None:
    (tmp_path / "specctl.toml").write_text("flor = 0.3\n")
    result = doctor("-e", NOWHERE, "-o", "json")
    assert (result.exit_code, states(result, "specctl.toml")) == (2, ["fail"])
    assert states(result, "sources") == ["skip"]


def test_an_unknown_variable_is_a_warning_told_once(
    doctor: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCTL_ENDPIONT", NOWHERE)
    result = doctor("-o", "json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert states(result, "variables") == ["warn", "ok"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--endpoint", "ftp://host"), id="bad-url"),
        pytest.param(("--deadline", "soon"), id="bad-duration"),
        pytest.param(("--nonsense",), id="unknown-flag"),
    ],
)
def test_what_is_mistyped_is_a_usage_error(doctor: Run, words: tuple[str, ...]) -> None:
    result = doctor(*words)
    assert (result.exit_code, result.stdout) == (64, "")
    assert "specctl: error: " in result.stderr


def test_of_many_servers_those_that_are_fine_have_one_line_each() -> None:
    checks = [
        Check("source", name, "ok", "", subject=f"http://{i}") for i in range(9) for name in "abc"
    ]
    checks.append(Check("source", "clock", "warn", "off", subject="http://8"))
    lines = shown(checks)
    assert len(lines) == 9
    assert (lines[0].what, lines[-1].state) == ("3 checks", "warn")
    assert total(checks) == "1 warn, 27 ok"
    assert shown(checks[:12]) == checks[:12]
