"""Are the kernels that verify drafted tokens right, and healthy, on this GPU, driver and image?

Runs inside an engine's image: needs Python, torch and NumPy of that image, and imports nothing else
of this project. `python -m kernels_check` is the way in.
"""

from __future__ import annotations

SCHEMA = "specctl.kernels/v1"
