"""What servers said when they failed, and what is made of it.

The files of tests/data/vllm-crashes are logs of real vLLM 0.32 servers, started with broken
flags, pairs, models and surroundings; traceback bodies are left out, and paths made general. What
only a GPU can say is quoted from vLLM's source and from public threads.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from speccli.core.engines.vllm_crash import diagnose, last_error

FOLDER = Path(__file__).parents[2] / "data" / "vllm-crashes"
START = "INFO 11-29 10:00:00 [gpu_model_runner.py:5040] Starting to load model m...\n"
DRAFT = START + "INFO 11-29 10:00:40 [gpu_model_runner.py:5071] Loading drafter model...\n"
LOADED = DRAFT + "INFO 11-29 10:01:00 [gpu_model_runner.py:5150] Model loading took 70.2 GiB\n"
GRAPHS = LOADED + "Capturing CUDA graphs (decode, FULL):  40%|████      | 4/10\n"
UP = LOADED + "INFO:     Application startup complete.\n"
OOM = (
    "(EngineCore pid=9) ERROR 11-29 10:02:00 [core.py:1510] torch.OutOfMemoryError: CUDA out of "
    "memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.2 GiB"
)

SEEN = {
    "unknown-flag": ("UNKNOWN_FLAG", "this vLLM knows no --num-speculative-token 3"),
    "bad-value": ("BAD_VALUE", "--kv-cache-dtype: invalid choice: 'fp9'"),
    "spec-unknown-key": ("SPEC_CONFIG", "does not take num_speculative_token in"),
    "spec-not-json": ("SPEC_CONFIG", "is no JSON: {method: eagle3}"),
    "spec-unknown-method": ("SPEC_CONFIG", "does not take method in"),
    "ngram-no-lookup": ("SPEC_CONFIG", "does not take ngram_prompt_lookup_max in"),
    "draft-hidden": ("DRAFT_MISMATCH", "weights of shape [64, 192]"),
    "draft-target-hidden": ("DRAFT_MISMATCH", "the configuration has [64, 384]"),
    "draft-vocab": ("DRAFT_MISMATCH", "AssertionError in weight_loader (vocab_parallel_embed"),
    "draft-arch": ("ARCH_UNKNOWN", "LlamaForCausalLMEagle4"),
    "draft-parallel": ("DRAFT_MISMATCH", "no mask token"),
    "draft-missing": ("MODEL_NOT_FOUND", "there is no model /models/nowhere"),
    "draft-graphs": ("DRAFT_GRAPHS", "before 0.26 (vllm#47561)"),
    "draft-tp": ("DRAFT_TP", "neither 1 nor the target's"),
    "eagle3-unsupported": ("WEIGHTS_MISMATCH", "OPTForCausalLM has no place for"),
    "arch-unknown": ("ARCH_UNKNOWN", "Llama9ForCausalLM"),
    "model-type-unknown": ("ARCH_UNKNOWN", "no model type llama9"),
    "draft-model-vocab": ("DRAFT_VOCAB", "vocabularies of different size"),
    "kv-too-small": ("KV_CACHE_TOO_SMALL", "4000000 tokens needs 3.81 GiB of KV cache, and 1.0"),
    "truncated-weights": ("WEIGHTS_DAMAGED", "missing or cut short"),
    "no-weights": ("WEIGHTS_DAMAGED", "missing or cut short"),
    "wrong-shape": ("WEIGHTS_MISMATCH", "start (0) + length (512) exceeds dimension size (128)"),
    "tp-2": ("TENSOR_PARALLEL", "cannot be split over so many GPUs"),
    "max-model-len": ("MAX_MODEL_LEN", "--max-model-len 100000 is more than"),
    "port-uri": ("SERVICE_LINK", "VLLM_PORT=tcp://10.43.0.17:8000"),
    "no-tokenizer": ("TOKENIZER", "has no tokenizer"),
    "offline": ("HUB_UNREACHABLE", "not in the cache"),
    "no-network": ("HUB_UNREACHABLE", "not in the cache"),
    "gated-403": ("MODEL_GATED", "is gated"),
    "gated-401": ("MODEL_GATED", "is gated"),
    "repo-missing": ("MODEL_NOT_FOUND", "no such model"),
    "bad-token": ("HUB_TOKEN", "does not accept the token"),
    "quantization": ("QUANTIZATION", "not that of the weights"),
}
"""Log, code, and words of the cause."""


@pytest.mark.parametrize("name", SEEN)
def test_a_server_that_was_made_to_fail(name: str) -> None:
    code, cause = SEEN[name]
    found = diagnose((FOLDER / f"{name}.log").read_text())
    assert found is not None
    assert found.code == code
    assert cause in found.cause
    assert found.fix
    assert found.evidence
    assert "{" not in found.fix.replace('{"method"', "")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("autoregressive/speculator.py", "dflash/speculator.py", "CUDA_ERROR"),
        ("in capture", "in propose", "CUDA_ERROR"),
        ("\n", "\r\n", "DRAFT_GRAPHS"),
    ],
)
def test_only_the_capture_of_a_draft_that_is_made_by_token(old: str, new: str, code: str) -> None:
    found = diagnose((FOLDER / "draft-graphs.log").read_text().replace(old, new))
    assert found is not None
    assert found.code == code


def test_every_log_is_judged() -> None:
    assert {path.stem for path in FOLDER.glob("*.log")} == set(SEEN)


@pytest.mark.parametrize(
    ("log", "code"),
    [
        pytest.param(START + OOM, "GPU_OOM_WEIGHTS", id="weights"),
        pytest.param(DRAFT + OOM, "GPU_OOM_DRAFT", id="draft"),
        pytest.param(LOADED + OOM, "GPU_OOM_KV", id="kv"),
        pytest.param(GRAPHS + OOM, "GPU_OOM_GRAPHS", id="graphs"),
        pytest.param(UP + OOM, "GPU_OOM_SERVING", id="serving"),
        pytest.param(
            GRAPHS + "ERROR RuntimeError: CUDA error: out of memory", "GPU_OOM_GRAPHS", id="async"
        ),
    ],
)
def test_when_memory_ran_out_says_what_to_change(log: str, code: str) -> None:
    found = diagnose(log)
    assert found is not None
    assert found.code == code
    assert "memory" in found.evidence


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        pytest.param(
            "ValueError: To serve at least one request with the model's max seq len (131072), "
            "(40.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(12.34 GiB). Based on the available memory, the estimated maximum model length is "
            "40432. Try increasing `gpu_memory_utilization`",
            "KV_CACHE_TOO_SMALL",
            "one request of 131072 tokens needs 40.00 GiB of KV cache, and 12.34 GiB are left",
            id="v1/core/kv_cache_utils.py",
        ),
        pytest.param(
            "ValueError: Free memory on device cuda:0 (10.5/79.11 GiB) on startup is less than "
            "desired GPU memory utilization (0.92, 72.78 GiB). Decrease GPU memory utilization",
            "GPU_MEMORY_TAKEN",
            "10.5 of 79.11 GiB are free and 72.78 GiB are asked for",
            id="v1/worker/utils.py",
        ),
        pytest.param(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
            "requests. Please try lowering `max_num_seqs`",
            "GPU_OOM_SAMPLER",
            "warming up the sampler with 1024 requests",
            id="v1/worker/gpu_model_runner.py",
        ),
        pytest.param(
            "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs "
            "was requested",
            "DRAFT_UNSUPPORTED",
            "cannot run EAGLE-3",
            id="vllm#25134",
        ),
        pytest.param(
            '  File "vllm/v1/worker/gpu/cudagraph_utils.py", line 234, in _init_candidates\n'
            "    rounded_num_tokens = round_up(num_tokens, decode_query_len)\n"
            '  File "vllm/utils/math_utils.py", line 24, in round_up\n'
            "    return ((x + y - 1) // y) * y\n"
            "ZeroDivisionError: integer division or modulo by zero\n",
            "SPEC_CONFIG",
            "sized by K by batch size",
            id="vllm-pr-47737",
        ),
        pytest.param(
            '  File "vllm/v1/worker/gpu/input_batch.py", line 103, in make_dummy\n'
            "    assert 0 < num_reqs <= num_tokens\n"
            "AssertionError\n",
            "SPEC_CONFIG",
            "sized by K by batch size",
            id="vllm#48494",
        ),
        pytest.param(
            "KeyError: 'layers.0.mlp.down_proj.weight'",
            "WEIGHTS_MISMATCH",
            "layers.0.mlp.down_proj.weight",
            id="vllm#25883",
        ),
        pytest.param(
            "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)",
            "NCCL",
            "could not talk",
            id="llm-d#352",
        ),
        pytest.param(
            "h100:1:1 [3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space "
            "left on device",
            "SHM",
            "/dev/shm is too small",
            id="nccl#525",
        ),
        pytest.param(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has "
            "unsupported display driver / cuda driver combination",
            "DRIVER_OLD",
            "does not go with the image's CUDA",
            id="gpustack#4678",
        ),
        pytest.param(
            "RuntimeError: Failed to infer device type, please set the environment variable",
            "NO_GPU",
            "no GPU is visible",
            id="config/device.py",
        ),
        pytest.param(
            "OSError: [Errno 28] No space left on device: '/models/hub/tmp'",
            "DISK_FULL",
            "a disk is full",
            id="disk",
        ),
        pytest.param(
            "PermissionError: [Errno 13] Permission denied: '/.cache'",
            "READ_ONLY",
            "/.cache cannot be written",
            id="read-only",
        ),
        pytest.param(
            "KeyError: 'getpwuid(): uid not found: 1000'", "NO_USER", "1000", id="no-user"
        ),
        pytest.param(
            "ValueError: Counters can only be incremented by non-negative amounts.",
            "NEGATIVE_COUNTER",
            "would have fallen",
            id="vllm#26372",
        ),
        pytest.param(
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            "CUDA_ERROR",
            "not where it was caused",
            id="vllm#44889",
        ),
        pytest.param(
            "TimeoutError: RPC call to sample_tokens timed out.",
            "HUNG",
            "(sample_tokens)",
            id="vllm#41530",
        ),
        pytest.param(
            "OSError: [Errno 98] Address already in use", "PORT_TAKEN", "port is taken", id="port"
        ),
        pytest.param(
            "ValueError: Selected backend FLASHINFER is not valid for this configuration. Reason: "
            "['kv_cache_dtype not supported']",
            "ATTENTION",
            "no attention kernel",
            id="platforms/cuda.py",
        ),
    ],
)
def test_what_only_a_gpu_or_a_node_says(text: str, code: str, cause: str) -> None:
    found = diagnose(
        f"{LOADED}(Worker pid=7) ERROR 11-29 10:02:00 [multiproc_executor.py:9] {text}"
    )
    assert found is not None
    assert found.code == code
    assert cause in found.cause


def test_what_fails_while_the_draft_is_loaded_is_the_drafts() -> None:
    found = diagnose(f"{DRAFT}ERROR 11-29 10:02:00 [x.py:1] KeyError: 'embed_tokens.weight'")
    assert found is not None
    assert found.code == "DRAFT_MISMATCH"
    assert "specctl draft check" in found.fix


@pytest.mark.parametrize(
    "log",
    [
        pytest.param("", id="nothing"),
        pytest.param(UP, id="a-start-that-went-well"),
        pytest.param(GRAPHS, id="still-starting"),
        pytest.param("INFO memory: out of 80 GiB, 70 are used", id="words-that-are-no-message"),
    ],
)
def test_what_is_no_fault_is_none(log: str) -> None:
    assert diagnose(log) is None


def test_the_root_cause_goes_before_what_wraps_it() -> None:
    log = (
        "(Worker pid=7) ERROR 11-29 10:00:00 [m.py:1] RuntimeError: the root\n"
        "(EngineCore pid=2) ERROR 11-29 10:00:00 [c.py:1] Exception: WorkerProc initialization "
        "failed due to an exception in a background process. See stack trace for root cause.\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
    )
    assert last_error(log) == "RuntimeError: the root"
    assert last_error("nothing of the kind") is None
