"""What is asked of the target: by the shares of its sources, and to measure with."""

from pathlib import Path

import pytest

from draft_training import answers, corpus, job, prompts
from draft_training.events import Failed


def test_answers_to_tests_that_are_asked_no_more_are_removed(tmp_path: Path) -> None:
    made = job.from_dict({"target": "t", "out": str(tmp_path), "training": {"steps": 1}})
    made.work.mkdir()
    before = {"same": [[1, 2], [3]], "more": [[4]], "gone": [[5]]}
    prompts._ask(made, before)
    for test in (*before, "lent"):
        corpus.write(answers.held_file(made, test), [[1, 2, 3]], [1])
    prompts._ask(made, {"same": [[1, 2], [3]], "more": [[4], [6]], "new": [[7]], "lent": [[8]]})
    # Answers that were lent without what was asked are taken as they are.
    assert sorted(map(answers.test_of, answers.held_files(made))) == ["lent", "same"]
    assert [answers.test_of(path) for path in answers._unanswered(made)] == ["more", "new"]
    assert not (made.work / "asked-gone.npz").exists()


def test_shares_are_of_what_is_asked_and_not_of_what_was_too_long(tmp_path: Path) -> None:
    made = job.from_dict(
        {
            "target": "t",
            "out": str(tmp_path),
            "training": {"steps": 1},
            "shares": {"served": 0.75, "other": 0.25},
        }
    )
    # Mixed three to one before; then half of what was served turned out to be too long.
    kept: list[tuple[str | None, list[int]]] = [("served", [n]) for n in range(15)]
    kept += [("other", [100 + n]) for n in range(10)]
    mixed, facts = prompts._mixed(made, kept)
    assert facts == {
        "by_source": {"served": 15, "other": 5},
        "ends_with": "served",
        "not_used": 5,
    }
    for end in (4, 8, 16):
        assert sum(ids[0] < 100 for ids in mixed[:end]) == 3 * end // 4
    with pytest.raises(Failed, match="every prompt of other is too long"):
        prompts._mixed(made, kept[:15])


def test_without_shares_prompts_stay_as_they_come(tmp_path: Path) -> None:
    made = job.from_dict({"target": "t", "out": str(tmp_path), "training": {"steps": 1}})
    assert prompts._mixed(made, [(None, [3]), (None, [1])]) == ([[3], [1]], {})
