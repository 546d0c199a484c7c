"""The stages as processes: a script plays the Python that has torch."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from draft_training import job as stage_job
from speccli.core.bench.progress import Progress
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.training import flow, job, lock
from speccli.core.training.job import Prepared, Wanted
from speccli.core.training.run import StageError, Told, run

STAGES = ("prompts", "answers", "train")


def _python(folder: Path, body: str) -> Path:
    """A program called as `PROGRAM -m draft_training STAGE JOB`."""
    path = folder / "python"
    source = (
        f"#!{sys.executable}\nimport json, sys, os, time, signal\nfrom pathlib import Path\n"
        "stage, file = sys.argv[3], Path(sys.argv[4])\n"
        "tell = lambda **facts: print(json.dumps(facts), flush=True)\n"
    )
    path.write_text(source + textwrap.dedent(body))
    path.chmod(0o755)
    return path


def _prepared(folder: Path, **training: float) -> Prepared:
    (folder / "work").mkdir(parents=True, exist_ok=True)
    document = {
        "target": "t",
        "out": str(folder),
        "training": {"minutes": None, "steps": 5, **training},
    }
    file = folder / "job.json"
    file.write_text(json.dumps(document))
    return Prepared(file, document, (), 10)


_WORKS = """
    with (file.parent / "ran").open("a") as log: log.write(stage + "\\n")
    print("a library's own word, and no event")
    tell(event="progress", stage=stage, share=0.5, eta_s=1.0)
    tell(event="done", stage=stage, facts={"made": stage})
