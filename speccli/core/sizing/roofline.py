"""What a draft earns at each batch size: a roofline whose numbers were fitted to one machine.

step = (memory^p + arithmetic^p)^(1/p) + fixed + per request, plus the draft's passes, plus, over
several GPUs, the all-reduces. Six numbers are fitted to 19 levels of an 8B and a 32B model in BF16
on one H200 (vLLM 0.25.1, EAGLE-3 K = 3 and 5, closed loop): off by 5 % on average and 18 % at worst
there, and the speed-up by 0.2 at worst. On a second bench of the 8B, of which a draft model's arm
alone was fitted to: 9 % on average, 19 % at worst for the others, the speed-up by 0.4. FP8 has
three of its own, fitted to 15 rows of a 32B there (none and EAGLE-3 K = 5): 7 % and 17 % at worst;
on 26 rows of a second run and 16 of a 70B, not fitted to: 6 and 8 %, 18 and 13 % at worst.
INT4 has three as well, fitted to 14 rows of a 70B: 3 % on average, 6 % at worst.
n-gram has two, a draft model in pieces one, taken from what they did at batch 1; n-gram is off by
15 % at worst on all batches, a draft model by 8 % on average and 33 % at worst, where two repeats
of a row differ as much. Elsewhere it is worse: tensor parallel and other GPUs were not measured,
and a mixture of experts is off by half. It orders choices; a bench decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speccli.core.sizing.gpus import Gpu
from speccli.core.sizing.shape import Shape

BANDWIDTH_SHARE = 0.70
"""Of the data sheet's bandwidth that weights arrive at."""
FLOPS_SHARE = 0.515
BLEND = 2.3
"""p: how far memory and arithmetic overlap; 1 not at all, infinity completely."""
FP8_BANDWIDTH_SHARE = 0.66
FP8_FLOPS_SHARE = 0.44
FP8_BLEND = 1.5
"""The same three where the GPU multiplies FP8: activations are quantized between the products, so
that less overlaps and less of twice the arithmetic is reached."""
INT4 = frozenset({"awq", "gptq"})
INT4_BANDWIDTH_SHARE = 0.41
INT4_FLOPS_SHARE = 0.66
INT4_BLEND = 1.3
"""The same three where four bits are unpacked to BF16 in the product: at batch 1 such weights
arrive little sooner than twice as many bytes of FP8 (70B, groups of 128, vLLM 0.25.1)."""
STEP_S = 0.72e-3
REQUEST_S = 26e-6
PASS_S = 0.23e-3
"""Launch and sampling of one pass of a one-layer draft."""
SERIAL = frozenset({"ngram", "suffix", "medusa", "mlp_speculator"})
"""Methods without asynchronous scheduling in vLLM; they run on its older model runner, too."""
SERIAL_S = 2.1e-3
"""What a step then waits for Python: an 8B's step at batch 1 on one H200, with n-gram and without,
less what the further tokens cost."""
MATCHED = 0.54
"""Share of n-gram's drafted tokens that are accepted, where it found a match to draft from."""
LAYER_SHARE = 0.1
"""Each further layer of a draft adds this share of a pass, where a pass is one graph."""
PIECES_S = 0.34e-3
"""What it adds where Python launches a graph and an attention for each layer: a draft model's pass
on vLLM's first runner, whose 30 layers at batch 1 on one H200 this is taken from."""
ALL_REDUCE_S = 8e-6
LINK_BYTES_PER_S = 3e11
"""Of one all-reduce over NVLink: latency, and bytes per second. Assumed, not measured."""
ERROR = (
    "roofline fitted to 19 levels on one H200 (8B and 32B BF16, EAGLE-3, vLLM 0.25.1): 5 % off on "
    "average, 18 % at worst, speed-up by 0.2; not measured for this pair, so worse here"
)

