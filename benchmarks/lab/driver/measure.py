"""A group's benches: a `specctl bench run` each, that stops in time and is gone on with."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driver import places as places_
from driver import up
from driver.groups import SHAREGPT, Arm, Bench, Group
from driver.places import LAB, Places, Stop, say, specctl

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
    kinds = "/".join(sorted({arm.weights for arm in arms_of(group, bench)})).upper()
    return (
        f"SmolLM2-135M-Instruct embedded exactly in the shape of {WORDS[group.shape]}, {kinds}: "
        "the cost is that model's, text and acceptance are the 135M pair's"
    )


def result(places: Places, group: Group, bench: Bench) -> Path:
    """Where a bench is kept."""
    return places.work / "results" / f"{group.name}-{bench.name}.json"


def chosen(group: Group, only: str | None = None) -> list[Bench]:
    """A group's benches, or the one that was asked for."""
    return [bench for bench in group.benches if only is None or bench.name == only]


def arms_of(group: Group, bench: Bench) -> list[Arm]:
    """The group's arms that a bench asks."""
    return [arm for arm in group.arms if not bench.arms or arm.name in bench.arms]


def done(places: Places, group: Group, bench: Bench) -> bool:
    """Whether nothing of a bench is left to measure, servers or none.

    Raises:
        Stop: its file is not whole.
    """
    return complete(result(places, group, bench), arms_of(group, bench))


def measure(places: Places, group: Group, only: str | None = None) -> int:
    """Every bench of a group for which there is time.

    Returns:
        0 all measured, 1 some not yet, 2 one failed.
    """
    return max((_measured(places, group, bench) for bench in chosen(group, only)), default=0)


def _measured(places: Places, group: Group, bench: Bench) -> int:
    name, file = f"{group.name}/{bench.name}", result(places, group, bench)
    there = [arm for arm in arms_of(group, bench) if up.is_up(places, group, arm)]
    try:
        if complete(file, there):
            left = _left(file)
            say(f"{name}: measured before{left and f'; {left}'}")
            return 2 if left else 0
    except Stop as stop:
        say(f"{name}: {stop}")
        return 2
    if places.left_s < 15:
        say(f"{name}: no time left")
        return 1
    if not there:
        say(f"{name}: none of its arms is up")
        return 2 if arms_of(group, bench) else 0
    say(f"{name}: about {bench.seconds} s, {places.left_s:.0f} s left")
    words = line(places, replace(group, arms=tuple(there)), bench)
    before = places_.read(file)
    if not before:
        _kept(file).unlink(missing_ok=True)  # of a bench that was measured before, and removed
    code, _ = specctl(places, words, limit_s=places.left_s - 10)
    say(f"{name}: ended with {code}")
    _give_up(file, before)
    again = contaminated(places_.read(file), given_up(file))
    if again:
        say(
            f"{name}: {again} rows are contaminated or broke off; the same call measures them again"
        )
    left = _left(file)
    if left:
        say(f"{name}: {left}")
    done = 2 if left else 0
    return 1 if again and code == 1 else {0: done, 1: done, 130: 1}.get(code, 2)


def complete(file: Path, arms: Sequence[Arm] = ()) -> bool:
    """Whether a bench's file holds all that was asked for, of these arms too, and will do.

    Raises:
        Stop: it is not whole.
    """
    told = places_.read(file)
    names = {str(arm.get("name")) for arm in told.get("arms", ()) if isinstance(arm, dict)}
    asked = {arm.label or arm.name for arm in arms}
    return bool(told.get("complete")) and asked <= names and not contaminated(told, given_up(file))


def contaminated(told: Mapping[str, Any], given_up: Collection[str] = ()) -> int:
    """Rows of a bench while whose measuring something else was at work, or their server ended.

    `given_up`: rows that broke off each time; they are not measured for ever.
    """
    broken = _broken(told).keys() - set(given_up)
    return len(broken) + len([row for row in _rows(told) if row.get("state") == "contaminated"])


def given_up(file: Path) -> list[str]:
    """Rows of a bench that broke off, were measured once more, and broke off again.

    Raises:
        Stop: what is kept of them is not whole.
    """
    return list(places_.read(_kept(file)))


def _kept(file: Path) -> Path:
    return file.parent.parent / "given-up" / file.name


def _give_up(file: Path, before: Mapping[str, Any]) -> None:
    """Note what broke off before, was measured again, and broke off again."""
    former = _broken(before)
    twice = {
        name: row.get("error_kinds")
        for name, row in _broken(places_.read(file)).items()
        if name in former and row.get("started") != former[name].get("started")
    }
    if twice:
        _kept(file).parent.mkdir(parents=True, exist_ok=True)
        kept = {**places_.read(_kept(file)), **twice}
        _kept(file).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _left(file: Path) -> str:
    """What is said of rows that were given up and are still broken; empty where none is."""
    left = [row for name, row in _broken(places_.read(file)).items() if name in given_up(file)]
    kinds = sorted({str(kind) for row in left for kind in row.get("error_kinds") or ()})
    why = f" ({', '.join(kinds)})" if kinds else ""
    return (
        f"{len(left)} rows break off each time{why} and are left; "
        f"to measure them again, remove {_kept(file)}"
        if left
        else ""
    )


def _rows(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in told.get("rows", ()) if isinstance(row, dict)]


def _broken(told: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Rows more than 1 % of whose requests failed, by name: nothing can be judged by them."""
    return {
        " ".join(str(row.get(what)) for what in ("arm", "batch", "rate", "dataset", "repeat")): row
        for row in _rows(told)
        if row.get("state") == "partial" and 99 * row.get("errors", 0) > row.get("requests", 0)
    }


def line(places: Places, group: Group, bench: Bench) -> list[str]:
    """Arguments of `specctl bench run`, of those of the group's arms that the bench asks."""
    bench = rehearsed(bench) if places.rehearse else bench
    file = result(places, group, bench)
    file.parent.mkdir(parents=True, exist_ok=True)
    made = ["bench", "run", "--out", str(file), "--name", f"{group.name}-{bench.name}"]
    for arm in arms_of(group, bench):
        made += _arm(places, group, arm)
    for name in bench.datasets:
        made += ["--dataset", dataset(places, name)]
    if any(name in ("mtbench", "humaneval") for name in bench.datasets):
        made += ["--data", str(places.data)]
    made += ["--batch", bench.batches, "--requests", bench.requests]
    made += ["--max-tokens", str(bench.max_tokens), "--repeats", str(bench.repeats)]
    made += [str(SCHEMA) if word == "SCHEMA" else word for word in bench.more]
    made += [] if places.rehearse or group.cpu else ["--nvml"]
    made += ["--gpus-per-engine", str(group.gpus)] if group.gpus > 1 else []
    words = stand_in(group, bench)
    made += ["--stand-in", words] if words else []
    return [*made, "--resume"] if file.exists() else made


def _arm(places: Places, group: Group, arm: Arm) -> list[str]:
    log = up.folder(places, group) / f"{arm.name}.log"
    return [
        "--arm",
        f"{arm.label or arm.name}=http://127.0.0.1:{up.port(group, arm)}",
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
