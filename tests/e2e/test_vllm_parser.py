"""vLLM 0.32 itself: its argument parser takes every built-in recipe's line, its SpeculativeConfig
knows the keys that we think it knows, and its own code captures the sizes that we say it captures.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speccli.core.bench.form import read
from speccli.core.bench.schedule import schedule
from speccli.core.engines import vllm_graphs, vllm_speculative
from speccli.core.plan import plan
from speccli.core.recipes import catalog
from speccli.core.recipes.load import load
from speccli.core.sizing import cudagraphs
from tests.e2e.harness import SMOLLM2_HEAD
from tests.support.benches import Noise, sweep

SWEEP = Path(__file__).parents[2] / "docs" / "evidence" / "bench-cpu-135m-k.json"
KEY = "num_speculative_tokens_per_batch_size"
pytestmark = pytest.mark.real_vllm

PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm serve")
parser = make_arg_parser(parser)
found = {}
for name, words in json.load(sys.stdin).items():
    try:
        args = parser.parse_args(words)
        validate_parsed_serve_args(args)
        sizes = args.cudagraph_capture_sizes
        found[name] = {"speculative": args.speculative_config, "sizes": sizes,
                       "model": args.model_tag, "seqs": args.max_num_seqs}
    except (SystemExit, Exception) as error:
        found[name] = {"error": f"{type(error).__name__}: {error}"}
print("\\nRESULT" + json.dumps(found))
"""

SCHEDULES = """
import json, sys
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
found = []
for rows, k, seqs in json.load(sys.stdin):
    found.append(build_dynamic_sd_schedule_lookup(rows, seqs, k))
print("\\nRESULT" + json.dumps(found))
"""

CONFIG = """
import json, sys
from vllm.engine.arg_utils import EngineArgs
model, config = json.load(sys.stdin)
args = EngineArgs(model=model, max_model_len=1024, max_num_seqs=32, enforce_eager=True,
                  speculative_config=config)
made = args.create_engine_config().speculative_config
print("\\nRESULT" + json.dumps({
    "class": type(made).__name__, "k": made.num_speculative_tokens,
    "rows": made.num_speculative_tokens_per_batch_size,
    "dynamic": made.uses_dynamic_speculative_decoding()}))
"""

FIELDS = """
import dataclasses, json
from typing import get_args
from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod
fields = [field.name for field in dataclasses.fields(SpeculativeConfig) if field.init]
def flat(kind):
    return [name for each in get_args(kind) for name in (flat(each) if get_args(each) else [each])]
print("\\nRESULT" + json.dumps({"fields": fields, "methods": flat(SpeculativeMethod)}))
"""

GRAPHS = """
import json, sys
from types import SimpleNamespace as N
from vllm.config import CUDAGraphMode
from vllm.config.compilation import CompilationConfig
from vllm.config.vllm import VllmConfig
from vllm.v1.worker.gpu import cudagraph_utils as v2
found = []
class Spec:
    def __init__(self, k, schedule):
        self.num_speculative_tokens, self.num_speculative_tokens_per_batch_size = k, schedule
        self.method, self.parallel_drafting = "eagle3", False
    def uses_dynamic_speculative_decoding(self):
        return self.num_speculative_tokens_per_batch_size is not None
v2.get_pp_group = lambda: N(is_first_rank=True, is_last_rank=True)
v2.is_breakable_cudagraph_enabled = lambda: False
v2.current_platform = N(get_global_graph_pool=lambda: None)
for k, seqs, tokens, sizes, schedule, runner in json.load(sys.stdin):
    compilation = N(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE,
                    max_cudagraph_capture_size=None, cudagraph_capture_sizes=sizes,
                    post_init_cudagraph_sizes=lambda: None)
    adjust = CompilationConfig.adjust_cudagraph_sizes_for_spec_decode
    spec = Spec(k, schedule) if k else None
    config = N(model_config=N(enforce_eager=False), compilation_config=compilation,
               scheduler_config=N(max_num_seqs=seqs, max_num_batched_tokens=tokens),
               speculative_config=spec, performance_mode="balanced", uniform_decode_query_len=k + 1,
               num_speculative_tokens=k, lora_config=None,
               parallel_config=N(tensor_parallel_size=1, data_parallel_size=1),
               cache_config=N(use_kda_recoverssm=False))
    VllmConfig._set_cudagraph_sizes(config)
    rows = []
    if runner == "V1":
        if k:
            adjust(compilation, k + 1)
        for batch in range(1, seqs + 1):
            need = batch * (k + 1)
            fits = [s for s in compilation.cudagraph_capture_sizes
                    if s >= need] if need <= compilation.max_cudagraph_capture_size else []
            rows.append([batch, min(fits) if fits else None, "FULL" if fits else "NONE"])
    else:
        manager = v2.CudaGraphManager(config, None, compilation.cudagraph_mode, k + 1)
        lookup = None
        if schedule:
            lookup = v2.build_dynamic_sd_schedule_lookup(
                schedule, vllm_max_batch_size=seqs, vllm_num_speculative_tokens=k)
        for batch in range(1, seqs + 1):
            query = (lookup[batch] if lookup else k) + 1
            need = batch * query
            match = next((d for d in manager._candidates.get((need, 0), ())
                          if v2._is_compatible(d, batch, need, query, 0, query, 1)), None)
            rows.append([batch, match.num_tokens if match else None,
                         match.cg_mode.name if match else "NONE"])
    found.append({"sizes": compilation.cudagraph_capture_sizes, "rows": rows})
print("\\nRESULT" + json.dumps(found))
"""


