"""Starts a group's servers, all at once, and says when they are ready; they outlive the call."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from driver import places as places_
from driver.groups import Arm, Group
from driver.places import LAB, Places, Stop, say

PORT = 8101
START_S = 420.0
SPLIT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
"""No NVLink multicast: on a shared host it reaches into what other guests use. vLLM's own
all-reduce does without."""
NO_MULTICAST = json.dumps({"pass_config": {"fuse_allreduce_rms": False}})


def folder(places: Places, group: Group, arm: Arm) -> Path:
    """The target that an arm serves."""
    if arm.dense:
        return places.model
    if arm.spread is not None:
        return places.work / "stand-ins" / f"mixture-{arm.spread:g}"
    return places.work / "stand-ins" / f"{group.shape}-{arm.weights}" / "target"


def make(places: Places, group: Group) -> None:
    """Folders of a group's stand-ins: recipes and links, seconds."""
    for weights in sorted({a.weights for a in group.arms if a.spread is None and not a.dense}):
        out = places.work / "stand-ins" / f"{group.shape}-{weights}"
        wanted = {a.head for a in group.arms if a.method in ("eagle3", "p-eagle")}
        heads = [f"--head={name}={places.head(name)}" for name in sorted(filter(None, wanted))]
        _stand_in(places, "model", "--shape", group.shape, "--weights", weights, *heads, out=out)
        if any(a.method == "draft_model" for a in group.arms):
            vocab = json.loads((out / "target/config.json").read_text())["vocab_size"]
            like = ("--shape", _draft_shape(places), "--vocab", str(vocab))
            _stand_in(places, "model", *like, out=out / "draft")
    for arm in group.arms:
        if arm.spread is not None:
            given = ("--spread", str(arm.spread))
            _stand_in(places, "mixture", *given, out=folder(places, group, arm))


def _draft_shape(places: Places) -> str:
    return "tiny-draft" if places.rehearse else "1b"


