"""`--runner`: what another tool measures, with what only specctl can add."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.aiperf_profile import AiperfProfile
from speccli.core.bench.asked import exit_code
from speccli.core.bench.by_tool import ByTool
from speccli.core.bench.datasets import Prompt
from speccli.core.bench.form import read
from speccli.core.bench.imports import read_levels
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Result
from speccli.core.bench.run import run
from speccli.core.bench.vllm_serve import VllmServe
from speccli.core.config import Settings
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.sim.server import SimServer
from tests.core.bench.world import fleet, plan, replica
from tests.support import bench_tool

URL = {"baseline": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def _tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "python-with-vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {bench_tool.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("SPECCTL_VLLM_PYTHON", str(program))


async def measured(out: Path, urls: dict[str, str], **given: Any) -> Result:
    """A bench by `vllm bench serve`."""
    made = plan(out, urls, runner="vllm-bench", **given)
    return await run(made.spec, Progress(), made.before, ByTool(VllmServe.here(), made.spec))


async def test_rows_are_the_tools_and_prompts_are_named(tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    async with SimServer(fleet(replica("none"), replica())) as server:
        urls = dict(zip(("baseline", "eagle3"), server.urls, strict=True))
        result = await measured(out, urls)
    assert read(out) == result
    assert result.provenance.runner == "vllm-bench"
    assert result.load.window == "whole"
    assert [row.state for row in result.rows] == ["ok", "ok"]
    plain, drafted = result.rows
    recorded = json.loads(bench_tool.RECORDED.read_text())
    assert plain.output_tokens_per_s.value == recorded["output_throughput"]
    names = [prompt.id for prompt in plan(tmp_path / "x.json", URL).spec.datasets[0].prompts]
    assert list(plain.samples.prompt) == names[:6]
    assert plain.samples.prompt == drafted.samples.prompt
    # The file's counts, which nobody else is in; steps and counters are what specctl read.
    assert drafted.acceptance.rate.value == pytest.approx(379 / 642)
    assert drafted.acceptance.rate.reason is None
    assert drafted.acceptance.tokens_per_step.state == "value"
    assert drafted.acceptance.counters is not None
    assert drafted.acceptance.counters.finished == 6 + 2
    assert exit_code(result) is ExitCode.OK


async def test_traffic_of_others_is_seen_though_the_tool_cannot(tmp_path: Path) -> None:
    async with SimServer(fleet(replica(rate=40.0))) as server:
        result = await measured(tmp_path / "b.json", {"eagle3": server.urls[0]}, requests="12")
    (row,) = result.rows
    assert row.state == "contaminated"
    assert "not ours" in (row.reason or "")
    assert row.acceptance.rate.state == "unknown"


async def test_a_tool_that_fails_is_a_failed_row_with_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "OSError: cannot load tokenizer m")
    async with SimServer(fleet(replica())) as server:
        result = await measured(tmp_path / "b.json", {"eagle3": server.urls[0]})
    (row,) = result.rows
    assert row.state == "failed"
    assert row.reason == "vllm bench serve ended with 1: OSError: cannot load tokenizer m"
    assert exit_code(result) is ExitCode.CRITICAL


async def test_a_tool_that_hangs_is_ended_with_the_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "1")
    logs = tmp_path / "logs"
    async with SimServer(fleet(replica())) as server:
        urls = {"eagle3": server.urls[0]}
        task = asyncio.create_task(measured(tmp_path / "b.json", urls, logs=logs))
        await asyncio.to_thread(_wait_for, lambda: bool(list(logs.glob("*.log"))))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert _children_of(os.getpid(), "bench_tool") == []


def _wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)


def _children_of(parent: int, word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(path.with_name("cmdline").read_text())
        except OSError:
            continue
    return [line for line in found if word in line]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"requests": None, "seconds": "5s"}, "--seconds", id="no-window-of-time"),
        pytest.param({"keep_texts": True}, "--keep-texts", id="no-texts"),
        pytest.param({"dcgm": "http://127.0.0.1:9400"}, "--dcgm", id="no-gpu"),
        pytest.param({"request_seeds": True}, "--request-seeds", id="no-seeds"),
    ],
)
def test_what_the_tool_cannot_do_is_refused(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"vllm-bench has no way to do this: {said}"):
        plan(tmp_path / "b.json", URL, runner="vllm-bench", **given)


def test_prompts_of_several_messages_and_passwords_are_refused(tmp_path: Path) -> None:
    rows = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(rows))
    with pytest.raises(UsageError, match="more than one message"):
        plan(tmp_path / "b.json", URL, runner="vllm-bench", dataset=[str(path)])
    with pytest.raises(UsageError, match="a user and password"):
        plan(tmp_path / "b.json", {"a": "http://u:p@127.0.0.1:9"}, runner="vllm-bench")


def test_aiperf_has_no_way_to_send_a_token_and_we_count_no_prompts(tmp_path: Path) -> None:
    access = Settings(token="t")
    with pytest.raises(UsageError, match="aiperf has no way to do this: --token"):
        plan(tmp_path / "b.json", URL, runner="aiperf", settings=access)
    plan(tmp_path / "b.json", URL, runner="vllm-bench", settings=access)
    with pytest.raises(UsageError, match="--tokenizer is for other runners"):
        plan(tmp_path / "b.json", URL, tokenizer="t")


def test_what_aiperf_sent_is_told_by_its_text() -> None:
    folder = bench_tool.RECORDED.parent / "aiperf-0.13.0"
    sent = json.loads((folder / "inputs.json").read_text())["data"]
    texts = [each["payloads"][0]["messages"][0]["content"] for each in sent]
    prompts = [Prompt(f"p{i}", ({"role": "user", "content": t},)) for i, t in enumerate(texts)]
    (level,) = read_levels(folder)
    names = AiperfProfile("aiperf").prompt_ids(level.samples.prompt, prompts)
    assert set(names) == {f"p{i}" for i in range(24)}


def test_aiperf_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SpecctlError, match="aiperf is not on this machine"):
        AiperfProfile.here()


def test_without_pandas_it_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho False\n")
    bare.chmod(0o755)
    monkeypatch.setenv("SPECCTL_VLLM_PYTHON", str(bare))
    with pytest.raises(SpecctlError, match="lacks pandas"):
        VllmServe.here()
