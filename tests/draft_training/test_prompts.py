"""What is asked of the target to measure with, when that changes."""

from pathlib import Path

from draft_training import answers, corpus, job, prompts


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
