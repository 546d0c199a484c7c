"""A recipe as a process of this machine, with a real vLLM: started, proven, kept, ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from speccli.core.deploy.place import place
from speccli.main import app
from tests.e2e.tiny_pair import Plan

pytestmark = pytest.mark.real_vllm
Object = dict[str, Any]
RECIPE = """
name: tiny
target: {{model: {pair}/target}}
draft: {{method: eagle3, model: {pair}/eagle3, K: 3}}
hardware: {{gpu: h100}}
engine:
  env: {{VLLM_CPU_KVCACHE_SPACE: "1", VLLM_NO_USAGE_STATS: "1", HF_HUB_OFFLINE: "1"}}
serving:
  {{max_model_len: 1024, max_num_seqs: 16, max_num_batched_tokens: 2048, enforce_eager: true,
    shutdown_timeout_s: 5}}
"""


def test_a_recipe_runs_here_proven_and_is_gone_when_it_is_deleted(
    vllm_python: Path, tiny_pair_dir: Path, tiny_plan: Plan, tmp_path: Path
) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(pair=tiny_pair_dir))
    env = {"SPECCTL_STATE": str(tmp_path), "SPECCTL_VLLM_PYTHON": str(vllm_python)}

    def specctl(*words: str) -> Result:
        return CliRunner().invoke(app, list(words), env=env)

    def deploy() -> Object:
        done = specctl(*("deploy", str(recipe), "--to", "local", "--timeout", "5m", "-o", "json"))
        assert done.exit_code == 0, done.stderr
        told: Object = json.loads(done.stdout)
        return told

    here = place(tmp_path, "tiny")
    try:
        first = deploy()
        (server,) = first["proof"]["servers"]
        assert first["proof"]["verdict"] == "proven"
        assert not first["proof"]["simulated"]
        # A head that is wrong after a quarter of the tokens: seldom more than that is lost at once.
        wrong = len(tiny_plan.wrong) / sum(map(len, tiny_plan.cycles))
        assert server["first_position"] == pytest.approx(1 - wrong, abs=0.2)
        pids = here.told.pids
        assert deploy()["unchanged"]
        assert here.told.pids == pids
        assert len(pids) == 1

        status = specctl("status", "tiny", "--since-start", "-o", "json")
        assert status.exit_code == 0, status.stderr
        told = json.loads(status.stdout)
        assert told["record"]["state"] == "ready"
        assert told["status"]["engines"][0]["state"] in {"ok", "no-traffic"}
        assert told["status"]["simulated"] is False
    finally:
        gone = specctl("delete", "tiny", "--yes")
    assert gone.exit_code == 0, gone.stderr
    assert not here.folder.exists()
    assert specctl("status", "tiny", "--endpoint", first["url"]).exit_code == 64
