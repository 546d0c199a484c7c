"""What has to be there before anything starts: two Pythons, the model, heads, prompts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from driver import room
from driver.groups import Bench, Group
from driver.measure import dataset, rehearsed
from driver.places import CHECKOUT, Places, Stop, say

_FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
FILES = {"mtbench": "question.jsonl", "humaneval": "HumanEval.jsonl.gz"}
"""Of the public sets, below LAB_DATA."""


def servable(places: Places, group: Group) -> tuple[Group, list[str]]:
    """The group with the arms that can be served here, and why each other is left out.

    Raises:
        Stop: there is none.
    """
    headed, without = heads(places, group)
    fitting, large = room.that_fits(places, headed)
    without += large
    for each in without:
        say(f"{group.name}: without {each}")
    if not fitting.arms:
        raise Stop(f"{group.name}: no arm can be served here")
    return fitting, without


def check(places: Places, group: Group, benches: Sequence[Bench]) -> None:
    """Raises where a Python, the model or the prompts of all benches are not there."""
    pythons(places)
    model(places)
    lacking = {}
    for bench in benches:
        names = (rehearsed(bench) if places.rehearse else bench).datasets
        if why := prompts(places, names):
            lacking[bench.name] = why
    if lacking and len(lacking) == len(benches):
        raise Stop(next(iter(lacking.values())))
    for name, why in lacking.items():
        say(f"{group.name}/{name}: cannot be measured: {why}")


def pythons(places: Places) -> None:
    """Raises where one of the two Pythons cannot do what it is for; both are asked at once."""
    help_ = [places.python, "-m", "speccli", "bench", "run", "--help"]
    own = _asked("LAB_PYTHON", help_, places.own_env(PYTHONUTF8="1"))
    try:
        engine = _asked("LAB_ENGINE", [places.engine, "-c", _FIND], places.engine_env())
        lacks_vllm = _failed(engine)
    finally:
        lacks_specctl = _failed(own)
    if lacks_specctl is not None:
        raise Stop(f"LAB_PYTHON: {places.python} cannot run specctl: {lacks_specctl or 'no word'}")
    if lacks_vllm is not None:
        raise Stop(f"LAB_ENGINE: {places.engine} has no vllm {lacks_vllm}".rstrip())


def _failed(process: subprocess.Popen[str]) -> str | None:
    """The first word of what went wrong; None where nothing did."""
    _, errors = process.communicate()
    return next(iter(errors.strip().splitlines()), "") if process.returncode else None


def _asked(name: str, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command, env=env, cwd=CHECKOUT, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise Stop(f"{name}: {command[0]}: {error.strerror}") from error


def model(places: Places) -> None:
    """Raises where the small target is not."""
    if not (places.model / "config.json").exists():
        raise Stop(
            f"LAB_MODEL: no config.json in {places.model}: scripts/smollm2_target.py FOLDER makes "
            "one, or unpack brings it"
        )


def prompts(places: Places, names: Iterable[str]) -> str | None:
    """Why one of these sets of prompts cannot be had; None where all can."""
    for name in names:
        file = FILES.get(name)
        if file is not None and not next(places.data.rglob(file), None):
            return f"LAB_DATA: no {file} below {places.data}: prompts.py makes it"
        if file is None and not Path(dataset(places, name)).exists():
            return f"LAB_DATA: no {name} in {places.data}: prompts.py makes it"
    return None


def heads(places: Places, asked: Group) -> tuple[Group, list[str]]:
    """The group without the arms whose head nobody has."""
    kept, without = [], []
    for arm in asked.arms:
        head = places.head(arm.head or "eagle3")
        if arm.method in ("eagle3", "p-eagle") and not (head / "config.json").exists():
            without.append(
                f"{arm.name}: no head in {head}: train --method {arm.method} makes one, LAB_HEADS "
                "names a folder of them"
            )
        else:
            kept.append(arm)
    return replace(asked, arms=tuple(kept)), without
