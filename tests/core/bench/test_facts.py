"""What servers say of their memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from speccli.core.bench.facts import facts, known, log_of, with_memory
from speccli.core.bench.gpu import Look
from speccli.core.errors import UsageError
from speccli.core.sim.server import SimServer
from tests.core.bench.world import bench, fleet, replica

PAGE = (
    'vllm:cache_config_info{block_size="128",engine="0",kv_cache_memory_bytes="1073741824",'
    'kv_cache_size_tokens="45056",num_gpu_blocks="352"} 1.0'
)
OLDER = (
    'vllm:cache_config_info{block_size="16",kv_cache_memory_bytes="None",num_gpu_blocks="100"} 1'
)
LOG = """(Worker) INFO [gpu_model_runner.py] Model loading took 15.0157 GiB memory and 2.51 seconds
(Worker) INFO [gpu_worker.py] Available KV cache memory: 16.00 GiB
(EngineCore) INFO [kv_cache_utils.py] GPU KV cache size: 131,072 tokens, Maximum concurrency: 64.00x
(Worker) INFO [gpu_model_runner.py] Graph capturing finished in 6 secs, took 0.53 GiB
"""


def test_the_metrics_tell_of_the_cache_and_the_log_of_the_rest() -> None:
    told = facts([PAGE], LOG)
    assert told.kv_cache_tokens.value == 45_056
    assert (told.num_gpu_blocks.value, told.block_size.value) == (352, 128)
    assert told.kv_cache_bytes.value == 2**30
    assert told.weights_bytes.value == pytest.approx(15.0157 * 2**30)
    assert told.cuda_graph_bytes.value == pytest.approx(0.53 * 2**30)


def test_an_older_page_leaves_tokens_to_the_log_or_to_its_blocks() -> None:
    assert facts([OLDER], LOG).kv_cache_tokens.value == 131_072
    without = facts([OLDER], None)
    assert without.kv_cache_tokens.value == 1600
    assert without.weights_bytes.value is None
    assert "--server-log" in (without.weights_bytes.reason or "")
    assert facts([OLDER], "nothing of it").weights_bytes.reason == "its log does not say"


def test_engines_of_one_server_add_up() -> None:
    told = facts([PAGE, PAGE], None)
    assert told.kv_cache_tokens.value == 2 * 45_056
    assert told.block_size.value == 128
    assert told.kv_cache_bytes.value == 2**30  # of one GPU


def test_a_server_that_tells_nothing_is_not_one_with_nothing() -> None:
    told = facts([], None)
    assert not known(told)
    assert told.num_gpu_blocks.reason


def test_gpu_memory_is_what_was_not_there_before_the_start() -> None:
    before = [Look("0", 0.0, 70.0, 345.0, 500.0), Look("1", 0.0, 70.0, 345.0, 0.0)]
    after = [Look("0", 0.0, 70.0, 345.0, 70_500.0), Look("1", 0.0, 70.0, 345.0, 0.0)]
    assert with_memory(facts([], None), before, after).gpu_memory_bytes.value == 70_000 * 2**20
    remote = with_memory(facts([], None), None, None).gpu_memory_bytes
    assert (remote.value, remote.reason) == (None, "not started here")


async def test_an_arm_has_what_its_log_says(tmp_path: Path) -> None:
    log = tmp_path / "eagle3.log"
    log.write_text(LOG)
    async with SimServer(fleet(replica())) as server:
        urls = {"eagle3": server.urls[0]}
        result = await bench(tmp_path / "b.json", urls, server_log=[f"eagle3={log}"])
    told = result.arm("eagle3").server
    assert told is not None
    assert told.weights_bytes.value == pytest.approx(15.0157 * 2**30)


@pytest.mark.parametrize("text", ["eagle3", "other=x.log"])
async def test_a_log_of_no_arm_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--server-log"):
        await bench(tmp_path / "b.json", {"eagle3": "http://127.0.0.1:9"}, server_log=[text])


def test_a_log_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read .*none.log"):
        log_of(tmp_path / "none.log")
