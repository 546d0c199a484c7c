"""What the fallback ladder is worth: the field's faults, with it and without.

`benchmarks/ladder.py` takes a quarter of an hour and writes docs/evidence/ladder.json, its chart
and the table in docs/fallback.md; `--draw` only draws what is there. `--only bad,load` takes some
faults anew and keeps the others. It needs root and what `make kubernetes` builds.

`--real` plays two of them on real vLLM servers of this machine instead (`make vllm`; 20 min), and
writes docs/evidence/ladder-real.json, its chart and its table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

DATA = ROOT / "docs" / "evidence" / "ladder.json"
REAL = DATA.with_name("ladder-real.json")
PAGE = ROOT / "docs" / "fallback.md"


def measure(codes: Sequence[str], ways: Sequence[bool]) -> None:
    """Run them on one control plane, and keep each as soon as it is through."""
    from benchmarks.ladder_faults import FAULTS, Fault, measured
    from tests.support.kube.cluster import World
    from tests.support.kube.plane import Plane

    with (
        tempfile.TemporaryDirectory(prefix="ladder-") as folder,
        Plane(Path(folder)) as plane,
        World(plane) as world,
    ):
        for fault in (each for each in FAULTS if not codes or each.code in codes):
            began = time.monotonic()

            def run(ladder: bool, fault: Fault = fault) -> dict[str, Any]:
                place = Path(folder) / f"{fault.code}-{ladder}"
                return measured(world, place, fault, ladder=ladder)

            with ThreadPoolExecutor(len(ways)) as threads:
                # Side by side, so that both have the same machine.
                found = list(threads.map(run, ways))
            for each in found:
                keep(each)
                print(json.dumps({k: v for k, v in each.items() if k != "series"}))
            print(f"{fault.code}: {time.monotonic() - began:.0f} s", flush=True)


def measure_real(codes: Sequence[str], ways: Sequence[bool]) -> None:
    """Run them on real servers: a fault's two arms side by side, on the same machine."""
    from benchmarks.ladder_real import FAULTS, Lasting, Real, measured

    turn = threading.Lock()

    def kept(run: dict[str, Any]) -> None:
        with turn:
            keep(run, REAL)
            print(json.dumps({k: v for k, v in run.items() if k != "series"}), flush=True)

    for fault in (each for each in FAULTS if not codes or each.code in codes):
        lasting = Lasting()

        def run(ladder: bool, fault: Real = fault, lasting: Lasting = lasting) -> None:
            with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
                measured(ROOT, Path(folder), fault, lasting, kept, ladder=ladder)

        with ThreadPoolExecutor(len(ways)) as threads:
            list(threads.map(run, ways))


def known(data: Path = DATA) -> dict[str, Any]:
    """What the file has."""
    told: dict[str, Any] = json.loads(data.read_text()) if data.exists() else {"runs": []}
    return told


def keep(run: dict[str, Any], data: Path = DATA) -> None:
    """A run in the file, in place of the one before of its kind."""
    told = known(data)
    others = [r for r in told["runs"] if _kind(r) != _kind(run)]
    run = {**run, "taken": time.strftime("%Y-%m-%d %H:%M")}
    _write({**told, "runs": sorted([*others, run], key=_kind)}, data)


def _kind(run: dict[str, Any]) -> tuple[str, bool]:
    return run["fault"], run["ladder"]


def _write(told: dict[str, Any], data: Path) -> None:
    """A line for each run."""
    lines = [f'"schema": "specctl.ladder-gain/v1",\n"machine": {json.dumps(_machine())}']
    rows = ",\n".join(json.dumps(run) for run in told["runs"])
    lines.append(f'"runs": [\n{rows}\n]')
    data.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _machine() -> str:
    return f"{os.cpu_count()} cores, load {os.getloadavg()[2]:.0f} from other work and this"


def draw() -> None:
    """The chart and the table of what is in the file."""
    from benchmarks.ladder_page import chart, real_chart, written, written_real

    told, real = known()["runs"], known(REAL)["runs"]
    DATA.with_suffix(".svg").write_text(chart(told))
    REAL.with_suffix(".svg").write_text(real_chart(real))
    PAGE.write_text(written_real(written(PAGE.read_text(), told), real))


def main() -> None:
    """Measure unless told only to draw, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="faults, by their codes: bad,load,grammar")
    parser.add_argument("--way", choices=("with", "without"), help="only with it, or without")
    parser.add_argument("--real", action="store_true", help="on real vLLM servers of this machine")
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    if not given.draw:
        ways = (False, True) if given.way is None else (given.way == "with",)
        run = measure_real if given.real else measure
        run([each for each in given.only.split(",") if each], ways)
    draw()


if __name__ == "__main__":
    main()
