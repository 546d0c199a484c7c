"""Buffers at the edge of mapped memory, and canaries around them.

Does a kernel stay inside its own?

A fault ends the process it happens in, so every attempt is a process of its own. The first guards
every buffer; only when it faults, each buffer is guarded alone, which tells its name.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from kernels_check.checks import rejection
from kernels_check.child import STICKY, die_with_the_parent
from kernels_check.cuda.guard import Allocator, Side
from kernels_check.model import Context, Passed, Wrong

Attempt = Callable[["Placer"], None]
ROOM = 1 << 16
"""Elements on both sides of a buffer that is not guarded."""


class Placer:
    """Puts buffers (all, or the one named) against an edge, and remembers their names."""

    def __init__(self, side: Side, only: str | None) -> None:
        """`only`: the one buffer to guard."""
        self.side, self.only = side, only
        self.names: list[str] = []
        self._allocator = Allocator()

    def __call__(self, name: str, tensor: Any) -> Any:
        """The tensor, moved if it is to be guarded."""
        if name not in self.names:
            self.names.append(name)
        if self.only in (None, name):
            return self._allocator.copy_of(tensor.contiguous(), self.side)
        return _amid(tensor)


def _amid(tensor: Any) -> Any:
    """A copy with room on both sides: what goes a little beyond it does not fault by chance."""
    import torch

    size = tensor.numel()
    wide = torch.zeros(size + 2 * ROOM, dtype=tensor.dtype, device=tensor.device)
    amid = wide[ROOM : ROOM + size].view(tensor.shape)
    return amid.copy_(tensor)


def attempt(work: Attempt, side: Side, only: str | None = None) -> tuple[bool, str]:
    """(did it fault, the buffers' names or what went wrong) in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _attempt(work, side, only, writing)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return False, text
    if STICKY.search(text) or code < 0:
        return True, text
    raise RuntimeError(f"could not be tried: {text.splitlines()[0] if text else code}")


def _attempt(work: Attempt, side: Side, only: str | None, writing: int) -> None:
    code = 1
    die_with_the_parent()
    try:
        import torch

        torch.zeros(1, device="cuda")
        placer = Placer(side, only)
        try:
            work(placer)
            torch.cuda.synchronize()
        finally:
            names = " ".join(placer.names)
        os.write(writing, names.encode())
        code = 0
    except Exception as error:  # noqa: BLE001 - told to the parent
        os.write(writing, f"{type(error).__name__}: {error}".encode()[:4000])
    finally:
        os._exit(code)


def faults(work: Attempt, names: tuple[str, ...]) -> list[str]:
    """Each buffer and side that something reaches beyond, in words."""
    found = []
    for side in Side:
        faulted, _ = attempt(work, side)
        if not faulted:
            continue
        guilty = [name for name in names if attempt(work, side, name)[0]]
        where = side.name.lower()
        found += [f"beyond the {where} end of {name}" for name in guilty or ["an unnamed buffer"]]
    return found


V2 = (
    "target_logits", "draft_logits", "draft_sampled", "cu_num_logits", "pos", "idx_mapping",
    "expanded_idx_mapping", "expanded_local_pos", "temperature", "seed",
)  # fmt: skip
NAMES = {
    "vllm-v1": (
        "target_logits", "draft_probs", "draft_token_ids", "cu_num_draft_tokens",
        "bonus_token_ids", "temperature",
    ),
    "vllm-v2": V2,
    "vllm-v2-block": V2,
    "own": (
        "logits", "out", "cu_rows", "request_of", "draft_ids", "accept_u", "sample_u", "greedy",
        "parts", "drafted", "tickets",
    ),
}  # fmt: skip


def sampler(context: Context) -> Passed:
    """A verify step with every buffer at an edge, left and right.

    Nothing is touched beyond them.
    """
    name = context.options["engine"]
    drafts = (False, True) if name.startswith("vllm") else (False,)
    tried = 0
    for vocab, k, batch in ((32000, 3, 8), (4099, 7, 5)):

        def work(placer: Placer, vocab: int = vocab, k: int = k, batch: int = batch) -> None:
            engine: Any = rejection.engine_of(name, context.options.get("mutant", 0))
            engine.place = placer
            for with_draft in drafts:
                for mode in ("greedy", "random"):
                    options = {"padded": True, **context.options, "mode": mode, "draft": with_draft}
                    case = rejection.make(engine, options, k, batch, vocab, context.seed, "cuda")
                    engine.run(case, context.seed)

        found = faults(work, NAMES[name])
        if found:
            raise Wrong(f"{name}, K {k}, vocabulary {vocab}: reads or writes {', '.join(found)}")
        tried += 2 * 2 * len(drafts)
    return Passed(f"{tried} guarded steps, left and right, nothing touched beyond a buffer")


def works(context: Context) -> Passed:
    """The guard itself.

    One element beyond either end faults, read or written, and its name is found.
    """
    tried = 0
    for kernel in ("poke", "peek"):
        for side in Side:
            for beyond in (False, True):

                def work(
                    placer: Placer, kernel: str = kernel, side: Side = side, beyond: bool = beyond
                ) -> None:
                    _touch(placer, kernel, side, beyond)

                names = ("victim", "bystander")
                found = [s for s in faults(work, names)]
                end = f"beyond the {side.name.lower()} end of victim"
                if found != ([end] if beyond else []):
                    raise Wrong(f"{kernel}, {side.name.lower()}, beyond {beyond}: reported {found}")
                tried += 1
    del context
    return Passed(f"{tried} touches: the last element is reachable, the next one faults, by name")


def fault(context: Context) -> Passed:
    """A write one element beyond a buffer, in this very process: it must not outlive it."""
    del context
    placer = Placer(Side.RIGHT, None)
    _touch(placer, "poke", Side.RIGHT, beyond=True)
    import torch

    torch.cuda.synchronize()
    return Passed("nothing faulted")


def _touch(placer: Placer, kernel: str, side: Side, beyond: bool) -> None:
    import torch

    from kernels_check.cuda.driver import Module, pointer

    module = Module("probe.cu")
    sink = torch.zeros(1, device="cuda")
    placer("bystander", torch.zeros(100, device="cuda"))
    victim = placer("victim", torch.zeros(1000, device="cuda"))
    edge = -int(beyond) if side is Side.LEFT else 999 + int(beyond)
    if beyond and placer.only not in (None, "victim"):
        edge = 0
    arguments = [pointer(victim), ctypes.c_longlong(edge)]
    if kernel == "peek":
        arguments.append(pointer(sink))
    module.launch(module.function(kernel), (1,), 1, arguments)


def canaries(context: Context) -> Passed:
    """Words around the output of our kernel and of vLLM's V1 kernels keep their values."""
    import torch

    from kernels_check.cuda.driver import Module, pointer
    from kernels_check.own import Own

    module = Module("probe.cu")
    own = Own(context.options.get("mutant", 0))
    margin, steps = 4096, 0
    for k, batch in context.options.get("steps", ((1, 1), (3, 8), (7, 31), (15, 32))):
        case = rejection.make(own, {"mode": "mixed"}, k, batch, 32000, context.seed + k, "cuda")
        size = batch * (k + 1)
        held = torch.zeros(size + 2 * margin, dtype=torch.int32, device="cuda")
        bad = torch.tensor([0, 2**62], dtype=torch.int64, device="cuda")

        def launch(name: str, *extra: Any, at: int, held: Any = held) -> None:
            part = held[at : at + margin]
            arguments = [
                pointer(part),
                ctypes.c_longlong(margin),
                ctypes.c_uint(context.seed),
                *extra,
            ]
            module.launch(module.function(name), (margin // 256,), 256, arguments)

        for at in (0, margin + size):
            launch("canary_fill", at=at)

        def place(name: str, tensor: Any, held: Any = held, size: int = size) -> Any:
            if name != "out":
                return tensor
            return held[margin : margin + size].view(tensor.shape)

        own.place = place
        own.run(case, context.seed)
        for at in (0, margin + size):
            launch("canary_check", pointer(bad), at=at)
        count, first = bad.tolist()
        if count:
            raise Wrong(
                f"K {k}, batch {batch}: {count} words beside the output changed, first {first}"
            )
        steps += 1
    return Passed(f"{steps} steps, {2 * margin} words around each output unchanged")
