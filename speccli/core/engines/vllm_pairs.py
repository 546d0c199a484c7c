"""Which targets take an EAGLE-3 head, which head classes load, since which vLLM.

From `model_executor/models/registry.py` and the classes with SupportsEagle3 of the versions read.
"First" means first among those; vLLM's Transformers backend takes EAGLE-3 from 0.16 on, so an
architecture that is not listed may still work there.
"""

from __future__ import annotations

from collections.abc import Mapping

from speccli.core.engines.vllm_speculative import Version

EAGLE3_TARGETS: Mapping[str, Version] = {
    "LlamaForCausalLM": (0, 8, 5),
    "Qwen2ForCausalLM": (0, 10, 2),
    "Qwen3ForCausalLM": (0, 10, 2),
    "GptOssForCausalLM": (0, 11, 0),
    "Qwen3MoeForCausalLM": (0, 11, 2),
    "MiniCPMForCausalLM": (0, 12, 0),
    "Llama4ForConditionalGeneration": (0, 12, 0),
    "Qwen2_5_VLForConditionalGeneration": (0, 12, 0),
    "Qwen3VLForConditionalGeneration": (0, 12, 0),
    "AfmoeForCausalLM": (0, 16, 0),
    "LlavaForConditionalGeneration": (0, 16, 0),
    "Mistral3ForConditionalGeneration": (0, 16, 0),
    "DeepseekV2ForCausalLM": (0, 20, 2),
    "DeepseekV3ForCausalLM": (0, 20, 2),
    "KimiK25ForConditionalGeneration": (0, 20, 2),
    "Gemma4ForConditionalGeneration": (0, 20, 2),
    "MiniMaxM2ForCausalLM": (0, 20, 2),
}
"""vllm#25134, #25927: otherwise "Model does not support EAGLE3 interface", at load."""

HEADS: Mapping[str, Version] = {
    "LlamaForCausalLM": (0, 8, 5),
    "Eagle3LlamaForCausalLM": (0, 8, 5),
    "LlamaForCausalLMEagle3": (0, 10, 2),
    "Eagle3Speculator": (0, 10, 2),
    "Eagle3DraftModel": (0, 10, 2),
    "PEagleDraftModel": (0, 22, 0),
    "PeagleLlamaForCausalLM": (0, 22, 0),
    "PeagleQwen3ForCausalLM": (0, 22, 0),
    "Eagle3Qwen3ForCausalLM": (0, 24, 0),
    "Eagle3Qwen2_5vlForCausalLM": (0, 12, 0),
    "Eagle3Qwen3vlForCausalLM": (0, 12, 0),
    "Eagle3DeepseekV2ForCausalLM": (0, 20, 2),
    "Eagle3DeepseekV3ForCausalLM": (0, 20, 2),
    "Eagle3MiniMaxM2ForCausalLM": (0, 20, 2),
    "Qwen3ForCausalLM": (0, 24, 0),
    "DFlashDraftModel": (0, 20, 2),
    "DFlash2DraftModel": (0, 28, 0),
}
"""Classes of heads. A plain LlamaForCausalLM becomes Eagle3LlamaForCausalLM. LlamaForCausalLMEagle3
is SGLang's name: what trained it decides whether the weights' names fit (AngelSlim#15)."""
FOREIGN_HEADS = frozenset({"LlamaForCausalLMEagle3"})
QUANTIZED_TARGET_SINCE: Version = (0, 11, 2)
"""An unquantized head under a quantized target (PR #25883, #26590); 0.11.1 was not read."""
NORM_BEFORE_FC_SINCE: Version = (0, 18, 0)
"""PR #38111; older ones leave the norm out without a word."""
FC_NORM_SINCE: Version = (0, 22, 0)
PEAGLE_FORMAT_SINCE: Version = (0, 22, 0)
SPECULATORS_KNOWN = (0, 7)
"""Newest Speculators whose configurations are known to load."""
SPECULATORS_TROUBLE: Version = (0, 28, 0)
"""speculators#1065: 0.8.0.dev0 with norm_before_fc and four aux layers does not load here."""
ARCTIC = "arctic-inference 0.1.1"
"""What suffix decoding needs installed."""


def extra_slots(method: str, k: int) -> int:
    """Token slots a request needs beyond its own, which max_num_batched_tokens must leave."""
    return {"p-eagle": k - 1, "dflash": k, "dspark": k - 1, "draft_model": 1}.get(method, 0)
