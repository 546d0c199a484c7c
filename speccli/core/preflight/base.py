"""What a pre-flight rule is, and what it concludes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speccli.core.engines.vllm_speculative import Version
from speccli.core.findings.base import WORST_FIRST, Severity
from speccli.core.sizing.gpus import Gpu


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of a model without loading it."""

    name: str
    config: Mapping[str, Any]
    weights: frozenset[str] | None = None
    """Names of its weights; None: not known."""
    complete: bool = True
    """Whether this is all of its config.json, so that a missing key proves something."""
    assumed: bool = False
    """Whether its shape is only assumed, its config.json never having been read."""

    @property
    def text(self) -> Mapping[str, Any]:
        """The language model's keys: inside Speculators' and multimodal configurations too."""
        for key in ("transformer_layer_config", "text_config"):
            inner = self.config.get(key)
            if isinstance(inner, Mapping):
                return {**self.config, **inner}
        return self.config

    def number(self, key: str) -> int | None:
        """A whole number of its configuration; None where there is none."""
        value = self.text.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """Its classes."""
        told = self.config.get("architectures")
        return tuple(map(str, told)) if isinstance(told, list) else ()


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, a draft, and how they are to be served."""

    target: Model
    draft: Model | None
    method: str
    """specctl's word: `eagle3`, `p-eagle`, `draft_model`, `ngram`, …"""
    version: Version = (0, 32, 0)
    k: int = 3
    max_model_len: int | None = None
    kv_cache_dtype: str = "auto"
    gpu: Gpu | None = None
    tensor_parallel: int = 1
    draft_tensor_parallel: int | None = None
    lora: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    quantization: str | None = None
    """The target's, where a recipe says it; None: as its config.json says."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def eagle(self) -> bool:
        """Whether the draft is a head on the target's hidden states."""
        return self.method in {"eagle", "eagle3", "p-eagle", "dflash", "dspark"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule concludes."""

    rule: str
    """`P-VOCAB`: which rule."""
    severity: Severity
    evidence: str
    """The numbers, and the keys they come from."""
    cause: str
    action: str
    """The change to make."""
    thread: str = ""
    """Where others met it."""
    subject: str = "pair"

    @property
    def code(self) -> str:
        """`PAIR_VOCAB`, `PLAN_MEMORY`, `DEPLOY_STOCK`: the finding's code."""
        head, _, rest = self.rule.partition("-")
        return f"{_HEADS[head]}_{rest.replace('-', '_')}"


_HEADS = {"P": "PAIR", "R": "PLAN", "D": "DEPLOY"}
"""What a rule is about: the pair, the recipe, the cluster it is to run on."""
Rule = Callable[[Pair], Iterable[Verdict]]


def worst(verdicts: Sequence[Verdict]) -> Severity | None:
    """The gravest severity; None where nothing was found."""
    found = {verdict.severity for verdict in verdicts}
    return next((each for each in WORST_FIRST if each in found), None)


def in_order(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Worst first, otherwise as the rules stand."""
    return sorted(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.severity))