ERROR_FP8 = (
    "roofline for FP8 fitted to 15 rows on one H200 (32B, none and EAGLE-3 K = 5, vLLM 0.25.1): "
    "7 % off on average, 17 % at worst, speed-up by 0.2; not measured for this pair, so worse here"
)
ERROR_INT4 = (
    "roofline for INT4 fitted to 14 rows on one H200 (70B, none and EAGLE-3 K = 5, vLLM 0.25.1): "
    "3 % off on average, 6 % at worst, the crossover by 43 %; not measured for this pair, so worse "
    "here"
)
ERROR_MOE = (
    "a mixture of experts was not fitted: experts are taken to be chosen evenly. Against one "
    "public H100 report of gpt-oss-120b with EAGLE-3 (SGLang, K = 3) this says 0.9, 0.9, 1.9 times "
    "at batch 1, 8, 64 where 1.3, 1.3, 1.4 were measured: not even its direction holds, and only a "
    "bench tells"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is estimated."""

    gpu: Gpu
    tensor_parallel: int
    target: Shape
    kv_dtype: str
    draft: Shape | None
    draft_params: float | None
    draft_tensor_parallel: int
    method: str
    """`eagle3`, `p-eagle`, `ngram`, `draft_model`, …, `none`."""
    prompt_tokens: int = 1024
    output_tokens: int = 512
    """Of a typical request."""
    draft_in_pieces: bool = False
    """The draft's pass is no single graph: a draft model on vLLM's first runner."""


@dataclass(frozen=True, slots=True)
class Level:
    """One batch size."""

    batch: int
    tokens_per_s: float
    tokens_per_s_without: float
    best_k: int

    @property
    def speedup(self) -> float:
        """With over without."""
        return self.tokens_per_s / self.tokens_per_s_without


def acceptance_of(length: float, k: int) -> float:
    """The chance of each next token, of which K tokens would give this acceptance length."""
    if k < 1 or length <= 1:
        return 0.0
    low, high = 0.0, 0.9999
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if length_at(middle, k) < length else (low, middle)
    return (low + high) / 2


def length_at(chance: float, k: int) -> float:
    """Tokens per verify step, each next one being accepted with this chance: 1 + c + … + c^K."""
    return sum(chance**i for i in range(k + 1))


def tokens_per_s(setting: Setting, batch: int, k: int, length: float) -> float:
    """Output tokens per second of a closed loop of `batch` requests."""
    emitted = length if k else 1.0
    prefill = batch * emitted * setting.prompt_tokens / setting.output_tokens
    return batch * emitted / _step(setting, batch, k, _verified(setting, k, length), prefill)


def _verified(setting: Setting, k: int, length: float) -> float:
    """Tokens of one request in a step: n-gram drafts only where the text repeats itself."""
    if setting.method != "ngram" or not k:
        return k + 1.0
    return 1.0 + min(float(k), (length - 1) / MATCHED)


def _step(setting: Setting, batch: int, k: int, verified: float, prefill: float) -> float:
    target, over, gpu = setting.target, setting.tensor_parallel, setting.gpu
    tokens = batch * verified + prefill
    context = setting.prompt_tokens + setting.output_tokens / 2
    cached = target.kv_bytes_per_token(1, setting.kv_dtype) * context * batch
    weights = _weights_read(setting, batch * verified, prefill)
    rates = _rates(setting)
    memory = (weights + cached) / (gpu.bandwidth * rates.bandwidth_share * over)
    arithmetic = 2 * target.params_per_token * tokens / (rates.flops * over)
    step: float = (memory**rates.blend + arithmetic**rates.blend) ** (1 / rates.blend)
    step += STEP_S + REQUEST_S * batch
    if k and setting.method in SERIAL:
        step += SERIAL_S
    if over > 1:
        sent = tokens * target.hidden * 2 / LINK_BYTES_PER_S
        step += 2 * target.layers * (ALL_REDUCE_S + sent)
    return step + (_drafting(setting, batch, k, prefill) if k else 0.0)


def _weights_read(setting: Setting, decoded: float, prefill: float) -> float:
    """Bytes of weights a step reads; one with a prompt in it touches nearly every expert."""
    target, prompt = setting.target, setting.prompt_tokens
    share = min(1.0, prefill / prompt)
    plain, mixed = target.step_bytes(decoded), target.step_bytes(decoded + prompt)
    return plain * (1 - share) + mixed * share


class _Rates(NamedTuple):
    bandwidth_share: float
    flops: float
    """Reached, not the data sheet's."""
    blend: float


def _rates(setting: Setting) -> _Rates:
    flops = setting.gpu.flops
    if _multiplies_fp8(setting.target, setting.gpu):
        return _Rates(FP8_BANDWIDTH_SHARE, flops["fp8"] * FP8_FLOPS_SHARE, FP8_BLEND)
    if setting.target.quantization in INT4:
        return _Rates(INT4_BANDWIDTH_SHARE, flops["bf16"] * INT4_FLOPS_SHARE, INT4_BLEND)
    return _Rates(BANDWIDTH_SHARE, flops["bf16"] * FLOPS_SHARE, BLEND)


def _multiplies_fp8(target: Shape, gpu: Gpu) -> bool:
    return target.quantization == "fp8" and gpu.fp8_native


def _drafting(setting: Setting, batch: int, k: int, prefill: float) -> float:
    draft = setting.draft
    if draft is None:
        return 0.0
    over = setting.draft_tensor_parallel
    parallel = setting.method in {"p-eagle", "dflash", "dspark"}
    passes = 1 if parallel else k
    layer = PIECES_S if setting.draft_in_pieces else PASS_S * LAYER_SHARE
    launch = PASS_S + layer * (draft.layers - 1)
    size = _draft_bytes(setting, draft, batch * (k if parallel else 1))
    memory = passes * (size / (setting.gpu.bandwidth * BANDWIDTH_SHARE * over) + launch)
    params = _draft_params(setting, draft)
    flops = setting.gpu.flops["bf16"] * FLOPS_SHARE * over
    return memory + 2 * params * (batch * k + prefill) / flops


def _draft_bytes(setting: Setting, draft: Shape, tokens: int) -> float:
    if setting.draft_params:
        return _draft_params(setting, draft) * 2
    return draft.step_bytes(tokens)


def _draft_params(setting: Setting, draft: Shape) -> float:
    if setting.draft_params:
        return max(setting.draft_params - draft.embedding_params, 0.0)
    return float(draft.params_per_token)


def level(setting: Setting, batch: int, k: int, length: float) -> Level:
    """One batch size at K, beside none and beside the best K up to it."""
    chance = acceptance_of(length, k)
    by_k = [tokens_per_s(setting, batch, each, length_at(chance, each)) for each in range(k + 1)]
    best = max(range(k + 1), key=lambda each: by_k[each])
    return Level(batch, by_k[k], by_k[0], best)


def crossover(setting: Setting, k: int, length: float, most: int) -> int | None:
    """The first batch at which K drafts are slower than none; None: none up to `most`."""
    if level(setting, most, k, length).speedup >= 1:
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if level(setting, middle, k, length).speedup < 1 else (middle + 1, high)
        )
    return low


