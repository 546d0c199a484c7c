"""The phase `train`: a head by `specctl draft train`, over as many calls as it takes."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from driver.groups import SHAREGPT
from driver.measure import dataset
from driver.places import CHECKOUT, LAB, Places, Stop, say, specctl

SHIPPED = CHECKOUT / "tests/data/smollm2-135m-eagle3"
KEEP_S = 30.0
"""Before a call ends: to keep the checkpoint and the head as it is, and to pack what comes home."""
PIECE = 15 << 20
"""The head is larger than what may come back as one file."""


def train(places: Places, asked: argparse.Namespace) -> int:
    """A head from nothing or from the shipped one, by the one command that anybody would type.

    Returns:
        0 done, 1 the call's time was up: the head is what it was then, and the same call goes on
        with it; 2 it failed.
    """
    out = places.work / "trained" / asked.method
    arguments = line(places, asked, out)
    env = {"SPECCTL_VLLM_PYTHON": str(_engine_shim(places))}
    results = places.work / "results"
    results.mkdir(parents=True, exist_ok=True)
    try:
        code, told = specctl(places, arguments, limit_s=places.left_s - KEEP_S, env=env)
        if told.strip().startswith("{"):
            (results / f"train-{asked.method}.json").write_text(told)
    finally:
        _bring(places, out, asked.method)
    return {0: 0, 1: 0, 130: 1}.get(code, 2)


def line(places: Places, asked: argparse.Namespace, out: Path) -> list[str]:
    """Arguments of `specctl draft train`."""
    made = ["draft", "train", str(places.model), "--out", str(out), "--method", asked.method]
    for source in asked.data or ["conversations"]:
        name, equals, share = source.partition("=")
        made += ["--data", f"{_prompts(places, name)}{equals}{share}"]
    made += ["--data-folder", str(places.data), "--held-out", "0"]
    made += ["--test", dataset(places, SHAREGPT), "--test", dataset(places, "operators.jsonl")]
    made += ["--minutes", str(asked.minutes), "--python", str(_trainer(places)), "-o", "json"]
    made += _begun(places, asked, out)
    if asked.method == "eagle3":
        made += ["--against", f"shipped={SHIPPED}"]
    made += _sets(SMALL if places.rehearse else LARGE)
    if asked.init is not None:
        made += _sets(GOING_ON)
    made += [word for change in asked.set for word in ("--set", change)]
    made += ["--no-accept"] if asked.no_accept else []
    made += asked.more
    made += ["--", "--enforce-eager", "--max-model-len", "2048"]
    return made + ([] if places.rehearse else ["--gpu-memory-utilization", "0.3"])


def _begun(places: Places, asked: argparse.Namespace, out: Path) -> list[str]:
    """What it goes on from: what was asked for; a P-EAGLE head from the EAGLE-3 head made here."""
    if asked.init is not None:
        return ["--init", str(SHIPPED if asked.init == "shipped" else asked.init)]
    first = places.work / "trained" / "eagle3"
    if asked.method == "p-eagle" and (first / "speculators").exists():
        _lend(first / "work", out / "work")
        return ["--init", str(first / "speculators")]
    return []


def _prompts(places: Places, name: str) -> Path:
    """A source of prompts: `conversations` of the kit, `operators` made now, or a file."""
    if name == "conversations":
        return places.data / "conversations.jsonl"
    if name != "operators":
        return Path(name).absolute()
    file = places.work / "operators-train.jsonl"
    if not file.exists():
        count = str(200 if places.rehearse else OPERATORS)
        command = [places.python, str(LAB / "operators.py"), str(file), count]
        done = subprocess.run(
            command, env=places.own_env(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Stop(f"operators.py: {done.stderr.strip()[-300:]}")
        say(done.stdout.strip())
    return file


def _lend(answers: Path, work: Path) -> None:
    """The same target's answers to the same prompts: given once is enough."""
    work.mkdir(parents=True, exist_ok=True)
    for kind in ("answers-*.npz", "held-*.npz"):
        for file in answers.glob(kind):
            if not (work / file.name).exists():
                shutil.copy(file, work / file.name)


