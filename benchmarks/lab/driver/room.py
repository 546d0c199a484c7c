"""GPU memory: what a group's servers need, what the GPU has, and what each server came to hold."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from typing import Any

from driver import up
from driver.groups import Arm, Group
from driver.places import Places, Stop, say

OWN_GIB = {
    ("8b", "bf16"): 16.7,
    ("32b", "fp8"): 34.6,
    ("70b", "fp8"): 70.4,
    ("70b", "int4"): 40.0,
    ("70b", "bf16"): 133.6,
}
"""A server without its KV cache, by `specctl plan`; of the smallest shapes it is `SMALL_GIB`."""
SMALL_GIB = 4.0
HEAD_GIB = 1.3
DRAFT_GIB = 2.5
SPLIT_GIB = 1.9
"""What each of several GPUs holds besides its share."""


def gib(group: Group, arm: Arm) -> float:
    """What an arm's server takes of each of its GPUs."""
    own = OWN_GIB.get((group.shape, arm.weights), SMALL_GIB) / group.gpus
    own += SPLIT_GIB if group.gpus > 1 else 0.0
    if group.shape != "small":
        own += {"eagle3": HEAD_GIB, "p-eagle": HEAD_GIB, "draft_model": DRAFT_GIB}.get(
            arm.method, 0.0
        )
    return own + arm.kv_gib


def need(group: Group) -> float:
    """GiB of each GPU with all of a group's servers up."""
    return 0.0 if group.cpu else sum(gib(group, arm) for arm in group.arms)


def that_fits(places: Places, group: Group) -> tuple[Group, list[str]]:
    """The group with as many of its arms as the GPU holds, and why each other is left out.

    Raises:
        Stop: there are fewer GPUs than a server is split over.
    """
    found = [] if places.rehearse or group.cpu else smi("--query-gpu=memory.total", "nounits")
    sizes = [int(word) / 1024 for word in found if word.strip().isdigit()]
    if sizes and len(sizes) < group.gpus:
        raise Stop(f"{group.name}: each server is split over {group.gpus} GPUs, here is 1")
    if not sizes or need(group) <= min(sizes):
        return group, []
    there = min(sizes)
    kept: list[Arm] = []
    without: list[str] = []
    for arm in group.arms:
        if sum(gib(group, each) for each in (*kept, arm)) <= there:
            kept.append(arm)
        else:
            without.append(f"{arm.name}: its {gib(group, arm):.0f} GiB do not fit beside the rest")
    fit = ", ".join(arm.name for arm in kept) or "none"
    say(
        f"{group.name}: its servers need {need(group):.0f} GiB, the GPU has {there:.0f}: "
        f"{fit} fit; --arms takes others"
    )
    return replace(group, arms=tuple(kept)), without


def held(places: Places, group: Group) -> dict[str, Any]:
    """GPU memory, whole and by server, where the driver tells."""
    whole = smi("--query-gpu=name,driver_version,memory.total,memory.used")
    by_pid: dict[int, str] = {}
    for line in smi("--query-compute-apps=pid,used_memory"):
        number, _, used = line.partition(",")
        if number.strip().isdigit():
            by_pid[int(number)] = used.strip()
    files = up.folder(places, group).glob("*.pid")
    groups = {file.stem: up.pid(file) for file in files}
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


def smi(query: str, *form: str) -> list[str]:
    """A line of `nvidia-smi` for each GPU or process; none where it is not there."""
    if shutil.which("nvidia-smi") is None:
        return []
    line = ["nvidia-smi", query, "--format=" + ",".join(("csv", "noheader", *form))]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()