def schedule(
    setting: Setting, k: int, length: float, most: int, *, gain: float = 1.03
) -> list[tuple[int, int, int]]:
    """K by batch size: smaller only where it earns 3 % more than the K before."""
    chance, found = acceptance_of(length, k), [[1, most, k]]
    for batch in _grid(most):
        now = found[-1][2]
        rates = [
            tokens_per_s(setting, batch, each, length_at(chance, each)) for each in range(now + 1)
        ]
        best = max(range(now + 1), key=lambda each: rates[each])
        if best < now and rates[best] > rates[now] * gain:
            if batch == found[-1][0]:
                found[-1][2] = best
            else:
                found[-1][1] = batch - 1
                found.append([batch, most, best])
    return [(first, last, each) for first, last, each in found]


def _grid(most: int) -> Sequence[int]:
    return [n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512) if n <= most]


def break_even(setting: Setting, batch: int, k: int) -> float:
    """The acceptance length at which K drafts are as fast as none; above K + 1: never."""
    without = tokens_per_s(setting, batch, 0, 1.0)
    low, high = 1.0, 4.0 * (k + 1)
    for _ in range(30):
        middle = (low + high) / 2
        faster = tokens_per_s(setting, batch, k, middle) >= without
        low, high = (low, middle) if faster else (middle, high)
    return (low + high) / 2


def error_of(target: Shape, gpu: Gpu) -> str:
    """Where the estimate's error comes from, and how large it is known to be."""
    if target.moe:
        return ERROR_MOE
    if target.quantization in INT4:
        return ERROR_INT4
    return ERROR_FP8 if _multiplies_fp8(target, gpu) else ERROR
