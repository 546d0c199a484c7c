"""The lab is no package of the wheel: its modules are found from its folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "lab"))
