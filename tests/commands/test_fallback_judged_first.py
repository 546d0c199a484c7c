"""`specctl fallback`: what cannot be is said before a cluster is asked."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from speccli.core.errors import ExitCode
from speccli.core.kube.client import Cluster
from speccli.main import app


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(*_: object) -> NoReturn:
        raise AssertionError("the cluster was asked")

    monkeypatch.setattr(Cluster, "connect", asked)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.json").write_text("{}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan chat --batch -3", "--batch -3: at least 1"),
        ("plan chat --batch 0", "--batch 0: at least 1"),
        ("plan chat --finding NOPE", "no finding of that name"),
        ("plan chat --rung=", "'--rung': it is empty"),
        ("plan chat --bench empty.json", "is not a bench result"),
        ("plan ../chat --to local", "no name of a deployment"),
        ("plan chat/../.. --to local", "no name of a deployment"),
        ("apply chat --rung=", "it is empty"),
        ("apply chat --dry-run --out x", "two ways to see a move"),
        ("apply chat --proposal ab --rung ngram", "does not go with --proposal"),
        ("apply chat --to local --proposal ab", "does not go with --proposal"),
        ("restore chat --dry-run --out x", "two ways to see a move"),
        ("restore chat --window 0s", "no time to compare in"),
        ("restore chat --window 900ms", "no time to compare in"),
        ("restore chat --window 10s --canary-for 70s", "no time to compare in"),
        ("restore chat --window 1h", "no time to compare in"),
        ("restore chat --dry-run --canary-for 0s", "no time to compare in"),
        ("watch chat --bench empty.json", "is not a bench result"),
        ("watch chat --alertmanager ftp://x", "--alertmanager names no http(s) host"),
    ],
)
def test_a_bad_argument_is_refused_at_once(words: str, said: str) -> None:
    result = CliRunner().invoke(app, ["fallback", *words.split()])
    assert result.exit_code == ExitCode.USAGE, result.stderr
    assert said in result.stderr