def ask(python: Path, program: str, stdin: Any = None) -> Any:
    done = subprocess.run(
        [python, "-c", program],
        input=json.dumps(stdin),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
    )
    assert "\nRESULT" in done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout.rpartition("\nRESULT")[2])


def test_the_real_parser_takes_the_line_of_every_built_in_recipe(vllm_python: Path) -> None:
    plans = {name: plan(load(name)) for name in catalog.names()}
    lines = {name: list(made.line.command[2:]) for name, made in plans.items()}
    lines["scheduled"] = list(
        plan(
            load("llama-3.3-70b-eagle3-h200", ["draft.schedule=[[1,16,3],[17,64,1]]"])
        ).line.command[2:]
    )
    lines["not a flag"] = ["model", "--no-such-flag"]
    found = ask(vllm_python, PARSE, lines)
    assert "error" in found.pop("not a flag")
    assert found.pop("scheduled")["speculative"]["num_speculative_tokens_per_batch_size"] == [
        [1, 16, 3],
        [17, 64, 1],
    ]
    for name, made in plans.items():
        assert found[name] == {
            "speculative": dict(made.line.speculative) if made.line.speculative else None,
            "sizes": list(made.graphs.flag) if made.graphs and made.graphs.flag else None,
            "model": made.facts.recipe.target.model,
            "seqs": made.facts.recipe.serving.max_num_seqs,
        }, name


@pytest.mark.parametrize(
    ("curves", "falls"),
    [
        (None, True),
        ({3: {1: 1.9, 8: 1.6, 32: 0.8}, 1: {1: 1.4, 8: 1.4, 32: 1.2}}, True),
        ({3: {1: 1.9, 8: 1.6, 32: 1.4}, 1: {1: 1.4, 8: 1.4, 32: 1.3}}, False),
    ],
    ids=["on-a-real-pair", "planted-with-changes", "planted-with-one"],
)
def test_the_schedule_of_a_sweep_is_the_real_configurations(
    curves: dict[int, dict[int, float]] | None, falls: bool, vllm_python: Path, smollm2_dir: Path
) -> None:
    """Of a sweep of K on real servers, and of planted ones: vLLM's own SpeculativeConfig."""
    noise = Noise(run=0.002, prompt=0.02)
    swept = sweep(curves, batches=(1, 8, 32), prompts=20, noise=noise) if curves else read(SWEEP)
    found = schedule(swept, max_num_seqs=32)
    assert found.needed is falls
    emitted = found.config()
    assert emitted is not None
    config = emitted | {"method": "eagle3", "model": str(SMOLLM2_HEAD)}
    rows = [list(row) for row in found.rows] if found.needed else None
    assert ask(vllm_python, CONFIG, [str(smollm2_dir), config]) == {
        "class": "SpeculativeConfig",
        "k": found.k,
        "rows": rows,
        "dynamic": found.needed,
    }


