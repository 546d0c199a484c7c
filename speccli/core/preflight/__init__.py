"""Pre-flight of a pair: what would fail, or quietly not work, said from config files alone.

A rule is a small function: a pair in, verdicts out, no I/O. `files` reads what they judge.
"""

from __future__ import annotations

from speccli.core.preflight import hardware, kinds, shapes, versions
from speccli.core.preflight.base import Model, Pair, Rule, Verdict, in_order, worst

RULES: tuple[Rule, ...] = (
    kinds.there,
    shapes.hidden,
    shapes.vocab,
    shapes.d2t,
    kinds.verifier,
    shapes.aux_layers,
    shapes.aux_reader,
    shapes.positions,
    versions.quantized_target,
    kinds.target_class,
    kinds.draft_class,
    kinds.masks,
    kinds.method,
    kinds.recurrent,
    versions.norm_before_fc,
    versions.speculators,
    hardware.kv_triple,
    hardware.tensor_parallel,
    hardware.draft_parallel_saving,
    hardware.lora,
    shapes.slots,
)
"""Every rule, in the order in which its verdicts are told."""


def check_pair(pair: Pair) -> list[Verdict]:
    """Every verdict, worst first."""
    return in_order(verdict for rule in RULES for verdict in rule(pair))


__all__ = ["RULES", "Model", "Pair", "Verdict", "check_pair", "in_order", "worst"]
