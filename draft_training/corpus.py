"""Tokenised prompts and answers on disk, and batches of them.

A file holds `flat` (every document's token ids, one after another), `offsets` (n + 1) and
`prompt_len` (n; how many of a document's tokens are the prompt).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]

_SORTED_TOGETHER = 4096
"""Documents sorted by length among themselves: little padding, and still a random order."""


@dataclass(frozen=True)
class Corpus:
    """Documents: a prompt and the target's answer to it."""

    documents: list[Ids]
    prompt_lengths: list[int]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def answer_tokens(self) -> int:
        """Tokens that are answers."""
        return sum(map(len, self.documents)) - sum(self.prompt_lengths)

    def frequencies(self, start: int, vocabulary: int) -> npt.NDArray[np.int64]:
        """How often each token id stands in the answers from document `start` on; [vocabulary]."""
        answers = [
            d[p:] for d, p in zip(self.documents[start:], self.prompt_lengths[start:], strict=True)
        ]
        return np.bincount(np.concatenate(answers), minlength=vocabulary)

    def packs(self, start: int, stop: int, tokens: int, seed: int | None) -> Iterator[list[int]]:
        """Lists of documents of like length that fill one padded batch; one epoch.

        `seed` None: in order. The same seed gives the same epoch, so that a run can go on in it.
        """
        rng = np.random.default_rng(seed)
        order = np.arange(start, stop)
        if seed is not None:
            order = rng.permutation(order)
        made: list[list[int]] = []
        for at in range(0, len(order), _SORTED_TOGETHER):
            together = order[at : at + _SORTED_TOGETHER].tolist()
            made += list(_fill(together, self.documents, tokens))
        if seed is not None:
            rng.shuffle(made)
        yield from made


def _fill(order: Sequence[int], documents: Sequence[Ids], tokens: int) -> Iterator[list[int]]:
    pack: list[int] = []
    for i in sorted(order, key=lambda i: len(documents[i])):
        if pack and len(documents[i]) * (len(pack) + 1) > tokens:
            yield pack
            pack = []
        pack.append(i)
    if pack:
        yield pack


def write(path: Path, documents: Sequence[Any], prompt_lengths: Sequence[int]) -> None:
    """One file, whole or not at all."""
    arrays = [np.asarray(d, np.uint32) for d in documents]
    held = path.with_name(path.name + ".part")
    with held.open("wb") as file:
        np.savez(
            file,
            flat=np.concatenate(arrays) if arrays else np.empty(0, np.uint32),
            offsets=np.cumsum([0, *map(len, arrays)]),
            prompt_len=np.asarray(prompt_lengths, np.int64),
        )
    held.replace(path)


def read(paths: Sequence[Path], seed: int | None = None) -> Corpus:
    """The documents of these files, shuffled by `seed`."""
    documents: list[Ids] = []
    lengths: list[int] = []
    for path in paths:
        with np.load(path) as held:
            flat, offsets = held["flat"], held["offsets"]
            documents += [flat[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]
            lengths += held["prompt_len"].tolist()
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(documents)).tolist()
        documents, lengths = [documents[i] for i in order], [lengths[i] for i in order]
    return Corpus(documents, lengths)
