"""Starts a group's servers, all at once, and says when they are ready; they outlive the call."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from driver import places as places_
from driver import room, up
from driver.groups import Arm, Group
from driver.places import LAB, Places, Stop, say

START_S = 420.0
SPLIT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
"""No NVLink multicast: on a shared host it reaches into what other guests use. vLLM's own
all-reduce does without."""
FIRST_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""With K by batch: vLLM 0.25's second runner, its default, does not start with one. For the head it
makes graphs of 1 + K - the largest K tokens, which is none or fewer than none."""
NO_MULTICAST = json.dumps({"pass_config": {"fuse_allreduce_rms": False}})


def folder(places: Places, group: Group, arm: Arm) -> Path:
    """The target that an arm serves."""
    if arm.dense:
        return places.model
    if arm.spread is not None:
        noise = f"-noise-{arm.noise:g}" if arm.noise else ""
        return places.work / "stand-ins" / f"mixture-{arm.spread:g}{noise}"
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
            given = ("--spread", str(arm.spread), "--noise", str(arm.noise))
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
        rows = schedule(places, group, arm.k)
        # Graphs are made for each K of the schedule: none may be above what the engine drafts.
        made["num_speculative_tokens"] = max(k for _, _, k in rows) or arm.k
        made["num_speculative_tokens_per_batch_size"] = rows
    return made


def schedule(places: Places, group: Group, k: int) -> list[list[int]]:
    """K by batch, as the sweep gave it, one K too; else as the first measurements suggest."""
    file = places.work / "results" / "schedule.json"
    told = places_.read(file).get("speculative_config") or {}
    most = group.max_num_seqs
    if found := told.get("num_speculative_tokens_per_batch_size"):
        return [[int(number) for number in row] for row in found]
    if one := told.get("num_speculative_tokens"):
        return [[1, most, int(one)]]
    guess = [[1, 16, k], [17, 64, 3], [65, 128, 1]]
    return [[first, min(last, most), n] for first, last, n in guess if first <= most]


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
    if places.rehearse or group.cpu:
        made += [] if "--enforce-eager" in made else ["--enforce-eager"]
    else:
        kv = int(arm.kv_gib * 2**30)
        made += ["--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", str(kv)]
    return made + (["--speculative-config", json.dumps(config)] if config else [])


def start(places: Places, group: Group) -> list[str]:
    """All servers of a group, at once; returns when each answers or is given up.

    Returns:
        What went wrong, an arm each: the others can be measured all the same.

    Raises:
        Stop: a port is another's, or a stand-in could not be made.
    """
    up.refuse_others(places, group)
    run = up.folder(places, group)
    run.mkdir(parents=True, exist_ok=True)
    down = [arm for arm in group.arms if not up.alive(up.pid_file(places, group, arm))]
    if down:
        make(places, group)
    lines, wrong = {}, []
    begin = time.monotonic()
    for arm in group.arms:
        if arm in down:
            lines[arm.name] = command(places, group, arm, up.port(group, arm))
            _spawn(places, group, arm, lines[arm.name], run)
        if places.rehearse or group.cpu:  # two cores: one after the other
            wrong += _waited(places, group, arm, run, time.monotonic())
    for arm in group.arms:
        if not (places.rehearse or group.cpu):
            wrong += _waited(places, group, arm, run, begin)
        if up.is_up(places, group, arm):
            _remember(places, group, arm, run)
    _told(places, group, lines, wrong, time.monotonic() - begin)
    return wrong


def _told(
    places: Places, group: Group, lines: dict[str, list[str]], wrong: list[str], took_s: float
) -> None:
    """What was started; of servers that were up already, what was said then."""
    name = f"servers-{group.name}.json"
    old = _before(places, name)
    ready_s = round(took_s, 1) if lines else old.get("ready_s")
    commands = {**old.get("commands", {}), **lines}
    told = {"commands": commands, "ready_s": ready_s, "failed": wrong}
    places_.write(places, name, {**told, **room.held(places, group)})


def _before(places: Places, name: str) -> dict[str, Any]:
    """What was said before; nothing where that is not whole: servers are ended all the same."""
    with suppress(Stop):
        return places_.read(places.work / "results" / name)
    return {}


def _waited(places: Places, group: Group, arm: Arm, run: Path, begin: float) -> list[str]:
    try:
        _wait(places, group, arm, run, begin)
    except Stop as stop:
        say(str(stop))
        return [str(stop)]
    return []


def environment(group: Group, arm: Arm) -> dict[str, str]:
    """What an arm's engine is told beside its line."""
    return {**(SPLIT if group.gpus > 1 else {}), **(FIRST_RUNNER if arm.schedule else {})}


def _spawn(places: Places, group: Group, arm: Arm, line: list[str], run: Path) -> None:
    cache = run / f"cache-{arm.name}"
    known = _known(places, group, arm)
    if known.exists() and not cache.exists():
        shutil.copytree(known, cache, symlinks=True)
    more = {**environment(group, arm), **(places_.room() if group.cpu else {})}
    env = places.engine_env(VLLM_CACHE_ROOT=str(cache), **more)
    with (run / f"{arm.name}.log").open("w") as log:
        process = subprocess.Popen(
            line, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd=LAB,
        )  # fmt: skip
    up.keep(up.pid_file(places, group, arm), process.pid)


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


def _wait(places: Places, group: Group, arm: Arm, run: Path, begin: float) -> None:
    log = run / f"{arm.name}.log"
    while not up.is_up(places, group, arm):
        if not up.alive(up.pid_file(places, group, arm)):
            raise Stop(f"{arm.name}: ended while starting: {cause(log)} ({log})")
        if time.monotonic() - begin > START_S or places.left_s < 5:
            raise Stop(f"{arm.name}: not ready in time: {cause(log)} ({log})")
        time.sleep(0.5)
    say(f"{group.name}/{arm.name}: ready {time.monotonic() - begin:.0f} s after its start")


_ERROR = re.compile(r"\b[\w.]*(?:Error|Exception)\b:? .+")


def cause(log: Path) -> str:
    """The first error of a server's log: what comes after says that one followed from another.

    A warning may name an error too, and the server goes on.
    """
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    wrong = (line for line in lines if " WARNING " not in line)
    found = next((told[0] for line in wrong if (told := _ERROR.search(line))), None)
    return (found or next((line for line in reversed(lines) if line.strip()), "no word"))[:300]


def stop(places: Places, group: Group) -> None:
    """Ends the servers that this lab started for a group, each by its process group."""
    run = up.folder(places, group)
    files = list(run.glob("*.pid"))
    pids = {file: number for file in files if (number := up.pid(file)) is not None}
    name = f"servers-{group.name}.json"
    kept = _before(places, name)
    if pids and kept:  # weighed again: prompts have been read since they started
        after = {"memory_after_load": room.held(places, group)["memory_by_server"]}
        places_.write(places, name, kept | after)
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    end = time.monotonic() + 12
    while time.monotonic() < end and any(map(up.alive, pids)):
        time.sleep(0.5)
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    for file in files:
        file.unlink()
    for log in run.glob("*.log"):
        places_.keep_log(places, group.name, log)
