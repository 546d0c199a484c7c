"""`benchmarks/lab/run PHASE`: what a phase does is in README.md beside it."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from driver import measure, phases, servers, training
from driver.groups import GROUPS, Group
from driver.places import Places, Stop, say


def main(arguments: list[str]) -> int:
    """0 done, 1 there is more to do, 2 something failed, 64 usage."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    asked = _parser().parse_args(arguments[:at])
    asked.more = arguments[at + 1 :]
    out = asked.out or Path(os.environ.get("OUT", asked.work / "out"))
    places = Places(asked.work.resolve(), out.resolve(), asked.budget, asked.rehearse)
    places.work.mkdir(parents=True, exist_ok=True)
    try:
        return _phase(places, asked)
    except Stop as stop:
        print(f"lab: {stop}", file=sys.stderr)
        return 2
    finally:
        if asked.phase not in ("list", "unpack", "report"):
            phases.collect(places)


def _phase(places: Places, asked: argparse.Namespace) -> int:
    if asked.phase in ("serve", "bench", "stop", "do", "lossless", "drift"):
        group = _group(asked)
        return {
            "serve": lambda: _served(places, group),
            "bench": lambda: measure.measure(places, group, asked.only),
            "stop": lambda: _stopped(places, group),
            "do": lambda: _do(places, group, asked.only),
            "lossless": lambda: phases.lossless(places, group),
            "drift": lambda: phases.drift(places, group),
        }[asked.phase]()
    return {
        "unpack": lambda: phases.unpack(places, asked.parts),
        "check": lambda: phases.check(places, asked.more),
        "schedule": lambda: phases.schedule(places),
        "train": lambda: training.train(places, asked),
        "collect": lambda: phases.collect(places),
        "report": lambda: phases.report(places),
        "list": _list,
    }[asked.phase]()


def _group(asked: argparse.Namespace) -> Group:
    if asked.group not in GROUPS:
        raise Stop(f"no group {asked.group!r}: there are {', '.join(GROUPS)}")
    group = GROUPS[asked.group]
    if asked.arms:
        wanted = asked.arms.split(",")
        group = replace(group, arms=tuple(a for a in group.arms if a.name in wanted))
    if asked.rehearse and group.shape != "small":
        group = replace(group, shape="tiny")
    return replace(group, max_num_seqs=16, max_model_len=1024) if asked.rehearse else group


def _served(places: Places, group: Group) -> int:
    return 2 if servers.start(places, group) else 0


def _stopped(places: Places, group: Group) -> int:
    servers.stop(places, group)
    return 0


def _do(places: Places, group: Group, only: str | None) -> int:
    """Serve, measure, stop: what fits into one call."""
    wrong = servers.start(places, group)
    worst = measure.measure(places, group, only)
    if worst == 0:
        servers.stop(places, group)
    say(f"{group.name}: {('all measured', 'not all measured yet', 'a bench failed')[worst]}")
    for each in wrong:
        say(f"{group.name}: without {each}")
    return max(worst, 2 if wrong else 0)


def _list() -> int:
    for group in GROUPS.values():
        total = sum(bench.seconds for bench in group.benches)
        arms = ", ".join(arm.name for arm in group.arms)
        print(f"{group.name:<11} {group.start_s:>4} + {total:>3} s  {arms}")
        for note in group.notes:
            print(f"{'':<24}{note}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks/lab/run",
        description=__doc__,
        epilog="After --: more of `specctl draft train` (train), of `kernels_check` (check).",
    )
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("group", nargs="?", default="8b")
    parser.add_argument("--arms", help="some of the group's")
    parser.add_argument("--only", metavar="BENCH", help="one of the group's")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds of this call")
    parser.add_argument(
        "--work", type=Path, default=Path(os.environ.get("LAB_DIR", "/var/tmp/lab"))
    )
    parser.add_argument("--out", type=Path, help="what is brought home (OUT)")
    parser.add_argument("--parts", type=Path, default=Path.home() / "parts")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, in the smallest shape")
    parser.add_argument("--method", default="eagle3", choices=("eagle3", "p-eagle"))
    parser.add_argument("--minutes", type=float, default=4.0, help="of training, over all calls")
    parser.add_argument("--no-accept", action="store_true", help="train alone, no server after it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="of the training's job"
    )
    parser.add_argument("--init", metavar="shipped|DIR", help="go on from this head")
    parser.add_argument(
        "--data",
        action="append",
        metavar="NAME|FILE[=SHARE]",
        help="conversations (ShareGPT's), operators, or a file; repeat",
    )
    return parser


PHASES = (
    *("list", "unpack", "check", "serve", "bench", "stop", "do", "lossless", "drift", "schedule"),
    *("train", "collect", "report"),
)
