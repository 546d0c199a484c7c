"""A group's benches: a `specctl bench run` each, that stops in time and is gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from driver.groups import SHAREGPT, Arm, Bench, Group
from driver.places import LAB, Places, say, specctl
from driver.servers import PORT, answers

WORDS = {
    "8b": "an 8B model (Llama-3.1-8B: 8.03e9 parameters)",
    "32b": "a 32B model (Qwen3-32B: 32.8e9 parameters)",
    "70b": "a 70B model (Llama-3.1-70B: 70.6e9 parameters)",
    "tiny": "a rehearsal's model of 0.7e9 parameters",
}
SCHEMA = LAB / "data" / "incident.schema.json"


def stand_in(group: Group, bench: Bench) -> str | None:
    """What a report says of the model; None: it is what it is."""
    if group.shape == "small":
        return None
    arms = [arm for arm in group.arms if not bench.arms or arm.name in bench.arms]
    kinds = "/".join(sorted({arm.weights for arm in arms})).upper()
    return (
        f"SmolLM2-135M-Instruct embedded exactly in the shape of {WORDS[group.shape]}, {kinds}: "
        "the cost is that model's, text and acceptance are the 135M pair's"
    )


def result(places: Places, group: Group, bench: Bench) -> Path:
    """Where a bench is kept."""
    return places.work / "results" / f"{group.name}-{bench.name}.json"


def measure(places: Places, group: Group, only: str | None = None) -> int:
    """Every bench of a group for which there is time.

    Returns:
        0 all measured, 1 some not yet, 2 one failed.
    """
    worst = 0
    for bench in group.benches:
        if only is not None and bench.name != only:
            continue
        if complete(result(places, group, bench)):
            say(f"{group.name}/{bench.name}: measured before")
            continue
        if places.left_s < 15:
            say(f"{group.name}/{bench.name}: no time left")
            worst = max(worst, 1)
            continue
        say(f"{group.name}/{bench.name}: about {bench.seconds} s, {places.left_s:.0f} s left")
        words = line(places, group, bench, _up)
        if "--arm" not in words:
            wanted = not bench.arms or {arm.name for arm in group.arms} & set(bench.arms)
            say(f"{group.name}/{bench.name}: none of its arms is up")
            worst = max(worst, 2 if wanted else 0)
            continue
        code, _ = specctl(places, words, limit_s=places.left_s - 10)
        worst = max(worst, {0: 0, 1: 0, 130: 1}.get(code, 2))
        say(f"{group.name}/{bench.name}: ended with {code}")
    return worst


def complete(file: Path) -> bool:
    """Whether a bench's file holds all that was asked for."""
    return file.exists() and bool(json.loads(file.read_text()).get("complete"))


def _up(n: int) -> bool:
    return answers(PORT + n)


def line(
    places: Places, group: Group, bench: Bench, up: Callable[[int], bool] = lambda n: True
) -> list[str]:
    """Arguments of `specctl bench run`; arms that are not `up` are left out."""
    bench = rehearsed(bench) if places.rehearse else bench
    file = result(places, group, bench)
    file.parent.mkdir(parents=True, exist_ok=True)
    made = ["bench", "run", "--out", str(file), "--name", f"{group.name}-{bench.name}"]
    for n, arm in enumerate(group.arms):
        if (not bench.arms or arm.name in bench.arms) and up(n):
            made += _arm(places, group, arm, n)
    for name in bench.datasets:
        made += ["--dataset", dataset(places, name)]
    if any(name in ("mtbench", "humaneval") for name in bench.datasets):
        made += ["--data", str(places.data)]
    made += ["--batch", bench.batches, "--requests", bench.requests]
    made += ["--max-tokens", str(bench.max_tokens), "--repeats", str(bench.repeats)]
    made += [str(SCHEMA) if word == "SCHEMA" else word for word in bench.more]
    made += [] if places.rehearse else ["--nvml"]
    made += ["--gpus-per-engine", str(group.gpus)] if group.gpus > 1 else []
    words = stand_in(group, bench)
    made += ["--stand-in", words] if words else []
    return [*made, "--resume"] if file.exists() else made


def _arm(places: Places, group: Group, arm: Arm, n: int) -> list[str]:
    log = places.work / "servers" / group.name / f"{arm.name}.log"
    return [
        "--arm",
        f"{arm.label or arm.name}=http://127.0.0.1:{PORT + n}",
        "--server-log",
        f"{arm.label or arm.name}={log}",
    ]


def dataset(places: Places, name: str) -> str:
    """What `--dataset` takes: a public set's name, else a file of the lab or of the kit."""
    if not name.endswith(".jsonl"):
        return name
    own = LAB / "data" / name
    return str(own if own.exists() else places.data / name)


def rehearsed(bench: Bench) -> Bench:
    """The same in small."""
    loads = min(2, len(bench.batches.split(",")))
    return replace(
        bench,
        batches=",".join(["1", "3"][:loads]),
        requests=",".join(["2", "4"][:loads]),
        repeats=min(2, bench.repeats),
        max_tokens=16,
        datasets=bench.datasets[:2] if SHAREGPT not in bench.datasets else bench.datasets,
    )
