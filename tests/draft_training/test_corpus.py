from pathlib import Path

import numpy as np
import pytest

from draft_training import corpus


def _made() -> corpus.Corpus:
    rng = np.random.default_rng(3)
    documents = [rng.integers(0, 50, n).astype(np.uint32) for n in rng.integers(9, 60, 40)]
    return corpus.Corpus(documents, [4] * 40)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    made = _made()
    corpus.write(tmp_path / "a.npz", made.documents, made.prompt_lengths)
    read = corpus.read([tmp_path / "a.npz"])
    assert [d.tolist() for d in read.documents] == [d.tolist() for d in made.documents]
    assert read.prompt_lengths == made.prompt_lengths
    assert not list(tmp_path.glob("*.part"))


def test_a_file_of_nothing_is_a_corpus_of_nothing(tmp_path: Path) -> None:
    corpus.write(tmp_path / "a.npz", [], [])
    assert len(corpus.read([tmp_path / "a.npz"])) == 0


def test_an_epoch_holds_every_document_once_and_no_batch_is_too_large() -> None:
    made = _made()
    packs = list(made.packs(5, 40, tokens=130, seed=1))
    assert sorted(i for pack in packs for i in pack) == list(range(5, 40))
    for pack in packs:
        longest = max(len(made.documents[i]) for i in pack)
        assert longest * len(pack) <= 130 or len(pack) == 1


def test_the_same_seed_gives_the_same_epoch_and_another_one_another() -> None:
    made = _made()
    first = list(made.packs(0, 40, 130, seed=7))
    assert first == list(made.packs(0, 40, 130, seed=7))
    assert first != list(made.packs(0, 40, 130, seed=8))


def test_only_answers_are_counted_for_the_draft_vocabulary() -> None:
    made = corpus.Corpus(
        [np.array([1, 1, 2, 3], np.uint32), np.array([9, 9, 3], np.uint32)], [2, 2]
    )
    assert made.frequencies(0, 10).tolist() == [0, 0, 1, 2, 0, 0, 0, 0, 0, 0]
    assert made.frequencies(1, 10).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert made.answer_tokens == 3


def test_a_batch_for_two_documents_is_not_a_pack_of_one_too_long() -> None:
    made = corpus.Corpus([np.zeros(n, np.uint32) for n in (10, 10, 21)], [1, 1, 1])
    assert sorted(map(len, made.packs(0, 3, tokens=20, seed=None))) == [1, 2]
    with pytest.raises(StopIteration):
        next(made.packs(0, 0, tokens=20, seed=None))
