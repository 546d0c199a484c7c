"""Every kernel of csrc once, at sizes with ragged ends: what compute-sanitizer watches.

`compute-sanitizer --tool memcheck python -m kernels_check.sanitize [MUTANT]`
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = (
    "1"  # a buffer is an allocation, and ends where it ends
)

from kernels_check.checks import guard, rejection, tokens
from kernels_check.cuda.driver import Module, pointer
from kernels_check.model import Context

STEPS = (("own", 3, 4, 4099), ("own", 15, 2, 8192), ("own", 7, 3, 40000), ("own-bf16", 3, 4, 4099))
"""(engine, K, batch, vocabulary)"""


def main(mutant: int) -> None:
    """Run them."""
    for name, k, batch, vocab in STEPS:
        engine: Any = rejection.engine_of(name, mutant)
        for mode in ("greedy", "random"):
            engine.run(rejection.make(engine, {"mode": mode}, k, batch, vocab, 5, "cuda"), 5)
    if mutant:
        return
    guard.canaries(Context(5, {"steps": ((3, 8),)}))
    tokens.own_mask(Context(5, {"vocabularies": (4099,)}))
    _probe()


def _probe() -> None:
    import torch

    module = Module("probe.cu")
    vectors = 3 * 2048 + 77
    source = torch.arange(vectors * 4, dtype=torch.int32, device="cuda")
    target, sink = torch.zeros_like(source), torch.zeros(1, dtype=torch.int32, device="cuda")
    blocks, n = (-(-vectors // 2048),), ctypes.c_longlong(vectors)
    copy = [pointer(target), pointer(source), n]
    module.launch(module.function("copy_vectors"), blocks, 512, copy)
    module.launch(module.function("read_vectors"), blocks, 512, [pointer(sink), pointer(source), n])
    rounds = [pointer(sink), ctypes.c_int(4), ctypes.c_uint(5)]
    module.launch(module.function("mma_rounds"), (4,), 256, rounds)
    torch.cuda.synchronize()
    if not torch.equal(source, target):
        raise RuntimeError("the copy did not copy")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
