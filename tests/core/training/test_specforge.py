from typing import Any

import pytest

from speccli.core.errors import UsageError
from speccli.core.training import specforge


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
