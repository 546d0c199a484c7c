"""Archives, cut to parts that travel one at a time.

    python benchmarks/lab/parts.py ARCHIVES OUT MIB

OUT/NN/NAME.MM: what a first look at a host needs comes first, what only training needs last, and
what is left of one archive shares a folder with what is left of another. No folder holds more than
MIB.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

ORDER = ("engine", "heads", "data", "specctl", "smollm2-135m", "trainer")


def pieces(archives: Path, most: int) -> Iterator[tuple[str, bytes]]:
    """(NAME.MM, what it holds), in the order in which they are wanted."""
    for name in ORDER:
        held = (archives / f"{name}.tar.xz").read_bytes()
        for n in range(0, len(held), most):
            yield f"{name}.{n // most:02}", held[n : n + most]


def main(archives: Path, out: Path, mib: int) -> None:
    """Writes the folders, each piece to the first that has room, and prints their sums."""
    most, used = mib << 20, list[int]()
    for name, held in pieces(archives, most):
        at = next((i for i, size in enumerate(used) if size + len(held) <= most), len(used))
        used += [0] if at == len(used) else []
        used[at] += len(held)
        file = out / f"{at:02}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(held)
        print(f"{hashlib.sha256(held).hexdigest()}  {at:02}/{name}  {len(held)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
