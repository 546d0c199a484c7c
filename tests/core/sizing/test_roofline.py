"""The estimate against the levels it was fitted to, and properties that hold anywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccli.core.sizing import roofline
from speccli.core.sizing.gpus import GPUS
from speccli.core.sizing.shape import Shape, shape_of


def dense(hidden: int, layers: int, heads: int, wide: int, vocab: int) -> Shape:
    return shape_of(
        {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": wide,
            "vocab_size": vocab,
        }
    )


SHAPES = {"8b": dense(4096, 32, 32, 14336, 128256), "32b": dense(5120, 64, 40, 27648, 152064)}
K = {"8b": 3, "32b": 5}
MEASURED: list[tuple[str, int, float, float | None, float | None]] = [
    ("8b", 1, 197, 378, 2.38),
    ("8b", 8, 1444, 2484, 2.40),
    ("8b", 32, 4520, 6944, 2.35),
    ("8b", 64, 7399, 9176, 2.30),
    ("8b", 128, 10327, 7935, 2.31),
    ("32b", 1, 52.7, 118, 2.68),
    ("32b", 8, 389, 800, 2.56),
    ("32b", 32, 1402, 1848, 2.62),
    ("32b", 64, 2160, 2225, 2.65),
    ("32b", 128, 3209, None, None),
]
"""One H200, vLLM 0.25.1, BF16, 129 prompt and 119 output tokens, closed loop: tok/s without and
with EAGLE-3, and the acceptance length."""


def setting(name: str) -> roofline.Setting:
    target = SHAPES[name]
    hidden, wide = target.hidden, target.intermediate
    head = 3 * hidden * hidden + hidden * (3 * hidden + 4 * 1024) + 3 * hidden * wide
    params = head + (32000 + target.vocab) * hidden
    one = replace(target, layers=1)
    return roofline.Setting(GPUS["h200"], 1, target, "auto", one, params, 1, "eagle3", 129, 119)


def test_the_error_is_the_one_that_is_printed() -> None:
    errors, speedups = [], []
    for name, batch, without, with_, length in MEASURED:
        plain = roofline.tokens_per_s(setting(name), batch, 0, 1.0)
        errors.append(abs(plain / without - 1))
        if with_ is not None and length is not None:
            fast = roofline.tokens_per_s(setting(name), batch, K[name], length)
            errors.append(abs(fast / with_ - 1))
            speedups.append(abs(fast / plain - with_ / without))
    assert len(errors) == 19
    assert sum(errors) / len(errors) < 0.055
    assert 0.15 < max(errors) < 0.185
    assert max(speedups) < 0.25
    for told in ("19 levels", "5 % off", "18 % at worst", "by 0.2"):
        assert told in roofline.ERROR


def test_a_mixture_of_experts_says_that_it_was_not_fitted() -> None:
    mixture = replace(SHAPES["8b"], experts=8, active_experts=2)
    assert roofline.error_of(mixture) == roofline.ERROR_MOE
    assert roofline.error_of(SHAPES["8b"]) == roofline.ERROR


@given(st.floats(1.0, 7.9), st.integers(1, 7))
def test_acceptance_and_length_are_each_others_inverse(length: float, k: int) -> None:
    if length <= k + 0.99:
        chance = roofline.acceptance_of(length, k)
        assert roofline.length_at(chance, k) == pytest.approx(length, abs=1e-3)


@given(st.integers(1, 256), st.integers(1, 8), st.floats(1.0, 4.0), st.sampled_from(["8b", "32b"]))
def test_more_accepted_tokens_are_never_slower(
    batch: int, k: int, length: float, name: str
) -> None:
    less = roofline.tokens_per_s(setting(name), batch, k, length)
    more = roofline.tokens_per_s(setting(name), batch, k, length + 0.5)
    assert 0 < less < more


@given(st.integers(1, 128), st.integers(1, 8))
def test_at_the_break_even_length_both_are_as_fast(batch: int, k: int) -> None:
    length = roofline.break_even(setting("8b"), batch, k)
    if length < 4 * (k + 1) - 0.01:
        fast = roofline.tokens_per_s(setting("8b"), batch, k, length)
        assert fast == pytest.approx(roofline.tokens_per_s(setting("8b"), batch, 0, 1.0), rel=1e-3)


def test_k_falls_as_the_batch_grows_and_the_ranges_meet() -> None:
    rows = roofline.schedule(setting("8b"), 5, 2.6, 256)
    assert rows[0][0] == 1
    assert rows[-1][1] == 256
    assert [k for *_, k in rows] == sorted((k for *_, k in rows), reverse=True)
    assert rows[-1][2] < rows[0][2]
    for (_, last, _), (first, _, _) in zip(rows, rows[1:], strict=False):
        assert first == last + 1


def test_the_crossover_lies_where_it_was_measured() -> None:
    """Between 64 and 128 for the 8B with K = 3, near 64 for the 32B with K = 5."""
    found = roofline.crossover(setting("8b"), 3, 2.31, 256)
    assert found is not None
    assert 64 < found <= 128
    other = roofline.crossover(setting("32b"), 5, 2.63, 256)
    assert other is not None
    assert 40 <= other <= 80


def test_p_eagle_drafts_in_one_pass() -> None:
    base = setting("8b")
    chain = roofline.tokens_per_s(base, 1, 7, 3.0)
    assert chain < roofline.tokens_per_s(replace(base, method="p-eagle"), 1, 7, 3.0)


def ngram(method: str = "ngram") -> roofline.Setting:
    return replace(setting("8b"), method=method, draft=None, draft_params=None)


@pytest.mark.parametrize(
    ("batch", "length", "measured"),
    [(8, 1.416, 1354), (32, 1.415, 4913), (64, 1.406, 7159), (128, 1.413, 9647)],
)
def test_n_gram_is_what_a_bench_measured(batch: int, length: float, measured: float) -> None:
    """docs/evidence/bench-h200-8b.json; batch 1 is where its constants come from."""
    told = roofline.tokens_per_s(ngram(), batch, 3, length)
    assert told == pytest.approx(measured, rel=0.15)


def test_a_step_of_n_gram_waits_for_python_where_scheduling_is_not_asynchronous() -> None:
    waits = roofline.tokens_per_s(ngram(), 1, 3, 1.4)
    assert waits < 0.8 * roofline.tokens_per_s(ngram("ngram_gpu"), 1, 3, 1.4)


def test_n_gram_verifies_only_what_it_found() -> None:
    """At a large batch arithmetic decides, and few requests have a draft in a step."""
    rare, often = (roofline.tokens_per_s(ngram(), 128, 3, length) for length in (1.1, 1.4))
    assert rare < often
    assert rare > 0.7 * roofline.tokens_per_s(ngram(), 128, 0, 1.0)
