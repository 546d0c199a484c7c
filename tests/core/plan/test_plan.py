"""Plans: every built-in recipe on its own hardware, and what a change of it brings up."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from speccli.core.plan import plan
from speccli.core.plan.guide import guide
from speccli.core.preflight import Verdict
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from speccli.core.views import plan as view


def verdicts(name: str, *changes: str) -> list[Verdict]:
    return list(plan(load(name, changes)).verdicts)


def found(name: str, *changes: str) -> dict[str, str]:
    """Rule: severity, the worst of each."""
    return {v.rule: v.severity for v in reversed(verdicts(name, *changes))}


@pytest.mark.parametrize("name", catalog.names())
def test_a_built_in_recipe_plans_on_its_own_hardware(name: str) -> None:
    made = plan(load(name))
    assert [v for v in made.verdicts if v.severity in {"critical", "unknown"}] == []
    assert {v.rule for v in made.verdicts if v.severity == "warning"} <= {"P-UNREAD"}
    assert made.memory is not None
    assert made.memory.kv_tokens >= made.facts.recipe.serving.max_model_len
    assert made.graphs is not None
    assert {row.mode for row in made.graphs.rows} <= {"full", "padded"}
    assert made.graphs.needed == made.facts.recipe.serving.max_num_seqs * (
        made.facts.recipe.draft.k + 1
    )
    assert made.estimate is not None
    json.dumps(view.plan(made), allow_nan=False)


def test_the_line_is_the_whole_command() -> None:
    words = plan(load("llama-3.3-70b-eagle3-h100")).line.command
    assert words[:3] == ("vllm", "serve", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "model": "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3",
        "num_speculative_tokens": 3,
    }
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert words[words.index("--shutdown-timeout") + 1] == "60"
    assert "request_latency" in words[words.index("--custom-histogram-buckets") + 1]


def test_p_eagle_is_written_as_the_engine_spells_it() -> None:
    made = plan(load("gpt-oss-120b-p-eagle-h200"))
    assert made.line.speculative == {
        "method": "eagle3",
        "model": "amazon/gpt-oss-120b-p-eagle",
        "num_speculative_tokens": 5,
        "parallel_drafting": True,
    }


def test_flags_follow_the_version() -> None:
    old = plan(load("llama-3.3-70b-none-h100", ["engine.version=0.17.1"])).line.command
    assert "--shutdown-timeout" not in old
    assert "--custom-histogram-buckets" not in old
    assert "--disable-access-log-for-endpoints" in old


CHANGES = [
    ("llama-3.3-70b-none-h100", "serving.tensor_parallel=1", "R-GPUS", "warning"),
    ("llama-3.3-70b-bf16-none-h200", "serving.tensor_parallel=1", "R-MEMORY", "critical"),
    ("llama-3.3-70b-none-h100", "serving.max_model_len=131072", "R-KV", None),
    ("llama-3.3-70b-awq-none-h100", "serving.max_model_len=131072", "R-MEMORY", "critical"),
    ("llama-3.3-70b-awq-none-h100", "serving.max_num_seqs=256", "R-KV", "warning"),
    ("llama-3.3-70b-eagle3-h100", "serving.tensor_parallel=3", "P-TP", "critical"),
    ("llama-3.3-70b-eagle3-h100", "serving.kv_cache_dtype=fp8", "P-KV", "critical"),
    ("llama-3.3-70b-eagle3-h100", "engine.version=0.11.0", "P-QUANT", "critical"),
    ("llama-3.3-70b-eagle3-h100", "engine.version=0.15.1", "R-FLAG", "critical"),
    ("llama-3.3-70b-eagle3-h100", "engine.version=9.9.9", "R-VERSION", "warning"),
    ("llama-3.3-70b-eagle3-h100", "engine.version=new", "R-VERSION", "critical"),
    ("llama-3.3-70b-eagle3-h100", "engine.kind=sglang", "R-ENGINE", "critical"),
    ("llama-3.3-70b-eagle3-h100", "draft.extra.disable_by_batch_size=32", "R-FLAG", "critical"),
    ("llama-3.3-70b-none-h100", "engine.extra_args=[--max-num-queued-reqs=9]", "R-FLAG", None),
    ("llama-3.3-70b-none-h100", "engine.extra_args=[-sc, x]", "R-FLAG", "critical"),
    ("llama-3.3-70b-eagle3-h100", "draft.schedule=[[2,9,3]]", "R-SCHEDULE", "critical"),
    ("llama-3.3-70b-eagle3-h100", "serving.enforce_eager=true", "R-GRAPHS", "warning"),
    ("llama-3.3-70b-eagle3-h100", "serving.structured_output=true", "R-STRUCTURED", "warning"),
    ("llama-3.3-70b-eagle3-h100", "workload.temperature=1", "R-TEMPERATURE", "info"),
    ("llama-3.3-70b-eagle3-h100", "serving.lora=true", "P-LORA", "warning"),
    ("llama-3.3-70b-ngram-h100", "serving.lora=true", "P-LORA", "critical"),
    ("llama-3.3-70b-eagle3-h100", "scaling.min=9", "R-SCALING", "critical"),
    ("llama-3.3-70b-awq-eagle3-h100", "draft.K=3", "R-KERNEL", "info"),
    ("llama-3.3-70b-awq-eagle3-h100", "draft.K=7 serving.max_num_seqs=128", "R-WORTH", "info"),
    ("llama-3.3-70b-none-h100", "hardware.gpu=a100", "R-KERNEL", "info"),
    ("llama-3.3-70b-eagle3-h100", "target.model=org/unknown", "R-SHAPE", "unknown"),
    ("llama-3.3-70b-eagle3-h100", "draft.model=org/unknown", "P-UNREAD", "warning"),
    ("qwen3-coder-30b-draft-model-h100", "draft.model=openai/gpt-oss-20b", "P-VOCAB", "critical"),
    (
        "qwen3-coder-30b-eagle3-h100",
        "draft.model=nvidia/gpt-oss-120b-Eagle3-v3",
        "P-HIDDEN",
        "critical",
    ),
    ("qwen3-coder-30b-p-eagle-h100", "serving.max_num_batched_tokens=128", "P-SLOTS", "critical"),
]


@pytest.mark.parametrize(("name", "change", "rule", "severity"), CHANGES)
def test_a_change_brings_up_its_finding(
    name: str, change: str, rule: str, severity: str | None
) -> None:
    changes = change.split() if rule == "R-WORTH" else [change]
    assert found(name, *changes).get(rule) == severity


def test_k_by_batch_size_is_refused_with_data_parallel_and_before_0_24() -> None:
    rows = "draft.schedule=[[1,16,3],[17,64,1]]"
    name = "llama-3.3-70b-eagle3-h100"
    assert found(name, rows)["R-SCHEDULE"] == "warning"
    two = ("serving.data_parallel=2", "hardware.count=4")
    assert found(name, rows, *two)["R-SCHEDULE"] == "critical"
    assert found(name, rows, "engine.version=0.22.0")["R-SCHEDULE"] == "critical"


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ("engine.version=0.25.1 serving.max_num_seqs=8", "warning"),
        ("engine.version=0.25.1 serving.max_num_seqs=63", "warning"),
        ("engine.version=0.25.1 serving.max_num_seqs=64", "info"),
        ("engine.version=0.26.0 serving.max_num_seqs=8", None),
        ("engine.version=0.25.1 serving.enforce_eager=true", None),
        ("engine.version=0.25.1 engine.env.VLLM_USE_V2_MODEL_RUNNER=0", None),
        ("engine.version=0.25.1 engine.extra_args=[-O.cudagraph_mode=PIECEWISE]", None),
        ("engine.version=0.25.1 engine.extra_args=[-O.cudagraph_mode=FULL_AND_PIECEWISE]", "info"),
    ],
)
def test_a_draft_s_graphs_may_end_the_server(changes: str, severity: str | None) -> None:
    """vllm#47561, met on an H200 at max_num_seqs 8 (docs/evidence/lab-h200/capture.txt)."""
    assert found("llama-3.3-70b-eagle3-h200", *changes.split()).get("R-DRAFT-GRAPHS") == severity