"""


def test_stages_run_in_order_and_what_is_done_is_kept(tmp_path: Path) -> None:
    python, told = _python(tmp_path, _WORKS), list[Told]()
    done = run(_prepared(tmp_path), python, STAGES, told.append)
    assert {name: facts["made"] for name, facts in done.items()} == {n: n for n in STAGES}
    assert [t.stage for t in told if t.event == "progress"] == list(STAGES)

    again = list[Told]()
    run(_prepared(tmp_path), python, STAGES, again.append)
    assert [t.event for t in again] == ["kept"] * 3
    assert (tmp_path / "ran").read_text().split() == list(STAGES)


def test_a_stage_is_told_which_are_to_follow_it_and_not_what_is_done(tmp_path: Path) -> None:
    python = _python(tmp_path, _WORKS.replace("stage + ", "' '.join([stage, *sys.argv[5:]]) + "))
    run(_prepared(tmp_path), python, STAGES, lambda told: None)
    run(_prepared(tmp_path, steps=9), python, STAGES, lambda told: None)
    asked = (tmp_path / "ran").read_text().splitlines()
    assert asked == ["prompts answers train", "answers train", "train", "train"]


def test_more_steps_train_again_and_nothing_else(tmp_path: Path) -> None:
    python = _python(tmp_path, _WORKS)
    run(_prepared(tmp_path), python, STAGES, lambda told: None)
    run(_prepared(tmp_path, steps=9), python, STAGES, lambda told: None)
    assert (tmp_path / "ran").read_text().split() == [*STAGES, "train"]


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({}, ()),
        ({"init": "heads/other"}, ("prompts", "train", "export")),
        ({"aux_layers": [1, 2, 3]}, ("train", "export")),
        ({"training": {"steps": 5, "lr": 0.1}}, ("train", "export")),
        ({"training": {"steps": 5, "batch_tokens": 99}}, ()),
        ({"tests_sha256": "other"}, ("prompts", "answers", "train")),
    ],
)
def test_what_a_change_concerns_is_done_again_and_the_answers_are_kept(
    tmp_path: Path, changes: dict[str, object], stages: tuple[str, ...]
) -> None:
    python, first = _python(tmp_path, _WORKS), _prepared(tmp_path)
    run(first, python, job.STAGES, lambda told: None)
    (tmp_path / "ran").unlink()
    checkpoint = tmp_path / "work" / "checkpoint.pt"
    checkpoint.write_bytes(b"of before: the training says what becomes of it")
    changed = Prepared(first.file, {**first.document, **changes}, (), 10)
    again = list[Told]()
    run(changed, python, job.STAGES, again.append)
    assert [t.stage for t in again if t.event != "kept"] == list(stages)
    assert checkpoint.exists()


def test_a_checkpoint_of_other_answers_is_removed(tmp_path: Path) -> None:
    made = """
        many = file.parent / "many"
        tell(event="done", stage=stage, facts={"answers": int(many.read_text())})
    """
    python, first = _python(tmp_path, made), _prepared(tmp_path)
    checkpoint = tmp_path / "work" / "checkpoint.pt"
    for tests, many, stays in (("a", 5, False), ("b", 5, True), ("c", 6, False)):
        checkpoint.write_bytes(b"")
        (tmp_path / "many").write_text(str(many))
        changed = Prepared(first.file, {**first.document, "tests_sha256": tests}, (), 10)
        run(changed, python, ("answers",), lambda told: None)
        assert checkpoint.exists() is stays


def test_a_training_that_was_begun_anew_is_not_done_by_what_was_done_before(
    tmp_path: Path,
) -> None:
    first = _prepared(tmp_path)
    run(first, _python(tmp_path, _WORKS), STAGES, lambda told: None)
    other = _prepared(tmp_path, lr=0.1)
    with pytest.raises(StageError):
        run(other, _python(tmp_path, "sys.exit(3)"), STAGES, lambda told: None)
    (tmp_path / "ran").unlink()
    run(first, _python(tmp_path, _WORKS), STAGES, lambda told: None)
    assert (tmp_path / "ran").read_text().split() == ["train"]


def test_a_failure_keeps_its_name_its_fix_and_its_log(tmp_path: Path) -> None:
    python = _python(
        tmp_path,
        """
        print("words of the library", file=sys.stderr)
        tell(event="failed", stage=stage, kind="out-of-memory", message="no room", fix="less")
        sys.exit(1)
        """,
    )
    with pytest.raises(StageError, match=r"prompts: no room \(out-of-memory\)") as caught:
        run(_prepared(tmp_path), python, STAGES, lambda told: None)
    assert caught.value.kind == "out-of-memory"
    assert caught.value.hint is not None
    assert "less" in caught.value.hint
    assert "words of the library" in (tmp_path / "work" / "prompts.log").read_text()


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "out-of-memory", "killed by signal 9"),
        ("print('last word', file=sys.stderr); sys.exit(3)", "crashed", "last word"),
        ("pass", "crashed", "exited with 0"),
    ],
)
def test_a_stage_that_ends_without_a_word_is_no_success(
    tmp_path: Path, body: str, kind: str, words: str
) -> None:
    with pytest.raises(StageError, match=words) as caught:
        run(_prepared(tmp_path), _python(tmp_path, body), STAGES, lambda told: None)
    assert caught.value.kind == kind


def test_a_program_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such program"):
        run(_prepared(tmp_path), tmp_path / "nothing", STAGES, lambda told: None)


def test_an_interrupted_stage_may_keep_what_it_has(tmp_path: Path) -> None:
    python = _python(
        tmp_path,
        """
        def keep(*_):
            (file.parent / "kept").write_text(stage); sys.exit(1)
        signal.signal(signal.SIGTERM, keep)
        (file.parent / "up").write_text("")
        time.sleep(60)
        """,
    )
    _prepared(tmp_path)
    code = (
        "import sys; from pathlib import Path; import json\n"
        "from speccli.core.training.job import Prepared\n"
        "from speccli.core.training.run import run\n"
        f"file = Path({str(tmp_path / 'job.json')!r})\n"
        "prepared = Prepared(file, json.loads(file.read_text()), (), 1)\n"
        f"run(prepared, Path({str(python)!r}), ('train',), lambda told: None)\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGINT)
    running.wait(120)
    assert (tmp_path / "kept").read_text() == "train"


def _wanted(folder: Path, **changes: object) -> Wanted:
    rows = [{"id": str(i), "prompt": f"question {i}"} for i in range(40)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given: dict[str, object] = {
        "target": "t",
        "out": folder / "out",
        "data": (str(folder / "q.jsonl"),),
        "steps": 5,
        **changes,
    }
    return Wanted(**given)  # type: ignore[arg-type]


def test_held_out_prompts_are_not_trained_on(tmp_path: Path) -> None:
    made = job.prepare(_wanted(tmp_path, held_out=6))
    rows = list(map(json.loads, Path(made.document["prompts"]).read_text().splitlines()))
    trained = {row["messages"][0]["content"] for row in rows if "test" not in row}
    test = next(t for t in made.tests if t.name == "q")
    assert len(test.prompts) == 6
    assert made.trained_on == len(trained) == 34
    assert not trained & {prompt.text for prompt in test.prompts}


def test_tests_travel_with_the_prompts_by_their_name(tmp_path: Path) -> None:
    (tmp_path / "my test.jsonl").write_text('{"prompt": "quite another thing"}\n')
    given = {"tests": (str(tmp_path / "my test.jsonl"),), "held_out": 6, "measured": 4}
    made = job.prepare(_wanted(tmp_path, **given))
    rows = list(map(json.loads, Path(made.document["prompts"]).read_text().splitlines()))
    assert Counter(row.get("test") for row in rows) == {None: 34, "q": 4, "my-test": 1}
    # How many are watched, and what with, is no part of what is trained on.
    for other in ({"measured": 2}, {"tests": ()}):
        again = job.prepare(_wanted(tmp_path, **(given | other)))
        assert again.document["prompts_sha256"] == made.document["prompts_sha256"]
        assert again.document["tests_sha256"] != made.document["tests_sha256"]


def test_two_tests_of_one_name_are_refused_and_one_named_twice_is_one(tmp_path: Path) -> None:
    asked = ["how long is a piece of string", "why is the sky blue at noon"]
    for name, text in zip("ab", asked, strict=True):
        (tmp_path / name).mkdir()
        _rows(tmp_path / name / "t.jsonl", [text])
    a, b = (str(tmp_path / name / "t.jsonl") for name in "ab")
    made = job.prepare(_wanted(tmp_path, tests=(a, a)))
    assert [test.name for test in made.tests].count("t") == 1
    with pytest.raises(UsageError, match="nothing to train on"):
        job.prepare(_wanted(tmp_path, tests=(str(tmp_path / "q.jsonl"),)))  # which --data is
    with pytest.raises(UsageError, match=r"two tests are called t: .*a/t\.jsonl and .*b/t\.jsonl"):
        job.prepare(_wanted(tmp_path, tests=(a, b)))


def test_what_a_test_asks_nearly_is_not_trained_on_and_counted(tmp_path: Path) -> None:
    words = "write a script that restarts every engine of the pool and waits for each, at {}"
    asked = [{"prompt": words.format("noon")}]
    rows = [{"prompt": words.format("night")}, {"prompt": "how long is a piece of string"}]
    for name, held in (("t", asked), ("d", rows)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in held))
    made = job.prepare(
        _wanted(tmp_path, data=(str(tmp_path / "d.jsonl"),), tests=(str(tmp_path / "t.jsonl"),))
    )
    assert (made.trained_on, made.near) == (1, 1)


def _rows(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return str(path)


def test_prompts_of_one_application_are_trained_on(tmp_path: Path) -> None:
    preamble = " ".join(f"word{n}" for n in range(36))
    asked = [" ".join([preamble, *(f"{n}x{m}" for m in range(14))]) for n in range(200)]
    data = (_rows(tmp_path / "served.jsonl", asked),)
    made = job.prepare(_wanted(tmp_path, data=data))
    assert (made.trained_on, made.near, made.warnings) == (160, 0, ())


def test_a_source_of_which_much_is_near_a_test_is_told(tmp_path: Path) -> None:
    words = "write a script that restarts every engine of the pool and waits for each, at {}"
    test = _rows(tmp_path / "t.jsonl", [words.format("noon")])
    near = [words.format(n) for n in range(3)]
    other = [f"how long is a piece of string {n}" for n in range(6)]
    served = _rows(tmp_path / "served.jsonl", near + other)
    made = job.prepare(_wanted(tmp_path, data=(served,), tests=(test,), held_out=0))
    assert made.warnings == (f"{served}: 3 of 9 prompts are near one of a test, and left out",)


@pytest.mark.parametrize("shares", [("", None), ("=0.7", "=0.3")])
def test_nothing_to_train_on_says_which_source_lost_how_many_and_what_to_do(
    tmp_path: Path, shares: tuple[str, str | None]
) -> None:
    words = "write a script that restarts every engine of the pool and waits for each, at {}"
    test = _rows(tmp_path / "t.jsonl", [words.format("noon")])
    served = _rows(tmp_path / "served.jsonl", [words.format(n) for n in range(7)])
    data: tuple[str, ...] = (served + shares[0],)
    if shares[1] is not None:
        data += (_rows(tmp_path / "o.jsonl", [f"other {n}" for n in range(9)]) + shares[1],)
    with pytest.raises(UsageError, match=r"served\.jsonl: 7 of 7 prompts are near") as caught:
        job.prepare(_wanted(tmp_path, data=data, tests=(test,), held_out=0))
    assert caught.value.hint is not None
    assert ("give no shares" in caught.value.hint) is (shares[1] is not None)


def test_sources_with_shares_are_mixed(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(
        "".join(json.dumps({"prompt": f"other thing {i}"}) + "\n" for i in range(40))
    )
    data = (f"{tmp_path / 'q.jsonl'}=3", f"{tmp_path / 'd.jsonl'}=1")
    made = job.prepare(_wanted(tmp_path, data=data, held_out=0))
    rows = map(json.loads, Path(made.document["prompts"]).read_text().splitlines())
    kinds = Counter(row["messages"][0]["content"].split()[0] for row in rows)
    assert kinds == {"question": 40, "other": 13}
    assert made.ends == f"with {tmp_path / 'q.jsonl'}, after 53; 27 of others are not used"
    fewer = job.prepare(_wanted(tmp_path, data=data, held_out=0, prompts=10, out=tmp_path / "o2"))
    assert fewer.ends is None, "it was asked to end there"


def test_a_head_to_go_on_from_has_weights_and_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="no \\*.safetensors or pytorch_model.bin there"):
        job.prepare(_wanted(tmp_path, init=tmp_path / "h"))
    (tmp_path / "h" / "pytorch_model.bin").write_bytes(b"")
    assert job.prepare(_wanted(tmp_path, init=tmp_path / "h")).document["init"]


def test_the_stages_can_read_what_is_prepared(tmp_path: Path) -> None:
    made = job.prepare(_wanted(tmp_path, changes=("aux_layers=[2, 5, 9]",)))
    read = stage_job.read(made.file)
    assert read.prompts == Path(made.document["prompts"])
    assert read.aux_layers == (2, 5, 9)
    assert read.training.steps == 5


def test_a_fifth_at_most_is_held_out_of_a_small_set(tmp_path: Path) -> None:
    assert job.prepare(_wanted(tmp_path)).trained_on == 32


def test_a_folder_holds_one_job_but_may_be_trained_longer(tmp_path: Path) -> None:
    job.prepare(_wanted(tmp_path))
    job.prepare(_wanted(tmp_path, steps=50))
    job.prepare(_wanted(tmp_path, steps=None, minutes=2.0))
    job.prepare(_wanted(tmp_path, changes=("training.batch_tokens=4096",)))
    with pytest.raises(UsageError, match=r"another job: .*target differ"):
        job.prepare(_wanted(tmp_path, target="u"))
    with pytest.raises(UsageError, match=r"answers\.max_tokens differ"):
        job.prepare(_wanted(tmp_path, changes=("answers.max_tokens=9",)))


def test_what_the_answers_do_not_depend_on_may_change(tmp_path: Path) -> None:
    """A head that cannot be gone on from is found out late, and answers took hours."""
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "pytorch_model.bin").write_bytes(b"")
    job.prepare(_wanted(tmp_path, init=tmp_path / "bad"))
    job.prepare(_wanted(tmp_path, init=tmp_path / "good"))
    more = ("training.lr=1e-3", "answers.gpu_memory=0.3", "aux_layers=[1, 2, 3]")
    made = job.prepare(_wanted(tmp_path, changes=more))
    assert json.loads(made.file.read_text())["training"]["lr"] == 0.001


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": None}, "how long"),
        ({"minutes": 2.0}, "how long"),
        ({"method": "medusa"}, "medusa"),
        ({"data": ("mtbench",)}, "measured with"),
        ({"changes": ("lr=1",)}, "unknown key 'lr'"),
        ({"changes": ("training.rl=1",)}, "unexpected keyword argument 'rl'"),
        ({"changes": ("engine.lr=1",)}, "training.NAME"),
        ({"changes": ("training.lr",)}, "training.NAME"),
        ({"init": Path("nowhere")}, "no config.json there"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        job.prepare(_wanted(tmp_path, **change))


def test_numbers_of_set_are_numbers(tmp_path: Path) -> None:
    made = job.prepare(
        _wanted(tmp_path, changes=("training.lr=1e-3", "answers.samples=1", "seed=3"))
    )
    assert made.document["training"]["lr"] == 0.001
    assert made.document["answers"]["samples"] == 1
    assert made.document["seed"] == 3


def test_a_folder_in_which_another_trains_is_refused(tmp_path: Path) -> None:
    """Both would write the other's checkpoints and log."""
    wanted = Wanted("target", tmp_path / "out", data=("none.jsonl",), steps=5)
    wanted.out.mkdir()
    with (wanted.out / lock.LOCK).open("a+") as held:
        held.write("4711")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SpecctlError, match="process 4711 is training in"):
            flow.train(wanted, Path(sys.executable), None, print, Progress())
    with pytest.raises(UsageError, match="none.jsonl"):  # free again: on to what else is wrong
        flow.train(wanted, Path(sys.executable), None, print, Progress())


