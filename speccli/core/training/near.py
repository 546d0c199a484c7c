"""Whether a prompt asks what one of a test asks, in the same words or nearly."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

NEAR = 0.5
"""Of all triples of words in two prompts, how many both have, from which on they are one."""
_WORDS = 200
"""Of a prompt: what comes after them is mostly what it is about, not what it asks."""
_LEAST = 4
"""Triples: two prompts of fewer are the same one or not."""
_WORD = re.compile(r"\w+")


class Known:
    """Prompts to compare with."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._same: set[str] = set()
        self._sizes: list[int] = []
        self._where: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for text in texts:
            self._same.add(_flat(text))
            triples = _triples(text)
            for triple in triples:
                self._where[triple].append(len(self._sizes))
            self._sizes.append(len(triples))

    def has(self, text: str) -> bool:
        """Whether one of them is this one, or near it."""
        if _flat(text) in self._same:
            return True
        triples = _triples(text)
        if len(triples) < _LEAST:
            return False
        both = Counter(i for triple in triples for i in self._where.get(triple, ()))
        return any(
            shared / (len(triples) + self._sizes[i] - shared) >= NEAR for i, shared in both.items()
        )


def _flat(text: str) -> str:
    return " ".join(text.lower().split())[:300]


def _triples(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())[:_WORDS]
    return set(zip(words, words[1:], words[2:], strict=False))
