"""Where the lab keeps things, which Pythons it uses, and how much time a call has left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAB = Path(__file__).resolve().parents[1]
CHECKOUT = LAB.parents[1]
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
}
NO_EXTRAS = {"VLLM_USE_DEEP_GEMM": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
"""Of an engine that `pack` made small: what it left out must not be asked for."""
GRACE_S = 10.0
"""Within which a specctl has ended that Ctrl-C at the terminal reached as well."""
_BEGIN = time.monotonic()


class Stop(Exception):
    """A phase cannot go on; the text says why and what to do."""


class Usage(Stop):
    """What was asked for is not there."""


@dataclass(frozen=True)
class Places:
    """Folders, interpreters and limits of one call."""

    work: Path
    """Everything that is made: stand-ins, logs, results."""
    out: Path
    """Where the archive goes that is brought home."""
    budget_s: float
    rehearse: bool = False
    """On a CPU with the smallest shape: every step, no meaning."""
    python: str = field(default_factory=lambda: os.environ.get("LAB_PYTHON", sys.executable))
    """Runs specctl: typer, rich, aiohttp and yaml."""
    engine: str = field(default_factory=lambda: os.environ.get("LAB_ENGINE", sys.executable))
    """Has torch and vLLM."""

    @property
    def left_s(self) -> float:
        """Of this call's time."""
        return self.budget_s - (time.monotonic() - _BEGIN)

    @property
    def model(self) -> Path:
        """The small target."""
        return Path(os.environ.get("LAB_MODEL", self.work / "kit" / "smollm2-135m"))

    @property
    def data(self) -> Path:
        """Prompt files."""
        return Path(os.environ.get("LAB_DATA", self.work / "kit" / "data"))

    def head(self, name: str) -> Path:
        """A head's folder: the lab's own of this run, else one that was brought along."""
        trained = self.work / "trained" / name / "head"
        if (trained / "model.safetensors").exists():
            return trained
        if name == "eagle3":
            return CHECKOUT / "tests/data/smollm2-135m-eagle3"
        return Path(os.environ.get("LAB_HEADS", self.work / "kit" / "heads")) / name

    def engine_env(self, **more: str) -> dict[str, str]:
        """For an engine's process: its own packages, and the loader of stand-ins."""
        site = self.work / "kit" / "engine"
        path = [str(site)] if site.exists() else []
        given = os.environ.get("LAB_ENGINE_PATH")
        path += [str(LAB), *([given] if given else [])]
        slim = NO_EXTRAS if site.exists() else {}
        small = room() if self.rehearse else {}
        path_of = {"PYTHONPATH": os.pathsep.join(path)}
        return {**os.environ, **small, **QUIET, **slim, **path_of, **more}

    def own_env(self, **more: str) -> dict[str, str]:
        """For specctl's process."""
        extra = self.work / "kit" / "specctl"
        path = [str(CHECKOUT), *([str(extra)] if extra.exists() else [])]
        state = str(self.work / "state")
        return {
            **os.environ,
            **QUIET,
            "PYTHONPATH": os.pathsep.join(path),
            "SPECCTL_STATE": state,
            **more,
        }


def room() -> dict[str, str]:
    """GiB of cache of a CPU's servers, several on one machine: 1, unless it is given."""
    name = "VLLM_CPU_KVCACHE_SPACE"
    return {name: os.environ.get(name, "1")}


def say(text: str) -> None:
    """A line, with the seconds since this call began."""
    print(f"{time.monotonic() - _BEGIN:6.0f} s  {text}", flush=True)


def specctl(
    places: Places,
    arguments: Sequence[str],
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Runs specctl; interrupted when its time is up, so that it keeps what it has.

    Returns:
        Its exit code (130: interrupted) and stdout.
    """
    command = [places.python, "-m", "speccli", *arguments]
    say("$ specctl " + shlex.join(arguments))
    process = subprocess.Popen(
        command, env=places.own_env(**(env or {})), stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    )
    try:
        out, _ = process.communicate(timeout=max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        out = end(process, 20)
        say(f"stopped after {limit_s:.0f} s; the same call goes on with it")
        return 130, out
    except KeyboardInterrupt:
        try:  # a terminal told it too, and told twice it keeps less
            process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            end(process, 12)
        raise
    return process.returncode, out


def end(process: subprocess.Popen[str], within_s: float, how: int = signal.SIGINT) -> str:
    """Tells a specctl to stop in good order; it is killed where it does not.

    Returns:
        Its stdout, where that is a pipe.
    """
    process.send_signal(how)
    try:
        out, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return out or ""


def read(file: Path) -> dict[str, Any]:
    """A JSON object that was kept; empty where there is none.

    Raises:
        Stop: it is something else, or half of one.
    """
    if not file.exists():
        return {}
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Stop(f"{file} is not whole ({error}): move it away, to measure it anew") from error
    if not isinstance(told, dict):
        raise Stop(f"{file} holds no result: move it away, to measure it anew")
    return told


def write(places: Places, name: str, value: Any) -> Path:
    """A JSON result."""
    file = places.work / "results" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return file


def keep_log(places: Places, group: str, log: Path) -> None:
    """The lines of a server's log that facts are read from; whole logs are megabytes."""
    marks: tuple[str, ...] = (
        "Model loading",
        "KV cache",
        "Graph captur",
        "graph",
        "Maximum concurrency",
        "Runner",
        "LinearKernel",
        "ScaledMM",
    )
    marks += ("took", "ERROR", "Error", "WARNING", "non-default args")
    lines = log.read_text(errors="replace").splitlines()
    kept = [line[:400] for line in lines if any(mark in line for mark in marks)]
    folder = places.work / "results" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{group}-{log.stem}.log").write_text("\n".join(kept[-400:]) + "\n")