def test_a_runner_that_cannot_serve_it_is_refused() -> None:
    rows, asked = "draft.schedule=[[1,16,3],[17,64,1]]", "engine.env.VLLM_USE_V2_MODEL_RUNNER=1"
    name = "llama-3.3-70b-eagle3-h100"
    assert found(name, rows, asked, "engine.version=0.24.0")["R-ENGINE"] == "critical"
    assert "R-ENGINE" not in found(name, asked, "engine.version=0.24.0")


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        pytest.param(["engine.version=0.25.1"], "critical", id="0.25"),
        pytest.param(["engine.version=0.31.0"], "critical", id="0.31"),
        pytest.param(["engine.version=0.24.0"], "warning", id="before"),
        pytest.param(["engine.version=0.32.0"], "warning", id="mended"),
        pytest.param(
            ["engine.version=0.25.1", "serving.enforce_eager=true"], "warning", id="no-graphs"
        ),
        pytest.param(
            ["engine.version=0.25.1", "engine.env.VLLM_USE_V2_MODEL_RUNNER=0"],
            "warning",
            id="first-runner",
        ),
        pytest.param(["engine.version=0.25.1", "draft.schedule=[[1,64,3]]"], "warning", id="one-k"),
        pytest.param(
            [
                "engine.version=0.25.1",
                "engine.extra_args=[--compilation-config.cudagraph_mode=PIECEWISE]",
            ],
            "warning",
            id="piecewise",
        ),
    ],
)
def test_k_by_batch_size_is_refused_where_the_v2_runner_does_not_start_with_it(
    changes: list[str], severity: str
) -> None:
    """vllm#48494: the graphs of a draft of one token a step are sized by the target's schedule."""
    name, rows = "llama-3.3-70b-eagle3-h100", "draft.schedule=[[1,16,3],[17,64,1]]"
    assert found(name, rows, *changes)["R-SCHEDULE"] == severity


