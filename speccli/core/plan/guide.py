"""When to draft with what: the decision guide, and which of its lines speak to a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from speccli.core.plan.build import Plan

_LAB = "at batch 1 (stand-ins on an H200)"
"""Chat prompts of ShareGPT, vLLM 0.25.1, K = 3 and 5: docs/report."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of the guide."""

    when: str
    use: str
    why: str
    applies: bool = False
    """Whether the recipe at hand is in this case."""


def guide(plan: Plan) -> list[Advice]:
    """The guide, the lines about this recipe marked."""
    return [*_methods(plan.facts.recipe.draft.method), *_cases(plan)]


def _methods(method: str) -> list[Advice]:
    return [
        Advice(
            "a head was trained for just this target",
            "EAGLE-3, K = 3",
            "the most accepted tokens for the least draft; of K = 1 to 7 the best one over 1 to "
            f"128 requests (8B); 1.8 (8B) and 2.0 times (32B, K = 5) {_LAB}",
            method in {"eagle", "eagle3"},
        ),
        Advice(
            "a P-EAGLE head is published, answers are long, prompts short",
            "P-EAGLE, K = 4 to 7",
            "all K tokens in one pass of the draft; vLLM serves it on the V1 runner; 1.4 times "
            f"where EAGLE-3 had 1.8, with a head of short training at K = 3 {_LAB}",
            method == "p-eagle",
        ),
        Advice(
            "answers repeat their prompts: edits, RAG, JSON",
            "n-gram",
            "no weights and no cache; it costs where nothing repeats (vllm#27379, #19254): 0.96 "
            f"times on chat {_LAB}",
            method in {"ngram", "ngram_gpu"},
        ),
        Advice(
            "no head, but a small model with the same tokenizer",
            "draft model, K = 3",
            "reverses early: batch 32 with 1B under 70B (vllm#17984); 97 % accepted was 0.5 times "
            "as fast with 30 layers, launched one by one by vLLM 0.25's runner; fewer cost less "
            f"{_LAB}",
            method == "draft_model",
        ),
    ]


def _cases(plan: Plan) -> list[Advice]:
    recipe, estimate = plan.facts.recipe, plan.estimate
    serving, work = recipe.serving, recipe.workload
    crossover = f"about {estimate.crossover} (estimate)" if estimate and estimate.crossover else ""
    if plan.measured is not None and plan.measured.crossover is not None:
        crossover = f"{plan.measured.crossover.words} ({plan.measured.how})"
    large = serving.max_num_seqs >= 64
    return [
        Advice(
            "batches of 64 and more most of the time",
            "none, or a smaller K",
            "stand-ins on an H200: 1.25 (8B) and 0.85 times (32B) at 64, 0.86 and 0.72 at 128"
            + (f"; here {crossover}" if crossover else ""),
            large,
        ),
        Advice(
            "JSON schema or grammar on many requests",
            "a pool of its own: none, or n-gram",
            "measured 1.40 times at batch 1, 0.87 at 32 (8B stand-in); "
            "P-EAGLE's later positions collapse (vllm#42004), engines died (#27969, #47025)",
            serving.structured_output,
        ),
        Advice(
            "prompts beyond what the draft was trained at",
            "a long-context head, or none",
            "acceptance length 2.3 at 2k fell to 1.1 at 20k (sglang#6783)",
            work.prompt_tokens > 8192,
        ),
        Advice(
            "temperature well above 0",
            "draft.sampling probabilistic, or a smaller K",
            "greedy drafts are accepted less: 27 % at 0.7 where greedy answers had 43 % (8B "
            "stand-in); the other kind takes memory",
            work.temperature > 0,
        ),
        Advice(
            "min_p, logit_bias, many logprobs in requests",
            "none",
            "refused with HTTP 400, or speculation goes off for them (vllm#42744, #34497)",
        ),
    ]
