"""The same job for SpecForge: its run file, held against its own schema where it is installed.

Written for SpecForge 0.2 (`specforge train --config`, specforge/config/schema.py). It trains from
an SGLang target that it starts itself (two GPUs), on answers that are token ids already.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError

FILE = "specforge.yaml"
_STRATEGY = {"eagle3": "eagle3", "p-eagle": "peagle"}
_UNROLL = 5
_EPOCHS = 1000
"""More than any run has: it ends by its steps."""
_CHECK = """
import sys
from specforge.config import load_config
load_config(sys.argv[1])
"""
_NOT_INSTALLED = "No module named 'specforge"


def config(document: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The run file of a job: one GPU for the target's states, the next for the head.

    Args:
        document: the job.
        layers: of the target.

    Raises:
        UsageError: SpecForge needs something that the job does not say.
    """
    training, answers = document["training"], document["answers"]
    steps = training.get("steps")
    if steps is None:
        raise UsageError("SpecForge trains by steps", hint="give --steps instead of --minutes")
    if document.get("init"):
        raise UsageError(
            "--init is not for --backend specforge",
            hint="write model.draft_checkpoint_path into the run file yourself",
        )
    out = Path(document["out"])
    unroll = training.get("unroll", _UNROLL)
    longest = answers.get("max_prompt_tokens", 768) + answers.get("max_tokens", 384)
    return {
        "run_id": out.name,
        "output_dir": str(out / "specforge"),
        "model": {
            "target_model_path": document["target"],
            "aux_hidden_state_layer_ids": list(
                document.get("aux_layers") or (2, layers // 2, layers - 3)
            ),
            **({"mask_token_id": training.get("mask_token", 4)} if _parallel(document) else {}),
        },
        "data": {"prompts_path": str(out / "work" / "answers.jsonl"), "max_length": longest},
        "training": {
            "strategy": _STRATEGY[document["method"]],
            "max_steps": steps,
            "total_steps": steps,
            "num_epochs": _EPOCHS,
            "learning_rate": training.get("lr", 1e-4),
            "warmup_ratio": training.get("warmup", 0.03),
            "ttt_length": unroll,
            "num_depths": unroll,
            "seed": document.get("seed", 0),
        },
        "deployment": {
            "mode": "disaggregated",
            "disaggregated": {
                "control_dir": str(out / "work" / "specforge"),
                "backend": "mooncake",
                "managed_local": {
                    "trainer_cuda_visible_devices": ["1"],
                    "capture_servers": [{"port": 30000, "cuda_visible_devices": ["0"]}],
                },
            },
        },
    }


def _parallel(document: Mapping[str, Any]) -> bool:
    return bool(document["method"] == "p-eagle")


def checked(python: Path, file: Path) -> str | None:
    """None when SpecForge takes the run file; why it was not checked, where it is not installed.

    Raises:
        UsageError: SpecForge refuses it.
    """
    try:
        ran = subprocess.run(
            [str(python), "-c", _CHECK, str(file)], capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not checked: {python} cannot be run ({error})"
    if ran.returncode == 0:
        return None
    if _NOT_INSTALLED in ran.stderr:
        return f"not checked: SpecForge is not installed in {python}"
    raise UsageError(f"SpecForge refuses {file}: {ran.stderr.strip().splitlines()[-1]}")
