"""Makes docs/report out of the committed evidence, exactly as it is there but for the day.

    python benchmarks/lab/published.py [OUT=docs/report]

Files of docs/evidence/lab-h200 that are not there are left out, as `run report` does. What is
written by hand in OUT (surprises.md) stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAB = Path(__file__).resolve().parent
ROOT = LAB.parents[1]
sys.path[:0] = [str(LAB), str(ROOT)]

from estimate import beside, curves, document  # noqa: E402
from headroom import page  # noqa: E402
from models import given  # noqa: E402
from usage import Parser, run  # noqa: E402

from driver.phases import BESIDE, REPORTED  # noqa: E402

ALONE = {"70b-bf16": ("70b-bf16-arms",)}
"""Servers with nothing to be compared with: what `plan` says of them is, all the same."""
AGAIN = {"8b": ("lab-h200/8b-lossless",), "32b": ("bench-h200-32b",)}
"""Other runs of the same, below docs/evidence."""
EVIDENCE = Path("docs/evidence/lab-h200")
GPU_HOUR_USD = "3.5"
"""An on-demand H200, by the hour; nothing else is counted."""


def main(arguments: list[str]) -> int:
    """0 written, else what `specctl report` ended with; 64 usage."""
    parser = Parser("published", str(__doc__))
    parser.add_argument("out", nargs="?", type=Path, default=Path("docs/report"), metavar="OUT")
    out = parser.parse_args(arguments).out.absolute()
    os.chdir(ROOT)
    models = _benches(REPORTED)
    out.mkdir(parents=True, exist_ok=True)
    estimates = out / "estimate.json"
    fitted = (EVIDENCE / "fitted.txt").read_text(encoding="utf-8").strip()
    measured = given([*models, *_benches(ALONE)])
    told = document(beside(measured, curves(EVIDENCE / "kernels-cost.json")), fitted)
    estimates.write_text(json.dumps(told), encoding="utf-8")
    (out / "headroom.md").write_text(page(), encoding="utf-8")
    again = [
        f"--again={name}={EVIDENCE.parent / file}.json"
        for name, files in AGAIN.items()
        for file in files
    ]
    wrong = _report(models, out, "--estimates", str(estimates), *again)
    return wrong or _report(_benches(BESIDE), out / "more")


def _benches(names: Mapping[str, Sequence[str]]) -> list[str]:
    """NAME=FILE of what is committed."""
    found = ((name, EVIDENCE / f"{file}.json") for name, files in names.items() for file in files)
    return [f"{name}={file}" for name, file in found if file.exists()]


def _report(benches: Sequence[str], out: Path, *more: str) -> int:
    command = [sys.executable, "-m", "speccli", "report", *(f"--each={one}" for one in benches)]
    command += ["--baseline", "baseline", "--gpu-hour-usd", GPU_HOUR_USD, *more]
    return subprocess.run([*command, "--out", str(out)], check=False).returncode


if __name__ == "__main__":
    run("published", main)
