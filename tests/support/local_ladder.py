"""A local deployment whose head can be spoilt: of no use, or not to be loaded."""

from __future__ import annotations

import json
import random
import shutil
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

RECIPE = """
name: ladder
target: {{model: {target}}}
draft: {{method: eagle3, model: {head}, K: 3}}
hardware: {{gpu: h100}}
engine:
  env:
    VLLM_CPU_KVCACHE_SPACE: "1"
    VLLM_NO_USAGE_STATS: "1"
    HF_HUB_OFFLINE: "1"
    VLLM_CPU_OMP_THREADS_BIND: nobind
    OMP_NUM_THREADS: "1"
    OMP_WAIT_POLICY: PASSIVE
serving:
  {{max_model_len: 1024, max_num_seqs: 16, max_num_batched_tokens: 2048, enforce_eager: true,
    shutdown_timeout_s: 30}}
"""


def with_noise(head: Path, out: Path) -> Path:
    """A copy of a head, of the same sizes and of no use.

    What mixes the target's states is shuffled, so that it knows nothing of them, and the rows of
    its vocabulary are moved by half, so that not even the most frequent token is guessed.
    """
    shutil.copytree(head, out)
    file = out / "model.safetensors"
    data = bytearray(file.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    tensors = json.loads(data[8 : 8 + size])

    def change(name: str, how: Callable[[array[int]], array[int]]) -> None:
        begin, end = (8 + size + at for at in tensors[name]["data_offsets"])
        data[begin:end] = how(array("H", bytes(data[begin:end]))).tobytes()

    def shuffled(values: array[int]) -> array[int]:
        random.Random(0).shuffle(values)
        return values

    change("fc.weight", shuffled)
    change("lm_head.weight", lambda rows: rows[len(rows) // 2 :] + rows[: len(rows) // 2])
    file.write_bytes(data)
    return out


def misnamed(head: Path, out: Path) -> Path:
    """A copy of a head that no engine loads, and that looks sound: a weight has another name."""
    shutil.copytree(head, out)
    file = out / "model.safetensors"
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    names = data[8 : 8 + size]
    assert names.count(b".self_attn.o_proj.") == 1
    names = names.replace(b".self_attn.o_proj.", b".self_attn.z_proj.")
    file.write_bytes(data[:8] + names + data[8 + size :])
    return out
