"""How far the start of a vLLM has come, from its log.

Marks are read in vLLM 0.32: `engine/core.py`, `worker/gpu_worker.py`, `worker/gpu_model_runner.py`,
`model_loader/weight_utils.py`, `compilation/*.py`, `entrypoints`. Most stand there since 0.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Stage = Literal["weights", "compile"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a line of the log says."""

    text: str
    words: str
    stage: Stage


MARKS: tuple[Mark, ...] = (
    Mark("non-default args", "reading the model's configuration", "weights"),
    Mark("Initializing a V1 LLM engine", "starting the engine", "weights"),
    Mark("Starting to load model", "loading the weights", "weights"),
    Mark("Loading drafter model", "loading the draft model", "weights"),
    Mark("Model loading took", "weights loaded", "compile"),
    Mark("Starting torch.compile", "compiling", "compile"),
    Mark("Dynamo bytecode transform time", "compiling", "compile"),
    Mark("Compiling a graph", "compiling", "compile"),
    Mark("Available KV cache memory", "making room for the KV cache", "compile"),
    Mark("KV cache size", "making room for the KV cache", "compile"),
    Mark("Capturing CUDA graphs", "capturing CUDA graphs", "compile"),
    Mark("Graph capturing finished", "CUDA graphs captured", "compile"),
    Mark("init engine (profile", "warming up", "compile"),
    Mark("Starting vLLM server", "opening the port", "compile"),
)
"""In the order of a start."""
IMPORTING = Mark("", "importing vLLM", "weights")
"""Before any of them."""
_SHARE = re.compile(r"(?:shards|Streamer|loader|Capturing CUDA graphs[^:\n]*):\s+(\d{1,3})%")


def mark_of(log: str) -> Mark:
    """The latest mark in a log; `IMPORTING` where there is none."""
    return next((mark for mark in reversed(MARKS) if mark.text in log), IMPORTING)


def told(log: str) -> str:
    """The mark's words, with the share that is done where the log counts: `loading … 45 %`."""
    mark = mark_of(log)
    at = log.rfind(mark.text) if mark.text else 0
    shares = _SHARE.findall(log, at)
    return f"{mark.words} {shares[-1]} %" if shares else mark.words
