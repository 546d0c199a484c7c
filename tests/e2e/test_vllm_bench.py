"""`specctl bench run` on real vLLM servers, and with the real `vllm bench serve`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speccli.core.bench.compare import compare
from speccli.core.bench.form import read
from speccli.core.bench.refused import refused
from speccli.core.bench.results import Result
from tests.e2e.harness import Server, Tally
from tests.support.processes import ROOT, environment, started
from tests.support.real import absent

pytestmark = pytest.mark.real_vllm

TOKENS = 24


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Short ones: the tiny target's tokenizer knows few words."""
    rows = [{"prompt": f"draft {i} verify {i * i} accept"} for i in range(24)]
    path = tmp_path / "words.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def bench(out: Path, *words: str) -> Result:
    """Its result, of a bench that went well."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "speccli", "bench", "run", "--out", str(out), *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(PYTHONPATH=path),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read(out)


def test_acceptance_is_the_servers_own_count_and_arms_are_paired(
    tiny_none: Server, tiny_eagle3: Server, prompts: Path, tmp_path: Path
) -> None:
    arms = ["--arm", f"baseline={tiny_none.url}", "--arm", f"eagle3={tiny_eagle3.url}"]
    load = ["--batch", "4", "--requests", "12", "--max-tokens", str(TOKENS), "--repeats", "2"]
    before = tiny_eagle3.metrics()
    result = bench(tmp_path / "b.json", *arms, *load, "--dataset", str(prompts))
    own = Tally.between(before, tiny_eagle3.metrics())
    assert [row.state for row in result.rows] == ["ok"] * 4
    assert not result.simulated
    plain, drafted = result.rows_of("baseline"), result.rows_of("eagle3")
    counted = [row.acceptance.counters for row in drafted]
    assert sum(each.drafts for each in counted if each) == own.drafts
    assert sum(each.draft_tokens for each in counted if each) == own.draft_tokens
    assert sum(each.accepted_tokens for each in counted if each) == own.accepted
    assert sum(each.generated_tokens or 0 for each in counted if each) == own.generated
    for without, with_ in zip(plain, drafted, strict=True):
        assert without.samples.prompt == with_.samples.prompt
        assert without.samples.text_sha == with_.samples.text_sha  # greedy: the same answers
        assert without.acceptance.tokens_per_step.value == pytest.approx(1.0)
        assert (with_.acceptance.tokens_per_step.value or 0) > 1.0
        assert with_.acceptance.length.value == pytest.approx(
            1 + own.accepted / own.drafts, abs=0.2
        )
        assert set(without.samples.output_tokens) == {TOKENS}
    (cell,) = compare(result).cells
    assert cell.speedup.value is not None
    for arm in result.arms:
        assert arm.server is not None
        blocks, size = arm.server.num_gpu_blocks.value, arm.server.block_size.value
        assert blocks
        assert size
        assert 0 < (arm.server.kv_cache_tokens.value or 0) <= blocks * size


def test_sampling_with_a_draft_is_broken_on_this_vllm_and_the_bench_says_so(
    smollm2_eagle3: Server, tmp_path: Path
) -> None:
    load = ["--arm", f"eagle3={smollm2_eagle3.url}", "--batch", "8", "--requests", "12"]
    load += ["--max-tokens", "48", "--repeats", "1", "--warmup", "0"]
    greedy = bench(tmp_path / "greedy.json", *load)
    sampled = bench(tmp_path / "sampled.json", *load, "--temperature", "0.7")
    assert (greedy.rows[0].acceptance.rate.value or 0) > 0.25
    assert (sampled.rows[0].acceptance.rate.value or 0) < 0.05  # no more: docs/bench.md is old
    assert list(refused(greedy)) == []
    (said,) = refused(sampled)
    assert "at temperature 0.7: measure it with --temperature 0 too" in said


@pytest.fixture
def simulated() -> Iterator[str]:
    """A server that costs nothing while the real tool runs."""
    with started("sim", "--engines", "1", "-k", "3", "--rate", "0", "--port", "0") as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        process.communicate()


def test_vllm_bench_serve_puts_the_load_on(
    vllm_python: Path, tiny_pair_dir: Path, simulated: str, prompts: Path, tmp_path: Path
) -> None:
    has = [str(vllm_python), "-c", "import pandas"]
    if subprocess.run(has, check=False, capture_output=True).returncode:
        absent(f"{vllm_python} has no pandas, which vllm bench serve reads prompts with")
    words = ["--arm", f"eagle3={simulated}", "--batch", "4", "--requests", "12", "--max-tokens"]
    words += [str(TOKENS), "--dataset", str(prompts), "--runner", "vllm-bench", "--repeats", "1"]
    result = bench(tmp_path / "b.json", *words, "--tokenizer", str(tiny_pair_dir / "target"))
    (row,) = result.rows
    assert row.state == "ok"
    assert row.requests == 12
    assert len(set(row.samples.prompt)) == 12
    assert row.acceptance.source == "counters"
    assert row.acceptance.counters is not None
    assert row.acceptance.counters.finished == 12 + 4
    assert row.acceptance.rate.reason is None