@pytest.mark.parametrize(
    ("changes", "python", "words"),
    [
        ({"data": ("none.jsonl",)}, sys.executable, "none.jsonl"),
        ({"minutes": 2.0}, sys.executable, "how long"),
        ({}, "no-such-python", "no such program"),
        ({}, sys.executable, "two heads have one name"),
    ],
)
def test_a_job_that_is_refused_leaves_nothing(
    tmp_path: Path, changes: dict[str, object], python: str, words: str
) -> None:
    (tmp_path / "there").mkdir()
    measuring = flow.Measuring(against=(("out", tmp_path),)) if "heads" in words else None
    for parent in ("there", "new"):
        wanted = _wanted(tmp_path, out=tmp_path / parent / "heads" / "out", **changes)
        with pytest.raises(UsageError, match=words):
            flow.train(wanted, Path(python), measuring, print, Progress())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["q.jsonl", "there"]
    assert not list((tmp_path / "there").iterdir())


def test_a_folder_of_someone_else_s_stays_when_a_job_is_refused(tmp_path: Path) -> None:
    wanted = _wanted(tmp_path, minutes=2.0)
    wanted.out.mkdir()
    (wanted.out / "notes").write_text("mine")
    with pytest.raises(UsageError, match="how long"):
        flow.train(wanted, Path(sys.executable), None, print, Progress())
    assert [p.name for p in wanted.out.iterdir()] == ["notes"]
