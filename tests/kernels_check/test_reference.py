"""The float64 reference against the theorem it stands on, by enumeration, property and sample."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_check.reference import layers, philox, sampling, stats

weights = st.lists(st.floats(0, 10), min_size=2, max_size=12).filter(lambda w: sum(w) > 1e-3)


def distribution(w: list[float], size: int) -> sampling.Floats:
    row = np.resize(np.asarray(w, dtype=np.float64), size) + 1e-300
    return np.asarray(row / row.sum())


@given(weights, weights)
def test_what_is_emitted_has_the_targets_distribution(a: list[float], b: list[float]) -> None:
    p, q = distribution(a, len(a)), distribution(b, len(a))
    assert np.allclose(sampling.emitted(p, q), p, atol=1e-12)


@given(weights, weights)
def test_acceptance_is_a_probability_and_residual_a_distribution(
    a: list[float], b: list[float]
) -> None:
    p, q = distribution(a, len(a)), distribution(b, len(a))
    assert all(0 <= sampling.acceptance(p, q, token) <= 1 for token in range(len(a)))
    left = sampling.residual(p, q)
    assert left.sum() == pytest.approx(1)
    assert (left >= 0).all()


def test_the_joint_distribution_of_a_chain_is_the_targets() -> None:
    """Every draft, every outcome, weighed exactly: two positions, three tokens."""
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    q = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
    first, second = np.zeros(3), np.zeros(3)
    for d0, d1 in itertools.product(range(3), repeat=2):
        chance = q[0, d0] * q[1, d1]
        a0, a1 = (sampling.acceptance(p[i], q[i], d) for i, d in enumerate((d0, d1)))
        first[d0] += chance * a0
        first += chance * (1 - a0) * sampling.residual(p[0], q[0])
        second[d1] += chance * a0 * a1
        second += chance * a0 * (1 - a1) * sampling.residual(p[1], q[1])
    assert np.allclose(first, p[0])
    assert np.allclose(second / second.sum(), p[1])


@pytest.mark.parametrize(
    ("p", "q", "u", "emitted"),
    [
        pytest.param([0.25, 0.75], [0.5, 0.5], 0.5, [0, 9], id="u-equal-to-the-ratio-accepts"),
        pytest.param(
            [0.25, 0.75], [0.5, 0.5], np.nextafter(0.5, 1), [9], id="u-just-above-rejects"
        ),
        pytest.param([0.5, 0.5], [0.0, 1.0], 0.0, [9], id="what-cannot-be-drafted-is-rejected"),
        pytest.param([0.0, 1.0], [0.5, 0.5], 0.0, [9], id="what-cannot-be-sampled-is-rejected"),
    ],
)
def test_thresholds(p: list[float], q: list[float], u: float, emitted: list[int]) -> None:
    target = np.array([p, [0.5, 0.5]])
    step = sampling.Step(target, np.array([q]), [0], [u])
    assert sampling.verify(step, lambda position, weights: 9) == emitted


@pytest.mark.parametrize("certain", [False, True], ids=["drawn-drafts", "certain-drafts"])
def test_block_verification_emits_pairs_of_the_targets_distribution(certain: bool) -> None:
    """Every draft and every outcome of the uniforms, weighed exactly; what was not emitted yet is
    drawn from the target."""
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    q = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
    pairs = np.zeros((3, 3))
    drafts = [(0, 1)] if certain else list(itertools.product(range(3), repeat=2))
    for tokens in drafts:
        chance = 1.0 if certain else q[0, tokens[0]] * q[1, tokens[1]]
        h = sampling.block_thresholds(
            sampling.Step(p, None if certain else q, list(tokens), [0, 0])
        )
        for within in itertools.product([True, False], repeat=2):
            weight = chance * math.prod(
                t if yes else 1 - t for t, yes in zip(h, within, strict=True)
            )
            if weight == 0:
                continue
            uniforms = [0.0 if yes else 1.0 + t for t, yes in zip(h, within, strict=True)]
            step = sampling.Step(p, None if certain else q, list(tokens), uniforms)
            left: list[sampling.Floats] = []

            def pick(
                position: int, weights: sampling.Floats, left: list[sampling.Floats] = left
            ) -> int:
                left.append(weights)
                return -7

            emitted = sampling.verify_block(step, pick)
            first = left[0] if emitted[0] == -7 else np.eye(3)[emitted[0]]
            if len(emitted) == 1:
                second = p[1]
            else:
                second = left[0] if emitted[1] == -7 else np.eye(3)[emitted[1]]
            pairs += weight * np.outer(first, second)
    assert np.allclose(pairs, np.outer(p[0], p[1]))


def test_padding_is_never_accepted_and_takes_nothing_from_the_residual() -> None:
    target = np.array([[0.25, 0.75], [0.5, 0.5]])
    seen = []

    def pick(position: int, left: sampling.Floats) -> int:
        seen.append(left)
        return 1

    assert sampling.verify(sampling.Step(target, None, [-1], [0.0]), pick) == [1]
    assert np.allclose(seen[0], target[0])


def test_greedy_ends_with_the_first_token_that_differs() -> None:
    logits = np.array([[1.0, 3, 2], [5, 5, 0], [0, 1, 2]])
    assert sampling.verify_greedy(logits, [1, 0]) == [1, 0, 2]
    assert sampling.verify_greedy(logits, [1, 1]) == [1, 0]
    assert sampling.verify_greedy(logits, [2, 0]) == [1]
    assert sampling.verify_greedy(logits, []) == [1]


@pytest.mark.parametrize("draw", ["inversion", "race"])
def test_a_hundred_thousand_draws_pass_and_a_shifted_distribution_does_not(draw: str) -> None:
    rng = np.random.default_rng(7)
    p, q = distribution([4, 1, 0, 2, 3], 5), distribution([1, 3, 2, 2, 2], 5)
    left = sampling.residual(p, q)
    if draw == "inversion":
        drawn = [sampling.by_inversion(left, u) for u in rng.random(100_000)]
    else:
        drawn = [sampling.by_race(left, noise) for noise in rng.exponential(size=(100_000, 5))]
    counts = np.bincount(drawn, minlength=5)
    assert stats.chi_square(counts, left * 100_000)[2] > 1e-6
    assert stats.chi_square(counts, p * 100_000)[2] < 1e-6


def test_a_row_with_one_legal_token_is_certain_of_it_and_an_empty_one_of_nothing() -> None:
    row = np.full(8, -np.inf)
    assert sampling.softmax(row).sum() == 0
    row[7] = -3.0
    assert sampling.softmax(row)[7] == 1


def test_top_p_keeps_the_fewest_and_top_k_keeps_ties() -> None:
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    assert sampling.keep_top_p(logits, 0.75).tolist() == [True, True, False, False]
    assert sampling.keep_top_p(logits, 0.0).tolist() == [True, False, False, False]
    assert sampling.keep_top_k(logits, 3).tolist() == [True, True, True, True]
    assert sampling.keep_top_k(logits, 1).tolist() == [True, False, False, False]


def test_a_mask_is_read_bit_by_bit() -> None:
    words = np.array([[0b101, -1]], dtype=np.int32)
    assert sampling.unpack_mask(words, 34)[0].nonzero()[0].tolist() == [0, 2, 32, 33]


def test_philox_gives_the_published_words() -> None:
    """The known answer of its authors for a counter and a key of zero."""
    got = philox.philox(0, np.array([0], dtype=np.int64))
    assert [int(word[0]) for word in got] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_philox_uniforms_are_uniform_and_fold_the_sign() -> None:
    word = philox.philox(1234, np.arange(100_000, dtype=np.int64))[0]
    u = philox.uniform(word)
    assert 0 <= u.min() < u.max() < 1
    counts = np.bincount((u * 50).astype(int), minlength=50)
    assert stats.chi_square(counts, np.full(50, 2000.0))[2] > 1e-6
    edges = philox.uniform(np.array([0, 2**31 - 1, 2**31, 2**32 - 1], dtype=np.int64))
    assert edges.tolist() == [0, (2**31 - 1) * philox.UNIT, (2**31 - 1) * philox.UNIT, 0]


@pytest.mark.parametrize(
    ("statistic", "freedom", "p"),
    [(3.841, 1, 0.05), (18.307, 10, 0.05), (29.588, 10, 0.001), (124.342, 100, 0.05)],
)
def test_tail_of_chi_square_is_the_tables(statistic: float, freedom: int, p: float) -> None:
    assert stats.upper_gamma(freedom / 2, statistic / 2) == pytest.approx(p, rel=2e-3)


def test_a_token_that_cannot_come_and_does_is_certain_evidence() -> None:
    assert stats.chi_square([50, 49, 1], [50, 50, 0])[2] == 0


def test_attention_without_a_window_is_a_causal_softmax() -> None:
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(2, 2, 4)), rng.normal(size=(5, 1, 4)), rng.normal(size=(5, 1, 4))
    got = layers.attention(q, k, v)
    for row, upto in ((0, 4), (1, 5)):
        for head in range(2):
            scores = k[:upto, 0] @ q[row, head] / math.sqrt(4)
            assert np.allclose(got[row, head], sampling.softmax(scores) @ v[:upto, 0])


def test_a_window_hides_what_is_further_back() -> None:
    rng = np.random.default_rng(4)
    q, k, v = rng.normal(size=(1, 1, 4)), rng.normal(size=(9, 1, 4)), rng.normal(size=(9, 1, 4))
    near = layers.attention(q, k[-3:], v[-3:])
    assert np.allclose(layers.attention(q, k, v, window=2), near)


def test_routing_takes_the_largest_and_experts_are_weighed() -> None:
    rng = np.random.default_rng(5)
    weights, chosen = layers.route([[0.0, 2.0, 1.0]], 2)
    assert chosen.tolist() == [[1, 2]]
    assert weights.sum() == pytest.approx(1)
    x, up, down = rng.normal(size=(1, 4)), rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 4, 3))
    both = layers.experts(x, up, down, weights, chosen)
    alone = [layers.experts(x, up, down, [[1.0]], np.array([[e]])) for e in (1, 2)]
    assert np.allclose(both, weights[0, 0] * alone[0] + weights[0, 1] * alone[1])
