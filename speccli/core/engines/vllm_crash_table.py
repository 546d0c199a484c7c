"""Messages of vLLM, and of what lies under it, that tell why it ended: a table for `vllm_crash`.

Read in vLLM 0.32's source (`v1/core/kv_cache_utils.py`, `v1/worker/utils.py`,
`v1/worker/gpu_model_runner.py`, `config/*.py`, `model_executor/models/registry.py`, `envs.py`), in
logs of servers that were made to fail, and in public threads, named where one was needed. Most
stand alike since 0.11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from speccli.core.engines.vllm_graphs import CAPTURE_STARTS_WITH, FAILS_HOW, STARTS_WITH


@dataclass(frozen=True, slots=True)
class Signature:
    """A message, and what it means. `cause` and `fix` may name the pattern's groups."""

    code: str
    pattern: re.Pattern[str]
    cause: str
    fix: str


def _sign(code: str, pattern: str, cause: str, fix: str) -> Signature:
    return Signature(code, re.compile(pattern), cause, fix)


_FIT = (
    "lower --max-model-len or --max-num-seqs, or use more GPUs (`specctl plan` computes what fits)"
)
WRONG_WEIGHTS = "fetch weights and config.json again, of one revision"
DRAFT = "use the head that was trained for this target: `specctl draft check TARGET DRAFT` says what differs"