def test_a_benched_schedule_takes_effect_at_the_batch_that_it_names(vllm_python: Path) -> None:
    """Parser and table of the real engine, at every change and on both sides of it."""
    curves = {
        5: {1: 2.2, 8: 2.0, 32: 1.3, 64: 0.95, 128: 0.6},
        3: {1: 1.9, 8: 1.75, 32: 1.5, 64: 1.24, 128: 0.77},
    }
    made = schedule(sweep(curves, prompts=20, noise=Noise(run=0.002, prompt=0.02)))
    config = made.config()
    assert config is not None
    speculative = {"method": "eagle3", "model": "head"} | config
    lines = {"benched": ["model", "--speculative-config", json.dumps(speculative)]}
    assert ask(vllm_python, PARSE, lines)["benched"]["speculative"] == speculative
    (table,) = ask(vllm_python, SCHEDULES, [[config[KEY], made.k, 128]])
    assert len(made.changes) == 2
    for batch, k in made.lookup:
        assert table[batch] == k, batch
    assert [table[1], table[128]] == [5, 0]


def test_the_keys_and_methods_of_speculation_are_those_of_the_real_engine(
    vllm_python: Path,
) -> None:
    told = ask(vllm_python, FIELDS)
    version = (0, 32, 0)
    ours = {
        name
        for name, key in vllm_speculative.KEYS.items()
        if key.since <= version and not (key.gone and version >= key.gone)
    }
    filled_by_the_engine = {
        "target_model_config",
        "target_parallel_config",
        "draft_model_config",
        "draft_parallel_config",
        "tensor_parallel_size",  # there only to be refused
    }
    assert ours == set(told["fields"]) - filled_by_the_engine
    methods = {name for name, (since, gone) in vllm_speculative.METHODS.items() if since <= version}
    assert methods == {name for name in told["methods"] if not name.endswith("_mtp")}


CASES: list[tuple[int, int, int, list[int] | None, list[list[int]] | None, str]] = [
    (k, seqs, tokens, sizes, schedule, runner)
    for runner in ("V1", "V2")
    for k, seqs, tokens, sizes, schedule in (
        (0, 64, 8192, None, None),
        (0, 100, 8192, None, None),
        (3, 64, 8192, None, None),
        (3, 100, 8192, None, None),
        (5, 128, 8192, None, None),
        (7, 128, 8192, None, None),
        (16, 32, 8192, None, None),
        (16, 256, 8192, None, None),
        (4, 200, 512, None, None),
        (5, 42, 8192, [6, 12, 42, 252], None),
        (6, 64, 8192, [1, 2, 4, 8, 16, 40], None),
        (3, 96, 8192, [n * 4 for n in (1, 2, 4, 8, 16, 32, 64, 96)], None),
        (5, 96, 8192, None, [[1, 16, 5], [17, 48, 3], [49, 96, 0]]),
        (16, 96, 8192, None, [[1, 8, 16], [9, 96, 2]]),
    )
    if not (schedule and runner == "V1")  # it takes piecewise graphs only: no dispatch to compare
]


def test_every_decode_batch_finds_the_graph_that_the_real_code_finds(vllm_python: Path) -> None:
    told = ask(vllm_python, GRAPHS, CASES)
    for case, real in zip(CASES, told, strict=True):
        k, seqs, tokens, sizes, schedule, runner = case
        rules = vllm_graphs.rules(
            (0, 32, 0),
            method="eagle3" if runner == "V2" else "suffix",
            parallel=False,
            architecture="LlamaForCausalLM",
            moe=False,
            quantized=False,
            scheduled=schedule is not None,
        )
        assert rules is not None
        assert rules.runner == runner
        rows = [tuple(row) for row in schedule] if schedule else None
        ours = cudagraphs.captured(
            rules,
            k=k,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            explicit=sizes,
            schedule=rows,  # type: ignore[arg-type]
        )
        assert list(ours.sizes) == real["sizes"], case
        by_batch = cudagraphs.dense(rows, k, seqs) if rows else [k] * seqs  # type: ignore[arg-type]
        for batch, graph, mode in real["rows"]:
            row = ours.row(batch, by_batch[batch - 1] + 1)
            kind = {"full": "FULL", "padded": "FULL", "piecewise": "PIECEWISE", "eager": "NONE"}
            assert (row.captured, kind[row.mode]) == (graph, mode), (case, batch)
