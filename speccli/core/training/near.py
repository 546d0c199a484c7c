"""Whether a prompt asks what one of a test asks, in the same words or nearly."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from itertools import islice

NEAR = 0.5
"""Of all triples of words in two prompts, how many both have, from which on they are one."""
_TRIPLES = 200
"""Of a prompt: what comes after them is mostly what it is about, not what it asks."""
_READ = 2000
"""Words of a prompt that are looked at, for its own may stand behind a long preamble."""
_LEAST = 4
"""Triples: two prompts of fewer are the same one or not."""
_COMMON = 0.05
"""Of a source's prompts: a triple that so many have is its application's and not a question's."""
_SEVERAL = 20
"""Prompts, at least: in a small source a question that is asked again is no preamble."""
_WORD = re.compile(r"\w+")

_Triple = tuple[str, str, str]


class Known:
    """Prompts to compare with.

    `among` are all prompts that will be asked about, if they are of one source: what many of them
    have in common, as the preamble of an application, does not count.
    """

    def __init__(self, texts: Iterable[str], among: Iterable[str] = ()) -> None:
        self._common = _common(among)
        self._same: set[str] = set()
        self._sizes: list[int] = []
        self._where: dict[_Triple, list[int]] = defaultdict(list)
        for text in texts:
            self._same.add(_flat(text))
            triples = self._own(text)
            for triple in triples:
                self._where[triple].append(len(self._sizes))
            self._sizes.append(len(triples))

    def has(self, text: str) -> bool:
        """Whether one of them is this one, or near it."""
        if _flat(text) in self._same:
            return True
        triples = self._own(text)
        if len(triples) < _LEAST:
            return False
        both = Counter(i for triple in triples for i in self._where.get(triple, ()))
        return any(
            shared / (len(triples) + self._sizes[i] - shared) >= NEAR for i, shared in both.items()
        )

    def _own(self, text: str) -> Set[_Triple]:
        return set(islice((t for t in _triples(text) if t not in self._common), _TRIPLES))


def _common(texts: Iterable[str]) -> Set[_Triple]:
    counted: Counter[_Triple] = Counter()
    prompts = 0
    for prompts, text in enumerate(texts, 1):  # noqa: B007 - their number is asked for after it
        counted.update(set(_triples(text)))
    least = max(_SEVERAL, _COMMON * prompts)
    return {triple for triple, count in counted.items() if count >= least}


def _flat(text: str) -> str:
    return " ".join(text.lower().split())


def _triples(text: str) -> Iterator[_Triple]:
    words = _WORD.findall(text.lower())[:_READ]
    return zip(words, words[1:], words[2:], strict=False)