SIGNATURES: tuple[Signature, ...] = (
    # ---- before what its traceback would match below ----
    _sign(
        "SPEC_CONFIG",
        r"in (?:_init_candidates\n(?:.*\n){1,6}?.*ZeroDivisionError"
        r"|make_dummy\n(?:.*\n){1,4}?.*AssertionError)",
        FAILS_HOW,
        STARTS_WITH,
    ),
    _sign(
        "DRAFT_GRAPHS",
        r"(?:autoregressive|eagle)/speculator\.py\", line \d+, in capture\b(?:.*\n){1,200}?"
        r".*an illegal memory access",
        "an illegal memory access while the draft's CUDA graphs were captured: known of vLLM "
        "before 0.26 (vllm#47561)",
        f"{CAPTURE_STARTS_WITH}; on 0.26 or newer it is another fault: `specctl kernels check` on that node",
    ),
    # ---- what the command line says ----
    _sign(
        "SERVICE_LINK",
        r"VLLM_PORT '(?P<value>[^']*)' appears to be a URI",
        "a Service called vllm put VLLM_PORT={value} into the pod, and vLLM reads it as its own",
        "set enableServiceLinks: false in the pod, or rename the Service",
    ),
    _sign(
        "UNKNOWN_FLAG",
        r"error: unrecognized arguments: (?P<flags>.+)",
        "this vLLM knows no {flags}",
        "correct it, or use the version that has it (`specctl plan` spells flags as a version does)",
    ),
    _sign(
        "SPEC_CONFIG",
        r"error: argument --speculative-config\S*: Value (?P<value>.+?) cannot be converted",
        "--speculative-config is no JSON: {value}",
        'write it as `specctl plan` does: {{"method": "eagle3", "model": …, "num_speculative_tokens": 3}}',
    ),
    _sign(
        "SPEC_CONFIG",
        r"validation errors? for SpeculativeConfig\n(?:\([^)]*\) )?(?P<key>[\w.]+)\n"
        r"(?:\([^)]*\) )?\s*(?P<why>[^\n\[]{1,120})",
        "this vLLM does not take {key} in --speculative-config: {why}",
        "write it as `specctl plan` does: keys and methods are spelled by version",
    ),
    _sign(
        "BAD_VALUE",
        r"error: argument (?P<flag>\S+?)(?:/\S+)*: (?P<why>.{1,160})",
        "{flag}: {why}",
        "correct the value",
    ),
    # ---- memory ----
    _sign(
        "GPU_MEMORY_TAKEN",
        r"Free memory on device \S* ?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup "
        r"is less than desired GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
        "something else is on the GPU: {free} of {total} GiB are free and {wanted} GiB are asked for",
        "end what else runs there (nvidia-smi on the node), or lower --gpu-memory-utilization "
        "under {share}",
    ),
    _sign(
        "KV_CACHE_TOO_SMALL",
        r"max seq len \((?P<len>\d+)\),? \(?(?P<needed>[\d.]+) GiB KV cache is needed, which is larger "
        r"than the available KV cache memory \((?P<left>[\d.]+) GiB\)"
        r"(?:.*?estimated maximum model length is (?P<fits>\d+))?",
        "one request of {len} tokens needs {needed} GiB of KV cache, and {left} GiB are left",
        "--max-model-len {fits} fits; else raise --gpu-memory-utilization or use more GPUs",
    ),
    _sign(
        "KV_CACHE_NONE",
        r"No available memory for the cache blocks",
        "weights and activations leave no memory for the KV cache",
        "raise --gpu-memory-utilization, quantize, or use more GPUs (`specctl plan` computes it)",
    ),
    _sign(
        "GPU_OOM_WEIGHTS",
        r"Failed to load model - not enough GPU memory",
        "the weights do not fit on the GPU",
        "raise --tensor-parallel-size, quantize, or use a larger GPU (`specctl plan` computes it)",
    ),
    _sign(
        "GPU_OOM_SAMPLER",
        r"CUDA out of memory occurred when warming up (?P<what>sampler|pooler) with "
        r"(?P<requests>\d+) dummy requests",
        "the GPU ran out of memory while warming up the {what} with {requests} requests",
        "lower --max-num-seqs or --gpu-memory-utilization: logits take "
        "max-num-seqs x (K + 1) x vocabulary x 4 bytes",
    ),
    # ---- the pair ----
    _sign(
        "DRAFT_UNSUPPORTED",
        r"Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
        "this vLLM cannot run EAGLE-3 with this target's architecture",
        "use a version that can (`specctl draft check` knows since when), or --method ngram",
    ),
    _sign(
        "DRAFT_MISMATCH",
        r"For parallel drafting, the draft model config must have",
        "parallel_drafting is on, and the draft is no head for it: its config.json has no mask token",
        "leave parallel_drafting out, or use a P-EAGLE head",
    ),
    _sign(
        "DRAFT_TP",
        r"'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same|"
        r"draft_tensor_parallel_size=\S* cannot be other value than",
        "the draft's tensor parallel size is neither 1 nor the target's",
        "leave draft_tensor_parallel_size out, or set it to the target's",
    ),
    _sign(
        "DRAFT_VOCAB",
        r"(?:Target and draft model should have the same vocabulary size|"
        r"vocab(?:ulary)? size mismatch)",
        "target and draft have vocabularies of different size",
        DRAFT,
    ),
    _sign(
        "ARCH_UNKNOWN",
        r"Model architectures? (?P<arch>\[[^\]]*\]|\S+) (?:are|is|was) "
        r"(?:not supported for now|not supported in-tree|supported in vLLM until)",
        "this vLLM knows no {arch}",
        "use a version that does, or correct `architectures` in the config.json",
    ),
    _sign(
        "ARCH_UNKNOWN",
        r"The checkpoint you are trying to load has model type `(?P<arch>[^`]*)` but Transformers",
        "this image's transformers knows no model type {arch}",
        "use a newer image",
    ),
    _sign(
        "QUANTIZATION",
        r"(?:Unknown quantization method|Cannot find the config file for|"
        r"Quantization method .*? does not match|"
        r"quantization method \S+ is not supported for the current GPU)",
        "the quantization asked for is not that of the weights, or not one of this GPU",
        "leave --quantization out: vLLM reads it from the model's config.json",
    ),
    _sign(
        "MAX_MODEL_LEN",
        r"User-specified max_model_len \((?P<len>\d+)\) is greater than the derived max_model_len "
        r"\((?P<why>[^)]*)\)",
        "--max-model-len {len} is more than the model was made for ({why})",
        "lower it; the model's own length is in its config.json",
    ),
    _sign(
        "TENSOR_PARALLEL",
        r"(?:(?:attention heads|vocab|hidden)\S* ?\(?\d*\)? must be divisible by tensor parallel size"
        r"|\d+ is not divisible by \d+)",
        "the model's shapes cannot be split over so many GPUs",
        "choose a --tensor-parallel-size that divides its attention heads",
    ),
    # ---- where models come from ----
    _sign(
        "MODEL_GATED",
        r"(?:GatedRepoError|Cannot access gated repo|Access to model (?P<model>\S+) is restricted|"
        r"You are trying to access a gated repo)",
        "the model is gated, and the token in the pod may not read it",
        "accept the licence with that token's account, and put the token into the Secret "
        "(target and draft are separate repositories)",
    ),
    _sign(
        "HUB_TOKEN",
        r"(?:Invalid (?:user token|credentials in Authorization header)|401 Client Error[^\n]*"
        r"(?:Unauthorized|Invalid))",
        "Hugging Face does not accept the token in the pod",
        "put a valid one into the Secret that HF_TOKEN is from",
    ),
    _sign(
        "MODEL_NOT_FOUND",
        r"(?:Invalid repository ID or local directory specified: |Can't load the configuration of )'(?P<model>[^']*)'",
        "there is no model {model}: a name that is misspelled or private, or a folder that is not mounted",
        "correct the name, or mount the volume that has it",
    ),
    _sign(
        "MODEL_NOT_FOUND",
        r"(?:RepositoryNotFoundError|Repository Not Found for url|"
        r"is not a local folder and is not a valid model identifier|"
        r"Repo id must be in the form|Invalid repository ID or local directory specified)",
        "there is no such model: a name that is misspelled, private, or a folder that is not mounted",
        "correct the name, or mount the volume that has it",
    ),
    _sign(
        "HUB_BUSY",
        r"(?:429 Client Error|Too Many Requests for url|HTTP status client error \(429)",
        "Hugging Face sheds load: too many downloads at once",
        "fill a shared volume once and set HF_HUB_OFFLINE=1; HF_HUB_DISABLE_XET=1 helps where Xet does it",
    ),
    _sign(
        "HUB_UNREACHABLE",
        r"(?:LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to '[^']*'|"
        r"Cannot (?:reach|find the requested files in the disk cache)|"
        r"outgoing traffic has been disabled|Temporary failure in name resolution|"
        r"Max retries exceeded with url: /[^\n]*(?:resolve|api/models))",
        "the model is not in the cache, and Hugging Face cannot be reached from the pod",
        "fill the volume first, or let the pod out to the hub (NetworkPolicy, proxy, HF_HUB_OFFLINE)",
    ),
    _sign(
        "WEIGHTS_DAMAGED",
        r"(?:SafetensorError|Error while deserializing header|incomplete metadata, file not fully covered|"
        r"Cannot find any model weights with)",
        "the weights on the volume are missing or cut short: a download that was interrupted",
        "delete them there and fetch them again",
    ),
    _sign(
        "TOKENIZER",
        r"(?:Can't load tokenizer for|Couldn't instantiate the backend tokenizer|"
        r"Tokenizer class \S+ does not exist|No tokenizer registered for|Unsupported tokenizer)",
        "the model's folder has no tokenizer that can be loaded",
        "fetch tokenizer.json and tokenizer_config.json too, or give --tokenizer",
    ),
    # ---- the node ----
    _sign(
        "NO_GPU",
        r"(?:No CUDA GPUs are available|Failed to infer device type|"
        r"no CUDA-capable device is detected|Found no NVIDIA driver on your system|"
        r"NVML Shared Library Not Found|libcuda\.so\.1: cannot open shared object)",
        "no GPU is visible inside the pod",
        "ask for nvidia.com/gpu in its limits; set runtimeClassName: nvidia where that is no default",
    ),
    _sign(
        "DRIVER_OLD",
        r"(?:The NVIDIA driver on your system is too old|CUDA driver version is insufficient|"
        r"Error 80[34]: |unsatisfied condition: cuda|unsupported display driver / cuda driver|"
        r"no kernel image is available for execution on the device)",
        "the node's driver does not go with the image's CUDA",
        "use an image of an older CUDA, or renew the driver; for error 803 with vLLM 0.15 and later "
        "set LD_LIBRARY_PATH=/usr/local/nvidia/lib64 (gpustack#4678)",
    ),
    _sign(
        "SHM",
        r"(?:ncclShmOpen|/dev/shm[^\n]*No space left|shm\.\w+:\d+ NCCL WARN|"
        r"Error while creating shared memory segment|Bus error|unable to open shared memory|"
        r"unable to (?:mmap|allocate shared memory))",
        "/dev/shm is too small: tensor parallel workers talk through it",
        "mount an emptyDir with medium: Memory at /dev/shm (rendered manifests do)",
    ),
    _sign(
        "NCCL",
        r"(?:NCCL error: (?P<why>[^\n(]+)|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|"
        r"ncclRemoteError|ProcessGroupNCCL[^\n]*(?:timed out|timeout))",
        "the GPUs could not talk to one another (NCCL)",
        "run with NCCL_DEBUG=INFO; then look at /dev/shm, NVLink and fabric manager, and NCCL_SOCKET_IFNAME",
    ),
    _sign(
        "DISK_FULL",
        r"(?:No space left on device|Errno 28|ENOSPC|Disk quota exceeded|not enough free disk space)",
        "a disk is full: the model cache's, or the compile cache's",
        "enlarge the volume, or delete models that are not used any more",
    ),
    _sign(
        "READ_ONLY",
        r"(?:Errno 30\] Read-only file system|Errno 13\] Permission denied): '(?P<path>[^']*)'",
        "{path} cannot be written",
        "mount an emptyDir or a volume there, and set HOME, HF_HOME, VLLM_CACHE_ROOT and "
        "TRITON_CACHE_DIR to what can be",
    ),
    _sign(
        "NO_USER",
        r"getpwuid\(\): uid not found: (?P<uid>\d+)",
        "the pod's user {uid} has no name in the image, and PyTorch asks for one",
        "set USER (and HOME) in the container's env",
    ),
    _sign(
        "ATTENTION",
        r"(?:Selected backend (?P<name>\S+) is not valid for this configuration|"
        r"No valid attention backend found|FlashAttention (?:only|version)|"
        r"No module named '(?:vllm_)?flash_attn|flash_attn[^\n]*(?:not installed|is not available))",
        "no attention kernel of this image takes this GPU, head size and KV type together",
        "leave --attention-backend and --kv-cache-dtype out, or use the image that has the kernel",
    ),
    _sign(
        "JIT",
        r"(?:Ninja is required|nvcc[^\n]*not found|CUDA_HOME environment variable is not set|"
        r"Could not find nvcc|GMMA[^\n]*error|ptxas (?:fatal|error)|Failed to find C compiler)",
        "a kernel has to be compiled in the pod, and cannot be",
        "use the -devel image or another attention backend; FP8 KV with K >= 3 on Hopper is such a case "
        "(vllm#33364)",
    ),
    _sign(
        "PORT_TAKEN",
        r"(?:Address already in use|Errno 98)",
        "the port is taken: another server runs in the pod, or hostNetwork shares the node's",
        "give --port another number, or leave hostNetwork out",
    ),
    # ---- while it serves ----
    _sign(
        "NEGATIVE_COUNTER",
        r"Counters can only be incremented by non-negative amounts",
        "a speculation counter would have fallen, which ends the engine (vllm#26372)",
        "use a version that has the fix, or another method than n-gram",
    ),
    _sign(
        "GRAMMAR",
        r"(?:grammar\.validate_tokens|accept_tokens[^\n]*(?:Assertion|Error)|"
        r"Failed to advance FSM for request)",
        "drafted tokens and the grammar of structured output contradict each other (vllm#27969, #47025)",
        "send JSON-schema requests to the pool for structured output, without speculation",
    ),
    _sign(
        "CUDA_ERROR",
        r"CUDA error: (?P<why>an illegal memory access was encountered|unspecified launch failure|"
        r"device-side assert triggered|misaligned address)",
        "a kernel failed: {why}. It is reported where it was noticed, which is not where it was caused",
        "look for Xid in the node's log, run `specctl kernels check` on that node, and try without "
        "speculation",
    ),
    _sign(
        "HUNG",
        r"(?:RPC call to (?P<what>\S+) timed out|Execution of \S+ timed out|"
        r"Timed out waiting for \d+ (?:clients|workers))",
        "the workers stopped answering ({what})",
        "restart it; if it comes again, run with VLLM_TRACE_FUNCTION=1 and look at the GPUs (Xid)",
    ),
    # ---- a mismatch that shows in the weights: last, its messages are general ----
    _sign(
        "SPEC_CONFIG",
        r"validation errors? for SpeculativeConfig\n(?:\([^)]*\) )?\s*(?:Value error, )?(?P<why>[^\n\[]{1,160})",
        "this vLLM does not take --speculative-config: {why}",
        "write it as `specctl plan` does: keys and methods are spelled by version",
    ),
    _sign(
        "WEIGHTS_MISMATCH",
        r"There is no module or parameter named '(?P<key>[^']*)' in (?P<arch>\w+)",
        "the weights have a tensor that {arch} has no place for: {key}",
        WRONG_WEIGHTS,
    ),
    _sign(
        "WEIGHTS_MISMATCH",
        r"Tried to load weights of size torch\.Size\((?P<have>\[[\d, ]*\])\) ?to a parameter of size "
        r"torch\.Size\((?P<want>\[[\d, ]*\])\)",
        "weights of shape {have} do not go where the configuration has {want}",
        WRONG_WEIGHTS,
    ),
    _sign(
        "WEIGHTS_MISMATCH",
        r"KeyError: '(?P<key>[\w.]*(?:layers\.\d+|embed_tokens|midlayer|fc|lm_head|d2t)[\w.]*)'",
        "the weights have a tensor that the configuration has no place for: {key}",
        WRONG_WEIGHTS,
    ),
    _sign(
        "WEIGHTS_MISMATCH",
        r"(?P<why>size mismatch for \S+|mat1 and mat2 shapes cannot be multiplied \([^)]*\)"
        r"|The size of tensor a \(\d+\) must match the size of tensor b \(\d+\)"
        r"|shape '\[[^\]]*\]' is invalid for input of size \d+"
        r"|start \(\d+\) \+ length \(\d+\) exceeds dimension size \(\d+\)"
        r"|Attempted to load weight \([^\n]*\) into parameter \([^\n]*\))",
        "weights and configuration do not go together: {why}",
        WRONG_WEIGHTS,
    ),
)
"""Sought in this order: what is said plainly before what many faults say."""

OOM: Mapping[str, tuple[str, str, str]] = {
    "Loading drafter model": (
        "GPU_OOM_DRAFT",
        "the GPU ran out of memory while the draft was loaded",
        "use a smaller draft, quantize the target, or use more GPUs (`specctl plan` counts the draft)",
    ),
    "Starting to load model": (
        "GPU_OOM_WEIGHTS",
        "the weights do not fit on the GPU",
        "raise --tensor-parallel-size, quantize, or use a larger GPU (`specctl plan` computes it)",
    ),
    "Capturing CUDA graphs": (
        "GPU_OOM_GRAPHS",
        "the GPU ran out of memory while CUDA graphs were captured",
        "lower --gpu-memory-utilization by 0.02 to 0.05, or capture fewer sizes "
        "(--max-cudagraph-capture-size)",
    ),
}
OOM_STARTING = (
    "GPU_OOM_KV",
    "the GPU ran out of memory while the engine made room for the KV cache",
    "lower --gpu-memory-utilization or --max-num-batched-tokens; " + _FIT,
)
OOM_SERVING = (
    "GPU_OOM_SERVING",
    "the GPU ran out of memory while serving",
    "lower --gpu-memory-utilization by 0.02 to 0.05, or --max-num-batched-tokens",
)
