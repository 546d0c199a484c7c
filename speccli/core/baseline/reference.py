"""Public acceptance figures, as baselines. Not of this pool: they say what a sound pair reaches.

From vLLM's own acceptance tests (PR #32030, merged 2026-01-09): philschmid/mt-bench, 80 prompts,
K = 3, EAGLE-3, within 2 % of the length.
"""

from __future__ import annotations

from speccli.core.baseline.model import Baseline, Key
from speccli.core.stats.drift import Dispersion, per_draft_variance

_ROWS = (
    ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", 2.60, (0.73, 0.52, 0.35)),
    ("qwen3-8b", "Qwen/Qwen3-8B", 2.26, (0.65, 0.40, 0.20)),
    ("gpt-oss-20b", "openai/gpt-oss-20b", 2.56, (0.72, 0.51, 0.32)),
)
PREFIX = "reference/"


def _row(name: str, target: str, length: float, positions: tuple[float, ...]) -> Baseline:
    rate = (length - 1) / len(positions)
    scatter = Dispersion(per_draft=per_draft_variance(positions, rate), clustering=2.0)
    return Baseline(
        name=PREFIX + name,
        key=Key("vllm", target=target, method="eagle3", k=3, dataset="philschmid/mt-bench"),
        rate=rate,
        length=length,
        positions=positions,
        drafts=0.0,
        origin="reference",
        source="public reference: vLLM PR #32030, philschmid/mt-bench, 80 prompts, K=3",
        tolerance=0.02,
        fleet=scatter,
        engine=scatter,
    )


REFERENCES: tuple[Baseline, ...] = tuple(_row(*row) for row in _ROWS)
