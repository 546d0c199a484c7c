"""Philox4x32-10 (Salmon et al. 2011), on whole arrays; NumPy's and torch's int64 alike.

Only operators are used, so that the same lines run on either. Signed 64-bit products wrap, and the
mask after each shift takes out exactly the bits that the unsigned product would have.
"""

from __future__ import annotations

from typing import Any

MASK = 0xFFFFFFFF
ROUND_A, ROUND_B = 0xD2511F53, 0xCD9E8D57
KEY_A, KEY_B = 0x9E3779B9, 0xBB67AE85
UNIT = 4.6566127342e-10
"""The step by which 31 random bits become a float, just under 2^-31."""


def philox(seed: int, offset: Any) -> tuple[Any, Any, Any, Any]:
    """Four 32-bit words for each 64-bit counter in `offset` (an int64 array), key `seed`."""
    c0, c1 = offset & MASK, (offset >> 32) & MASK
    c2, c3 = c0 * 0, c0 * 0
    k0, k1 = seed & MASK, (seed >> 32) & MASK
    for _ in range(10):
        high_a, low_a = _product(c0, ROUND_A)
        high_b, low_b = _product(c2, ROUND_B)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + KEY_A) & MASK, (k1 + KEY_B) & MASK
    return c0, c1, c2, c3


def _product(a: Any, constant: int) -> tuple[Any, Any]:
    """High and low words of a 32 x 32 bit product, in halves so that nothing exceeds 63 bits."""
    low_part = a * (constant & 0xFFFF)
    high_part = a * (constant >> 16)
    middle = high_part + (low_part >> 16)
    return (middle >> 16) & MASK, ((middle << 16) | (low_part & 0xFFFF)) & MASK


def uniform(word: Any) -> Any:
    """A 32-bit word as Triton's `rand` makes it a float64 in [0, 1): its sign folded away."""
    folded = word + (word >> 31) * (MASK - 2 * word)
    return folded * UNIT