def _stand_in(places: Places, *arguments: str, out: Path) -> None:
    command = [places.engine, "-m", "stand_in", *arguments]
    command += ["--target", str(places.model), "--out", str(out)]
    done = subprocess.run(
        command, env=places.engine_env(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Stop(f"stand_in {' '.join(arguments)}: {done.stderr.strip()[-500:]}")


def speculation(places: Places, group: Group, arm: Arm) -> dict[str, Any] | None:
    """`--speculative-config` of an arm."""
    if arm.method == "none":
        return None
    made: dict[str, Any] = {"num_speculative_tokens": arm.k}
    if arm.method == "ngram":
        return made | {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    if arm.spread is not None or arm.dense:
        head = places.head(arm.head or "eagle3")
    else:
        head = folder(places, group, arm).parent / (arm.head or "eagle3")
    if arm.method == "draft_model":
        made |= {"method": "draft_model", "model": str(head.parent / "draft" / "target")}
    else:
        made |= {"method": "eagle3", "model": str(head)}
    if arm.method == "p-eagle":
        made["parallel_drafting"] = True
    if arm.schedule:
        made["num_speculative_tokens_per_batch_size"] = schedule(places, group, arm.k)
    return made


def schedule(places: Places, group: Group, k: int) -> list[list[int]]:
    """K by batch, as the sweep gave it, else as the first measurements suggest."""
    file = places.work / "results" / "schedule.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    found = (told.get("speculative_config") or {}).get("num_speculative_tokens_per_batch_size")
    most = group.max_num_seqs
    guess = [[1, 16, k], [17, 64, 3], [65, 128, 1]]
    return found or [[first, min(last, most), n] for first, last, n in guess if first <= most]


def command(places: Places, group: Group, arm: Arm, port: int) -> list[str]:
    """The engine's line."""
    config = speculation(places, group, arm)
    made = [places.engine, "-m", "vllm.entrypoints.cli.main", "serve"]
    made += [str(folder(places, group, arm)), "--host", "127.0.0.1", "--port", str(port)]
    made += ["--served-model-name", f"smollm2-135m-as-{group.shape}", "--seed", "0"]
    made += ["--max-model-len", str(group.max_model_len), "--no-enable-prefix-caching"]
    made += ["--max-num-seqs", str(group.max_num_seqs), "--load-format", "stand-in"]
    made += [*group.extra, *arm.extra]
    if group.gpus > 1:
        made += ["--tensor-parallel-size", str(group.gpus), "--compilation-config", NO_MULTICAST]
    if places.rehearse:
        made += [] if "--enforce-eager" in made else ["--enforce-eager"]
    else:
        kv = int(arm.kv_gib * 2**30)
        made += ["--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", str(kv)]
    return made + (["--speculative-config", json.dumps(config)] if config else [])


def start(places: Places, group: Group) -> list[str]:
    """All servers of a group, at once; returns when each answers or is given up.

    Returns:
        What went wrong, an arm each: the others can be measured all the same.
    """
    make(places, group)
    run = places.work / "servers" / group.name
    run.mkdir(parents=True, exist_ok=True)
    lines, wrong = {}, []
    begin = time.monotonic()
    for n, arm in enumerate(group.arms):
        if not _alive(run / f"{arm.name}.pid"):
            lines[arm.name] = command(places, group, arm, PORT + n)
            _spawn(places, group, arm, lines[arm.name], run)
        if places.rehearse:  # two cores: one after the other
            wrong += _waited(places, group, arm, PORT + n, run, time.monotonic())
    for n, arm in enumerate(group.arms):
        if not places.rehearse:
            wrong += _waited(places, group, arm, PORT + n, run, begin)
        if answers(PORT + n):
            _remember(places, group, arm, run)
    told = {"commands": lines, "ready_s": round(time.monotonic() - begin, 1), "failed": wrong}
    places_.write(places, f"servers-{group.name}.json", {**told, **_room(group, run)})
    return wrong


def _waited(
    places: Places, group: Group, arm: Arm, port: int, run: Path, begin: float
) -> list[str]:
    try:
        _wait(places, group, arm, port, run, begin)
    except Stop as stop:
        say(str(stop))
        return [f"{arm.name}: {tail(run, arm.name, 3)}"]
    return []


def _spawn(places: Places, group: Group, arm: Arm, line: list[str], run: Path) -> None:
    cache = run / f"cache-{arm.name}"
    known = _known(places, group, arm)
    if known.exists() and not cache.exists():
        shutil.copytree(known, cache, symlinks=True)
    env = places.engine_env(VLLM_CACHE_ROOT=str(cache), **(SPLIT if group.gpus > 1 else {}))
    with (run / f"{arm.name}.log").open("w") as log:
        process = subprocess.Popen(
            line, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd=LAB,
        )  # fmt: skip
    (run / f"{arm.name}.pid").write_text(str(process.pid))


def _known(places: Places, group: Group, arm: Arm) -> Path:
    """What an engine compiled for such a server before: it starts sooner with it."""
    name = f"{group.shape}-{arm.weights}-{arm.method}-{group.gpus}"
    return places.work / "compiled" / name


def _remember(places: Places, group: Group, arm: Arm, run: Path) -> None:
    known, cache = _known(places, group, arm), run / f"cache-{arm.name}"
    if (
        cache.exists()
        and not known.exists()
        and "--enforce-eager" not in (*group.extra, *arm.extra)
    ):
        with suppress(shutil.Error, OSError):
            shutil.copytree(cache, known, symlinks=True)


def _wait(places: Places, group: Group, arm: Arm, port: int, run: Path, begin: float) -> None:
    while not answers(port):
        if not _alive(run / f"{arm.name}.pid"):
            raise Stop(f"{group.name}/{arm.name} ended while starting\n{tail(run, arm.name)}")
        if time.monotonic() - begin > START_S or places.left_s < 5:
            raise Stop(f"{group.name}/{arm.name} is not ready\n{tail(run, arm.name, 5)}")
        time.sleep(0.5)
    say(f"{group.name}/{arm.name}: ready {time.monotonic() - begin:.0f} s after its start")


def tail(run: Path, arm: str, lines: int = 25) -> str:
    """The end of a server's log."""
    file = run / f"{arm}.log"
    return (
        "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.exists() else ""
    )


def answers(port: int) -> bool:
    """Whether a server is ready there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _alive(file: Path) -> bool:
    try:
        os.kill(int(file.read_text()), 0)
    except (OSError, ValueError):
        return False
    stat = Path(f"/proc/{int(file.read_text())}/stat")
    with suppress(OSError):
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return True


def stop(places: Places, group: Group) -> None:
    """Ends the servers that this lab started for a group, each by its process group."""
    run = places.work / "servers" / group.name
    pids = {file: int(file.read_text()) for file in run.glob("*.pid")}
    kept = places.work / "results" / f"servers-{group.name}.json"
    if pids and kept.exists():  # weighed again: prompts have been read since they started
        after = {"memory_after_load": _room(group, run)["memory_by_server"]}
        places_.write(places, kept.name, json.loads(kept.read_text()) | after)
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    end = time.monotonic() + 12
    while time.monotonic() < end and any(_alive(file) for file in pids):
        time.sleep(0.5)
    for file, pid in pids.items():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        file.unlink()
    for log in run.glob("*.log"):
        places_.keep_log(places, group.name, log)


def _room(group: Group, run: Path) -> dict[str, Any]:
    """GPU memory, whole and by server, where the driver tells."""
    whole = _smi("--query-gpu=name,driver_version,memory.total,memory.used")
    by_pid: dict[int, str] = {}
    for line in _smi("--query-compute-apps=pid,used_memory"):
        pid, _, used = line.partition(",")
        if pid.strip().isdigit():
            by_pid[int(pid)] = used.strip()
    groups = {file.stem: int(file.read_text()) for file in run.glob("*.pid")}
    told = []
    for process, memory in by_pid.items():
        with suppress(OSError):
            owner = os.getpgid(process)
            told += [
                {"arm": arm.label or arm.name, "weights": arm.weights, "used": memory}
                for arm in group.arms
                if groups.get(arm.name) == owner
            ]
    return {"gpu": whole, "memory_by_server": told}


def _smi(query: str) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    line = ["nvidia-smi", query, "--format=csv,noheader"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()
