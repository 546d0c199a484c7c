"""The lab's servers as `specctl plan` is asked about them: target, draft, graphs, memory."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from driver.groups import GROUPS, Group  # noqa: E402
from speccli.core.bench.results import Arm  # noqa: E402
from speccli.core.engines import vllm_graphs  # noqa: E402
from speccli.core.errors import UsageError  # noqa: E402
from speccli.core.sizing import cudagraphs  # noqa: E402
from speccli.core.sizing.memory import Demand  # noqa: E402
from speccli.core.sizing.shape import Shape  # noqa: E402
from stand_in import shapes  # noqa: E402

QUANTIZED = {"bf16": "bf16", "fp8": "fp8", "int4": "gptq"}
ENGINE = (0, 25, 1)
"""The vLLM of the lab."""
DRAFT_MODEL = "1b"
"""Its shape among the stand-ins."""
MIXTURE = "mixture"
"""The group of the small model itself; those of its servers that are no mixture are dense."""
SMALL = shapes.Shape(576, 1536, 30, 9, 3, 64, 49152, 12288)
EXPERTS, ACTIVE = 8, 2
HEADS = ("eagle3", "p-eagle")


def group_of(name: str, weights: str, gpus: int = 1) -> Group:
    """The lab's group whose servers these are.

    Raises:
        UsageError: there is none.
    """
    shape = "small" if name == MIXTURE else name
    for group in GROUPS.values():
        stored = any(arm.weights == weights for arm in group.arms)
        if stored and (group.shape, group.gpus) == (shape, gpus):
            return group
    known = {
        (MIXTURE if group.shape == "small" else group.shape, arm.weights, group.gpus)
        for group in GROUPS.values()
        for arm in group.arms
    }
    told = ", ".join(named(*one) for one in sorted(known))
    raise UsageError(f"{named(name, weights, gpus)}: the lab serves {told}")


def named(name: str, weights: str, gpus: int) -> str:
    """SHAPE-WEIGHTS[-tpN]."""
    return f"{name}-{weights}" + (f"-tp{gpus}" if gpus > 1 else "")


def _stand_in(name: str) -> shapes.Shape:
    return SMALL if name == MIXTURE else shapes.SHAPES[name]


def shape(name: str, weights: str, arm: str = "baseline") -> Shape:
    """A stand-in as the planner sees it, or the small model, dense or upcycled."""
    s = _stand_in(name)
    mixed = EXPERTS if arm.startswith("spread") else 0
    return Shape(
        "LlamaForCausalLM", s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim, s.inter, s.vocab,
        None, mixed, ACTIVE if mixed else 0, tied=name == MIXTURE, quantization=QUANTIZED[weights],
    )  # fmt: skip


def draft(name: str, method: str | None) -> tuple[Shape | None, float | None]:
    """Its draft: shape, and of a head the parameters, with the embedding that is the target's."""
    if method in HEADS:
        return head(name)
    if method != "draft_model":
        return None, None
    s = shapes.SHAPES[DRAFT_MODEL]
    vocab = _stand_in(name).vocab
    own = (s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim, s.inter, vocab)
    return Shape("LlamaForCausalLM", *own, None), None


def head(name: str, aux: int = 3) -> tuple[Shape, float]:
    """Its EAGLE-3 head: shape, and parameters with the embedding that is the target's."""
    s = _stand_in(name)
    one = Shape(
        "LlamaForCausalLMEagle3", s.hidden, 1, s.heads, s.kv_heads, s.head_dim, s.inter, s.vocab,
        None,
    )  # fmt: skip
    wider = s.hidden * s.head_dim * (s.heads + 2 * s.kv_heads)
    params = aux * s.hidden**2 + wider + one.attention_params + one.mlp_params
    return one, float(params + s.draft_vocab * s.hidden + one.embedding_params)


def demand(name: str, weights: str, arm: Arm, gpus: int = 1) -> Demand:
    """What a server of the lab is asked to hold."""
    group = group_of(name, weights, gpus)
    batched = 2048 if any("2048" in each.extra for each in group.arms) else 8192
    target, k = shape(name, weights, arm.name), arm.k or 0
    small, params = draft(name, arm.method)
    graphs = captured(name, weights, arm, gpus)
    return Demand(
        target=target,
        draft=small,
        draft_params=params,
        k=k,
        tensor_parallel=gpus,
        draft_tensor_parallel=gpus,
        max_model_len=group.max_model_len,
        max_num_seqs=group.max_num_seqs,
        max_num_batched_tokens=batched,
        kv_dtype="auto",
        utilization=0.9,
        graphs=len(graphs.sizes) + len(graphs.full),
        shares_embedding=arm.method in HEADS,
        draft_graphs=len(graphs.sizes) if small else 0,
        full_tokens=max(graphs.full, default=0),
    )


def captured(name: str, weights: str, arm: Arm, gpus: int = 1) -> cudagraphs.Captured:
    """The CUDA graphs of a server of the lab."""
    group = group_of(name, weights, gpus)
    found = vllm_graphs.rules(
        ENGINE,
        method="eagle3" if arm.method in HEADS else arm.method or "none",
        parallel=arm.method == "p-eagle",
        architecture="LlamaForCausalLM",
        moe=shape(name, weights, arm.name).moe,
        quantized=weights != "bf16",
        scheduled=False,
    )
    assert found is not None
    return cudagraphs.captured(
        found,
        k=arm.k or 0,
        max_num_seqs=group.max_num_seqs,
        max_num_batched_tokens=8192,
        eager="--enforce-eager" in group.extra,
    )
