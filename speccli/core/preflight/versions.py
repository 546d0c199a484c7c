"""Rules about which version of vLLM knows what of a draft's configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speccli.core.engines import vllm_pairs as known
from speccli.core.engines.vllm_speculative import dotted
from speccli.core.preflight.base import Pair, Verdict
from speccli.core.sizing.shape import quantization_of


def norm_before_fc(pair: Pair) -> Iterator[Verdict]:
    """P-NORM-FC: a norm that an older vLLM leaves out without a word."""
    if not pair.eagle or pair.draft is None:
        return
    config = pair.draft.config
    nested = config.get("eagle_config")
    wants = config.get("norm_before_fc") or (
        isinstance(nested, dict) and nested.get("norm_before_fc")
    )
    if wants and pair.version < known.NORM_BEFORE_FC_SINCE:
        yield Verdict(
            "P-NORM-FC",
            "critical",
            f"norm_before_fc true, vLLM {dotted(pair.version)}",
            f"known from {dotted(known.NORM_BEFORE_FC_SINCE)} on; older ones leave the norm out",
            f"use vLLM {dotted(known.NORM_BEFORE_FC_SINCE)} or newer",
            "vllm PR#38111, speculators#1065",
        )
    if config.get("fc_norm") and pair.version < known.FC_NORM_SINCE:
        yield Verdict(
            "P-NORM-FC",
            "critical",
            f"fc_norm true, vLLM {dotted(pair.version)}",
            f"known from {dotted(known.FC_NORM_SINCE)} on",
            f"use vLLM {dotted(known.FC_NORM_SINCE)} or newer",
            "speculators#1065",
        )


def speculators(pair: Pair) -> Iterator[Verdict]:
    """P-SPECULATORS: its configuration moves with its version, and vLLM follows later."""
    if pair.draft is None:
        return
    told = str(pair.draft.config.get("speculators_version") or "")
    match = re.match(r"(\d+)\.(\d+)", told)
    if match is None:
        return
    version = (int(match[1]), int(match[2]))
    if version > known.SPECULATORS_KNOWN and pair.version <= known.SPECULATORS_TROUBLE:
        yield Verdict(
            "P-SPECULATORS",
            "critical" if pair.draft.config.get("norm_before_fc") else "warning",
            f"speculators_version {told}, vLLM {dotted(pair.version)}",
            "configurations of 0.8 do not load in vLLM 0.28",
            "use a newer vLLM, or export with Speculators 0.7",
            "speculators#1065, vllm#54526",
        )
    if (
        pair.draft.config.get("speculators_model_type") == "peagle"
        and pair.version < known.PEAGLE_FORMAT_SINCE
    ):
        yield Verdict(
            "P-SPECULATORS",
            "critical",
            f"Speculators' P-EAGLE format, vLLM {dotted(pair.version)}",
            f"read from {dotted(known.PEAGLE_FORMAT_SINCE)} on",
            "use a newer vLLM, or the plain format",
        )


def quantized_target(pair: Pair) -> Iterator[Verdict]:
    """P-QUANT: an unquantized head must not be read as the target's quantization."""
    if not pair.eagle or pair.draft is None:
        return
    target = pair.quantization or quantization_of(pair.target.config)
    draft = quantization_of(pair.draft.config)
    if target in {"bf16", "fp16"} or draft != "bf16":
        return
    if pair.version < known.QUANTIZED_TARGET_SINCE:
        yield Verdict(
            "P-QUANT",
            "critical",
            f"target {target}, draft unquantized, vLLM {dotted(pair.version)}",
            "the head inherits the target's quantization: KeyError 'layers.0.mlp.down_proj.weight'",
            f"use vLLM {dotted(known.QUANTIZED_TARGET_SINCE)} or newer",
            "vllm PR#25883, #26590",
        )
