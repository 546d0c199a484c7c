import json
import sys
from pathlib import Path
from typing import Any

import pytest

from speccli.core.errors import SpecctlError, UsageError
from speccli.core.training import flow, specforge
from speccli.core.training.job import Wanted
from speccli.core.training.lock import alone
from speccli.core.training.run import Told


def _document(**changes: Any) -> dict[str, Any]:
    return {
        "target": "t",
        "out": "/heads/one",
        "method": "eagle3",
        "training": {"steps": 100, "unroll": 7},
        "answers": {"max_tokens": 200},
    } | changes


def test_the_run_file_says_what_the_job_says() -> None:
    made = specforge.config(_document(), layers=30)
    assert made["model"]["aux_hidden_state_layer_ids"] == [2, 15, 27]
    assert made["data"] == {
        "prompts_path": "/heads/one/work/answers.jsonl",
        "max_length": 968,
    }
    assert made["training"]["strategy"] == "eagle3"
    assert made["training"]["max_steps"] == 100
    assert made["training"]["ttt_length"] == 7
    assert "mask_token_id" not in made["model"]


def test_p_eagle_has_its_mask_token() -> None:
    made = specforge.config(_document(method="p-eagle"), layers=30)
    assert made["training"]["strategy"] == "peagle"
    assert made["model"]["mask_token_id"] == 4


def test_the_states_and_the_head_have_a_gpu_each() -> None:
    stack = specforge.config(_document(), layers=30)["deployment"]["disaggregated"]["managed_local"]
    used = stack["capture_servers"][0]["cuda_visible_devices"]
    assert not set(used) & set(stack["trainer_cuda_visible_devices"])


def test_minutes_are_no_length_for_specforge() -> None:
    with pytest.raises(UsageError, match="by steps"):
        specforge.config(_document(training={"minutes": 5}), layers=30)


def _python(folder: Path, says: str) -> Path:
    """A Python whose SpecForge says something; it logs what it is called for."""
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"log = open({str(folder / 'ran')!r}, 'a')\n"
        "if sys.argv[1] == '-c':\n"
        f"    log.write('check\\n'); says = {says!r}\n"
        "    sys.exit(says or 0)\n"
        "log.write(sys.argv[3] + '\\n')\n"
        "print(json.dumps({'event': 'done', 'facts': {}}))\n"
    )
    path.chmod(0o755)
    return path


def _wanted(folder: Path, **more: Any) -> Wanted:
    (folder / "t").mkdir()
    (folder / "t" / "config.json").write_text('{"num_hidden_layers": 30}')
    rows = [{"id": str(i), "prompt": f"question {i}"} for i in range(40)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    length = {} if "minutes" in more else {"steps": 5}
    data = (str(folder / "q.jsonl"),)
    return Wanted(str(folder / "t"), folder / "out", data=data, **{**length, **more})


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    wanted = _wanted(tmp_path)
    with alone(wanted.out), pytest.raises(SpecctlError, match="is training in"):
        flow.for_specforge(wanted, _python(tmp_path, ""), print)
    assert not (tmp_path / "ran").exists()
    flow.for_specforge(wanted, _python(tmp_path, ""), lambda told: None)


def test_what_specforge_says_is_heard_before_anything_is_answered(tmp_path: Path) -> None:
    wanted = _wanted(tmp_path)
    with pytest.raises(UsageError, match="SpecForge refuses .*specforge.yaml: bad strategy"):
        flow.for_specforge(wanted, _python(tmp_path, "bad strategy"), print)
    assert (tmp_path / "ran").read_text().split() == ["check"]
    told = list[Told]()
    python = _python(tmp_path, "No module named 'specforge'")
    _, unchecked = flow.for_specforge(wanted, python, told.append)
    assert "SpecForge is not installed in" in str(unchecked)
    assert told[0].facts["warning"].endswith(str(unchecked)), "before the first stage"
    ran = (tmp_path / "ran").read_text().split()
    assert ran == ["check", "check", "prompts", "answers", "tokens"]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"minutes": 2.0}, "by steps"), ({"init": Path("t")}, "--init is not for")],
)
def test_what_specforge_cannot_have_is_refused_and_leaves_nothing(
    tmp_path: Path, more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = _wanted(tmp_path, **more)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UsageError, match=words):
        flow.for_specforge(wanted, _python(tmp_path, ""), print)
    assert not wanted.out.exists()