def test_sizes_are_written_where_the_default_leaves_batches_eager() -> None:
    made = plan(load("llama-3.3-70b-eagle3-h200", ["serving.max_num_seqs=160", "draft.K=7"]))
    assert made.graphs is not None
    assert made.graphs.flag is not None
    assert made.graphs.flag[-1] == made.graphs.needed == 1280
    words = made.line.command
    start = words.index("--cudagraph-capture-sizes") + 1
    assert [int(word) for word in words[start : start + len(made.graphs.flag)]] == list(
        made.graphs.flag
    )
    assert "R-CAPTURE" in {v.rule for v in made.verdicts}
    assert {row.mode for row in made.graphs.rows} <= {"full", "padded"}


def test_acceptance_measured_at_one_k_is_carried_to_another() -> None:
    lengths = []
    for k in (1, 3, 7):
        estimate = plan(load("llama-3.3-70b-eagle3-h200", [f"draft.K={k}"])).estimate
        assert estimate is not None
        assert estimate.length is not None
        lengths.append(estimate.length)
    assert lengths[2] == pytest.approx(2.88, abs=1e-3)
    assert lengths == sorted(lengths)


def test_without_a_measured_acceptance_only_what_it_must_reach_is_told() -> None:
    told = view.plan(plan(load("llama-3.3-70b-ngram-h200")))["estimate"]
    assert told["acceptance_length"] is None
    assert all(level["speedup"] is None for level in told["levels"])
    assert all(level["break_even_length"] >= 1 for level in told["levels"])


def test_the_guide_marks_what_speaks_to_the_recipe() -> None:
    marked = {
        each.use
        for each in guide(
            plan(load("gpt-oss-120b-p-eagle-h200", ["serving.structured_output=true"]))
        )
        if each.applies
    }
    assert marked == {
        "P-EAGLE, K = 4 to 7",
        "none, or a smaller K",
        "a pool of its own: none, or n-gram",
        "draft.sampling probabilistic, or a smaller K",
    }


def test_a_folder_is_read_before_the_catalog(tmp_path: Path) -> None:
    config = dict(catalog.models()["meta-llama/Llama-3.3-70B-Instruct"]["config"])
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 40}))
    made = plan(load("llama-3.3-70b-none-h100", [f"target.config={tmp_path}"]))
    assert made.facts.target_shape is not None
    assert made.facts.target_shape.layers == 40


def test_a_plan_takes_less_than_two_seconds_and_no_network() -> None:
    program = (
        "import socket, sys\n"
        "def refused(*_): raise SystemExit('the network was asked')\n"
        "socket.socket.connect = refused\n"
        "sys.argv = ['specctl', 'plan', 'llama-3.3-70b-eagle3-h100']\n"
        "from speccli.main import main\n"
        "main()\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of a processor, whatever else the machine does.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
    assert done.returncode == 1, done.stderr
    for part in ("target weights", "CUDA graphs", "vllm serve", "P-UNREAD"):
        assert part in done.stdout


def test_eager_mode_is_not_estimated_and_what_it_came_to_is_said() -> None:
    """docs/evidence/lab-h200/8b-graphs-graphs.json: two to three times what a roofline says."""
    made = plan(load("llama-3.3-70b-eagle3-h200", ["serving.enforce_eager=true"]))
    assert made.estimate is None
    assert view.plan(made)["estimate"] is None
    (said,) = (each for each in made.verdicts if each.rule == "R-GRAPHS")
    assert "not estimated" in said.cause
    assert "0.57 to 0.78" in said.cause
    assert "R-WORTH" not in {each.rule for each in made.verdicts}