OPERATORS = 20_000
SMALL: dict[str, Any] = {
    "--prompts": 24,
    "--accept-prompts": 2,
    "answers.samples": 0,
    "answers.max_tokens": 24,
    "answers.held_tokens": 24,
    "answers.eager": "true",
    "answers.engines": 2,
    "answers.chunk": 8,
    "answers.gpu_memory": 0.5,
    "training.batch_tokens": 600,
    "training.draft_vocab": 4096,
    "training.validation": 4,
    "training.fused_loss": "false",
    "training.unroll": 2,
}
LARGE: dict[str, Any] = {
    "--accept-prompts": 100,
    "answers.gpu_memory": 0.8,
    "answers.engines": 5,
    "answers.compile": "false",
    "answers.at_once": 512,
    "answers.samples": 1,
    "answers.temperature": 0.7,
    "answers.top_p": 1.0,
    "answers.max_tokens": 256,
    "answers.held_tokens": 128,
    "answers.chunk": 768,
    "answers.seconds": 120,
    "training.batch_tokens": 49152,
    "training.unroll": 7,
    "training.draft_vocab": 16384,
    "training.measure_every_s": 30,
}
"""Several engines, for one leaves the GPU waiting for its Python; no top-p, for it sorts the whole
vocabulary for each token; answers not much longer than a bench's; a longer unroll, for K above 3.
"""
GOING_ON: dict[str, Any] = {"training.lr": 1e-3, "training.head_lr": 3e-4}
"""A head that is good already is spoilt by the rates that one from nothing needs."""


def _sets(values: dict[str, Any]) -> list[str]:
    """As options: NAME VALUE, or --set NAME=VALUE."""
    made: list[str] = []
    for name, value in values.items():
        made += [name, str(value)] if name.startswith("--") else ["--set", f"{name}={value}"]
    return made


def _shim(places: Places, name: str, path: list[Path]) -> Path:
    file = places.work / "bin" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    known = ":".join(str(p) for p in path if p.exists())
    # Behind what the caller put on the path: its own modules come first.
    before = '"${PYTHONPATH:+$PYTHONPATH:}' + known + '"'
    file.write_text(f'#!/bin/sh\nPYTHONPATH={before} exec {places.engine} "$@"\n')
    file.chmod(0o755)
    return file


def _trainer(places: Places) -> Path:
    kit = places.work / "kit"
    return _shim(places, "train-python", [kit / "engine", kit / "trainer"])


def _engine_shim(places: Places) -> Path:
    return _shim(places, "engine-python", [places.work / "kit" / "engine"])


def _bring(places: Places, out: Path, method: str) -> None:
    """The head in pieces, and what each stage said, done or not."""
    results = places.work / "results"
    for kept, name in (
        (out / "work" / "train.jsonl", f"train-{method}.jsonl"),
        (out / "work" / "stages.json", f"train-{method}-stages.json"),
        (out / "job.json", f"train-{method}-job.json"),
    ):
        if kept.exists():
            shutil.copy(kept, results / name)
    for log in (out / "work").glob("*.log"):
        (results / "logs").mkdir(exist_ok=True)
        last = log.read_text(errors="replace").splitlines()[-200:]
        text = "\n".join(line[:400] for line in last)
        (results / "logs" / f"train-{method}-{log.name}").write_text(text + "\n")
    weights = out / "head" / "model.safetensors"
    if not weights.exists():
        if (out / "work").exists():
            say("train: no head yet")
        return
    places.out.mkdir(parents=True, exist_ok=True)
    held = weights.read_bytes()
    for n in range(0, len(held), PIECE):
        file = places.out / f"head-{method}-{n // PIECE}.bin"
        file.write_bytes(held[n : n + PIECE])
    (places.out / f"head-{method}.json").write_bytes((out / "head" / "config.json").read_bytes())
    say(f"train: {_last(results / f'train-{method}.jsonl')}")


def _last(log: Path) -> str:
    """Where the training stands, by the last line of its log of each kind."""
    lines = log.read_text().splitlines() if log.exists() else []
    step = next((row for row in map(json.loads, reversed(lines)) if "loss" in row), None)
    held = next((row for row in map(json.loads, reversed(lines)) if "held" in row), None)
    words = [f"{k} {step[k]}" for k in ("step", "loss", "tokens_per_s")] if step else []
    for name, told in (held or {}).get("held", {}).items():
        words.append(f"{name} {told.get('rate')} at K={told.get('k')}")
    return ", ".join(words) or "nothing in its log"
