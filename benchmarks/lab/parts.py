"""Archives, cut to parts that travel one at a time.

    python benchmarks/lab/parts.py ARCHIVES OUT MIB

OUT/NN/NAME.MM: what a first look at a host needs comes first, what only training needs last, and
what is left of one archive shares a folder with what is left of another. No folder holds more than
MIB.

Exit codes: 0 written, 64 usage or an archive that is missing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from usage import Parser, run  # noqa: E402

ORDER = ("engine", "heads", "data", "specctl", "smollm2-135m", "trainer")


def pieces(archives: Path, most: int) -> Iterator[tuple[str, bytes]]:
    """(NAME.MM, what it holds), in the order in which they are wanted."""
    for name in ORDER:
        held = (archives / f"{name}.tar.xz").read_bytes()
        for n in range(0, len(held), most):
            yield f"{name}.{n // most:02}", held[n : n + most]


def cut(archives: Path, out: Path, mib: int) -> None:
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


def main(arguments: list[str]) -> int:
    """As the module says."""
    parser = Parser("parts", str(__doc__))
    parser.add_argument("archives", type=Path, metavar="ARCHIVES")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("mib", type=int, metavar="MIB")
    asked = parser.parse_args(arguments)
    if asked.mib < 1:
        parser.error(f"MIB is {asked.mib}: it must be 1 at the least")
    cut(asked.archives, asked.out, asked.mib)
    return 0


if __name__ == "__main__":
    run("parts", main)
