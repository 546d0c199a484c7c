"""Which pictures of the screen the documentation shows, and a command that copies them there."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
TAKEN = Path(__file__).parent / "__snapshots__" / "test_pictures"
SHOWN = ROOT / "docs" / "screens"
NAMES = {
    "normal-80x24": "test_normal[size0]",
    "normal-120x40": "test_normal[size1]",
    "normal-200x60": "test_normal[size2]",
    "drift": "test_drift",
    "one-engine-down": "test_one_down",
    "all-down": "test_all_down",
    "no-traffic": "test_no_traffic",
    "engine": "test_detail",
}

if __name__ == "__main__":
    SHOWN.mkdir(parents=True, exist_ok=True)
    for name, taken in NAMES.items():
        shutil.copyfile(TAKEN / f"{taken}.svg", SHOWN / f"{name}.svg")
