"""`benchmarks/lab/run PHASE`: what a phase does is in README.md beside it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from driver import measure, phases, ready, room, servers, training, up
from driver.groups import GROUPS, Group
from driver.places import Places, Stop, Usage, say


def main(arguments: list[str]) -> int:
    """What --help says of exit codes."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    asked = _parser().parse_args(arguments[:at])
    asked.more = arguments[at + 1 :]
    if asked.phase == "list":
        return _list()
    out = asked.out or Path(os.environ.get("OUT", asked.work / "out"))
    places = Places(asked.work.resolve(), out.resolve(), asked.budget, asked.rehearse)
    try:
        with _told_once():
            return _kept(places, asked)
    except Stop as stop:
        print(f"lab: {stop}", file=sys.stderr)
        return 64 if isinstance(stop, Usage) else 2
    except OSError as error:
        print(f"lab: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130
    finally:
        for name in up.left(places):
            print(f"lab: {name}'s servers are up; run stop {name} ends them", file=sys.stderr)


def _kept(places: Places, asked: argparse.Namespace) -> int:
    """The phase, and all results so far as one archive, whatever becomes of it."""
    group = _group(asked) if asked.phase in OF_A_GROUP else None
    for folder in (places.work, places.out):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        return _phase(places, asked) if group is None else _of_group(places, asked, group)
    finally:
        if asked.phase not in ("unpack", "report", "collect"):
            phases.collect(places)


@contextmanager
def _told_once() -> Iterator[None]:
    """The first SIGINT or SIGTERM interrupts; what is ended and kept then is not cut off.

    In the background too, where a shell has SIGINT ignored: a specctl that inherits that could not
    be told that its time is up.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)

    def told(*_: object) -> None:
        for number in numbers:
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt

    before = [signal.signal(number, told) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _of_group(places: Places, asked: argparse.Namespace, group: Group) -> int:
    return {
        "serve": lambda: _served(places, group),
        "bench": lambda: measure.measure(places, group, asked.only),
        "stop": lambda: _stopped(places, group),
        "do": lambda: _do_all(places, group, asked.only),
        "lossless": lambda: phases.lossless(places, group),
        "drift": lambda: phases.drift(places, group),
    }[asked.phase]()


def _phase(places: Places, asked: argparse.Namespace) -> int:
    return {
        "unpack": lambda: phases.unpack(places, asked.parts),
        "check": lambda: phases.check(places, asked.more),
        "schedule": lambda: phases.schedule(places),
        "train": lambda: _trained(places, asked),
        "collect": lambda: phases.collect(places),
        "report": lambda: phases.report(places),
    }[asked.phase]()


def _group(asked: argparse.Namespace) -> Group:
    """The group that was asked for, with the arms that were.

    Raises:
        Usage: there is no such group, arm or bench.
    """
    if asked.group not in GROUPS:
        wrong = f"no group {asked.group!r}" if asked.group else f"{asked.phase} what?"
        raise Usage(f"{wrong}: there are {', '.join(GROUPS)}")
    group = GROUPS[asked.group]
    _known(group.name, "arm", asked.arms or (), [arm.name for arm in group.arms])
    _known(group.name, "bench", filter(None, [asked.only]), [b.name for b in group.benches])
    if asked.arms:
        group = replace(group, arms=tuple(a for a in group.arms if a.name in asked.arms))
    if asked.rehearse and group.shape != "small":
        group = replace(group, shape="tiny")
    return replace(group, max_num_seqs=16, max_model_len=1024) if asked.rehearse else group


def _known(group: str, what: str, asked: Iterable[str], there: list[str]) -> None:
    for name in asked:
        if name not in there:
            raise Usage(f"{group} has no {what} {name!r}: there are {', '.join(there)}")


def _served(places: Places, group: Group) -> int:
    group, without = ready.servable(places, group)
    ready.check(places, group, group.benches)
    return 2 if servers.start(places, group) or without else 0


def _trained(places: Places, asked: argparse.Namespace) -> int:
    ready.pythons(places)
    ready.model(places)
    return training.train(places, asked)


def _stopped(places: Places, group: Group) -> int:
    servers.stop(places, group)
    return 0


def _do_all(places: Places, group: Group, only: str | None) -> int:
    """All of a group at once, or bench after bench."""
    if not group.in_turn:
        return _do(places, group, only)
    worst = 0
    for bench in measure.chosen(group, only):
        if arms := tuple(measure.arms_of(group, bench)):
            one = replace(group, arms=arms, benches=(bench,))
            worst = max(worst, _do(places, one, bench.name))
        if worst == 1:  # its servers are up
            break
    return worst


def _do(places: Places, group: Group, only: str | None) -> int:
    """Serve, measure, judge, stop: what fits into one call."""
    group, wrong = ready.servable(places, group)
    benches = measure.chosen(group, only)
    if todo := [bench for bench in benches if not measure.done(places, group, bench)]:
        ready.check(places, group, todo)
        wrong += servers.start(places, group)
    worst = measure.measure(places, group, only)
    if worst == 0:
        if any(bench.name == "lossless" for bench in benches):
            worst = phases.lossless(places, group) % 3  # not to be told: nothing more to do
        if worst != 1:
            servers.stop(places, group)
    say(f"{group.name}: {('all measured', 'there is more to do', 'something failed')[worst]}")
    for each in wrong:
        say(f"{group.name}: without {each}")
    return max(worst, 2 if wrong else 0)


def _list() -> int:
    print(f"{'group':<21}{'GPU GiB':>8}  {'to start, to measure':<21} servers")
    for group in GROUPS.values():
        gib = f"{f'{group.gpus} x ' if group.gpus > 1 else ''}{room.need(group):.0f}"
        took = f"{group.start_s} s, {sum(bench.seconds for bench in group.benches)} s"
        print(f"{group.name:<21}{gib:>8}  {took:<21} {', '.join(arm.name for arm in group.arms)}")
        for note in group.notes:
            print(f"{'':<31}{note}")
    return 0


class _Parser(argparse.ArgumentParser):
    """Usage errors exit 64: 2 says that something failed."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"lab: {message}\n")


def _names(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="benchmarks/lab/run",
        description="Measures the groups of servers that `list` shows.",
        epilog="\n".join(
            (
                "phases:",
                *(f"  {name:<10}{what}" for name, what in PHASES.items()),
                "",
                "environment:",
                *(f"  {name:<18}{what}" for name, what in ENVIRONMENT.items()),
                "",
                "After --: more of `specctl draft train` (train), of `kernels_check` (check).",
                "Exit codes: 0 done, 1 there is more to do, 2 something failed or was left out,",
                "3 not to be told (lossless), 64 usage, 130 interrupted.",
            )
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("phase", choices=PHASES, metavar="phase", help="one of those below")
    parser.add_argument("group", nargs="?", help="one that `list` shows")
    parser.add_argument("--arms", type=_names, metavar="A,B", help="some of the group's servers")
    parser.add_argument("--only", metavar="BENCH", help="one of the group's benches")
    parser.add_argument(
        "--budget", type=float, default=570.0, metavar="S", help="seconds of this call (570)"
    )
    work = os.environ.get("LAB_DIR", "/var/tmp/lab")
    parser.add_argument(
        "--work", type=Path, default=Path(work), metavar="DIR",
        help=f"where everything is made ($LAB_DIR, else /var/tmp/lab; now {work})",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="gets lab.tar.gz, all results ($OUT, else WORK/out)"
    )
    parser.add_argument(
        "--parts", type=Path, default=Path.home() / "parts", metavar="DIR",
        help="unpack: where the parts lie (~/parts)",
    )  # fmt: skip
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, in the smallest shape")
    _training(parser.add_argument_group("train"))
    return parser


def _training(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--method", default="eagle3", choices=("eagle3", "p-eagle"), help="of the head (eagle3)"
    )
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


OF_A_GROUP = ("serve", "bench", "stop", "do", "lossless", "drift")
PHASES = {
    "list": "the groups: GPU memory, seconds, servers",
    "unpack": "joins the parts that `pack` made",
    "check": "the kernels on this GPU: green, or stop here",
    "do": "serve, bench, lossless and stop of a group; again: goes on where it ended",
    "serve": "starts a group's servers; they outlive the call",
    "bench": "measures what is not measured yet, of the servers that are up",
    "lossless": "judges where greedy answers part, asking the baseline that is up",
    "drift": "records traffic that the head knows, then other",
    "stop": "ends a group's servers",
    "schedule": "K by batch, out of 8b-k and 8b-k2",
    "train": "a head, by `specctl draft train`",
    "collect": "lab.tar.gz of all results; every phase but the next ends with it",
    "report": "pages of all results, in WORK/report",
}
ENVIRONMENT = {
    "LAB_PYTHON": "runs specctl; else the Python of this",
    "LAB_ENGINE": "has torch and vLLM; else the Python of this",
    "LAB_ENGINE_PATH": "put on the engine's PYTHONPATH: further modules for it",
    "LAB_MODEL": "the small target; else WORK/kit/smollm2-135m",
    "LAB_DATA": "prompts; else WORK/kit/data",
    "LAB_HEADS": "heads by name, as p-eagle/; else WORK/kit/heads",
    "LAB_GPU_HOUR_USD": "report: adds what a token costs",
    "LAB_DIR, OUT": "as --work, --out",
}
