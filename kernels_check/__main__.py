"""`python -m kernels_check`.

Choose checks, run them, print what came out, exit with what it means.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels_check import environment, report, runner
from kernels_check.cuda import driver
from kernels_check.manifest import manifest, mutant_names, planted
from kernels_check.model import Check, Level, Result

USAGE = 64


class _Parser(argparse.ArgumentParser):
    """Usage errors exit 64: 2 is an alarm."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """One line, and the code."""
        self.exit(USAGE, f"kernels_check: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = _Parser(prog="kernels_check", description=__doc__)
    made.add_argument("--list", action="store_true", help="name the checks and leave")
    made.add_argument(
        "--only", action="append", metavar="NAME", help="a check, or a prefix of some"
    )
    made.add_argument("--speed", action="store_true", help="also the samplers side by side")
    made.add_argument("--cost", action="store_true", help="also the verify-cost curves")
    made.add_argument(
        "--soak", type=float, default=0.0, metavar="MIN", help="also minutes of steps"
    )
    made.add_argument(
        "--mutants", action="store_true", help="also prove that the checks catch faults"
    )
    made.add_argument(
        "--sanitize", action="store_true", help="also our own kernels under compute-sanitizer"
    )
    made.add_argument(
        "--plant", action="append", metavar="MUTANT",
        help="put a kernel that is wrong on purpose among the checks",
    )  # fmt: skip
    made.add_argument("--seed", type=int, default=20251129, help="of everything random")
    made.add_argument("--jobs", type=int, default=0, help="checks at a time (0: by the cores)")
    made.add_argument(
        "--shared", action="store_true", help="beside an engine: two at a time, no speeds"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the whole run here")
    made.add_argument(
        "--raw", type=Path, metavar="FILE", help="with --cost: every sample, as it is measured"
    )
    made.add_argument("--svg", type=Path, metavar="FILE", help="with --cost: draw the curves here")
    made.add_argument(
        "-o", dest="format", choices=("table", "json", "lines"), default="table",
        help="lines: a JSON line a check as it ends, then the run with their number",
    )  # fmt: skip
    return made


def select(options: argparse.Namespace) -> list[Check]:
    """The checks asked for."""
    levels = {Level.GRID}
    for level, wanted in ((Level.SPEED, options.speed), (Level.COST, options.cost),
                          (Level.SOAK, options.soak > 0), (Level.MUTANTS, options.mutants),
                          (Level.SANITIZE, options.sanitize)):  # fmt: skip
        if wanted:
            levels.add(level)
    chosen = []
    for check in manifest():
        if options.shared and check.alone and check.name != "chip.health":
            continue
        named = any(check.name == n or check.name.startswith(n) for n in options.only or ())
        if named or (options.only is None and check.level in levels):
            if check.level is Level.SOAK:
                minutes = options.soak or 1.0
                check = dataclasses.replace(
                    check,
                    options={**check.options, "minutes": minutes},
                    deadline_s=minutes * 60 + 120,
                )
            if check.level is Level.COST and options.raw:
                check = dataclasses.replace(
                    check, options={**check.options, "raw": str(options.raw.absolute())}
                )
            chosen.append(check)
    for name in options.plant or ():
        if (extra := planted(name)) is None:
            raise SystemExit(_usage(f"no mutant is called {name}: {', '.join(mutant_names())}"))
        chosen.insert(len(chosen) // 2, extra)
    return chosen


def _unknown(names: Sequence[str]) -> list[str]:
    """Those that no check is called, or begins with."""
    every = [check.name for check in manifest()]
    return [name for name in names if not any(each.startswith(name) for each in every)]


def _usage(text: str) -> int:
    _tell(f"error: {text}")
    return USAGE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    options = parser().parse_args(arguments)
    checks = select(options)
    if options.list:
        for check in checks:
            _say(f"{check.name:<36} {check.title}")
        return report.OK
    if unknown := _unknown(options.only or ()):
        begin = ", ".join(sorted({check.name.partition(".")[0] for check in manifest()}))
        return _usage(f"no check is called {' or '.join(unknown)}; names begin with: {begin}")
    if not checks:
        return _usage(f"{' and '.join(options.only)}: not beside an engine (--shared)")
    if driver.device_count() == 0:
        _tell("no CUDA device")
        return report.UNKNOWN
    started, at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    facts, ended = environment.describe(), dict[str, Result]()

    def document() -> dict[str, Any]:
        """What has ended so far."""
        done = [check for check in checks if check.name in ended]
        return report.as_json(
            done,
            [ended[check.name] for check in done],
            seed=options.seed,
            at=at,
            seconds=time.monotonic() - started,
            environment=facts,
            whole=options.only is None and not options.plant and len(done) == len(checks),
            shared=options.shared,
        )

    def done(result: Result) -> None:
        ended[result.name] = result
        if options.json:  # written as it goes: a run that is cut short leaves what it found
            options.json.write_text(json.dumps(document(), indent=1) + "\n")
        if options.format == "lines":
            _say(json.dumps(result.as_json()))
        else:
            _tell(report.table([result]))

    jobs = (
        options.jobs
        or (2 if options.shared else 0)
        or max(1, min(12, (os.cpu_count() or 2) * 3 // 4))
    )
    runner.run(checks, seed=options.seed, jobs=jobs, done=done)
    return _conclude(options, document())


def _conclude(options: argparse.Namespace, document: dict[str, Any]) -> int:
    """Write and print the whole run; returns its exit code."""
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.svg:
        from kernels_check import plot

        options.svg.write_text(plot.curves(document))
    if options.format == "json":
        _say(json.dumps(document, indent=1))
    elif options.format == "lines":
        _say(json.dumps({**document, "checks": len(document["checks"])}))
    elif options.format == "table":
        _say(report.lines(document))
        _say(report.summary(document))
    return int(document["exit"])


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _tell(text: str) -> None:
    sys.stderr.write(f"kernels_check: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
