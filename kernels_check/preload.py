"""What most checks import, for the process that forks them: it must not touch CUDA."""

from __future__ import annotations

import contextlib
import importlib
import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

for _name in (
    "triton",
    "vllm",
    "vllm._custom_ops",
    "vllm.v1.sample.rejection_sampler",
    "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils",
    "vllm.v1.spec_decode.utils",
):
    with contextlib.suppress(Exception):
        importlib.import_module(_name)
