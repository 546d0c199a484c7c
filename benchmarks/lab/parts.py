"""Archives, cut to parts that travel one at a time.

    python benchmarks/lab/parts.py ARCHIVES OUT MIB [--without NAME ...]

OUT/NN/NAME.MM: what a first look at a host needs comes first, what only training needs last, and
what is left of one archive shares a folder with what is left of another. No folder holds more than
MIB, but for a list of all pieces, OUT/00/parts.

Exit codes: 0 written, 64 usage or an archive that is missing.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from usage import Parser, run  # noqa: E402

ORDER = ("engine", "heads", "data", "specctl", "smollm2-135m", "trainer")


def pieces(archives: Path, most: int, without: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """(NAME.MM, what it holds), in the order in which they are wanted."""
    for name in (name for name in ORDER if name not in without):
        held = (archives / f"{name}.tar.xz").read_bytes()
        for n in range(0, len(held), most):
            yield f"{name}.{n // most:02}", held[n : n + most]


def cut(archives: Path, out: Path, mib: int, without: Collection[str] = ()) -> None:
    """Writes the folders, each piece to the first that has room, and prints their sums."""
    most, used, names = mib << 20, list[int](), list[str]()
    for name, held in pieces(archives, most, without):
        names.append(name)
        at = next((i for i, size in enumerate(used) if size + len(held) <= most), len(used))
        used += [0] if at == len(used) else []
        used[at] += len(held)
        file = out / f"{at:02}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(held)
        print(f"{hashlib.sha256(held).hexdigest()}  {at:02}/{name}  {len(held)}")
    (out / "00" / "parts").write_text("\n".join(names) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """As the module says."""
    parser = Parser("parts", str(__doc__))
    parser.add_argument("archives", type=Path, metavar="ARCHIVES")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("mib", type=int, metavar="MIB")
    parser.add_argument("--without", action="append", default=[], choices=ORDER, metavar="NAME")
    asked = parser.parse_args(arguments)
    if asked.mib < 1:
        parser.error(f"MIB is {asked.mib}: it must be 1 at the least")
    cut(asked.archives, asked.out, asked.mib, asked.without)
    return 0


if __name__ == "__main__":
    run("parts", main)
