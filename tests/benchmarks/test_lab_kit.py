"""What travels to a host: archives in parts, prompts, the small target."""

from __future__ import annotations

from pathlib import Path
from random import Random

import parts


def test_parts_join_to_the_archives_and_none_is_too_large(tmp_path: Path) -> None:
    rng = Random(0)
    held = {name: rng.randbytes(rng.randrange(1, 5 << 20)) for name in parts.ORDER}
    (tmp_path / "archives").mkdir()
    for name, text in held.items():
        (tmp_path / "archives" / f"{name}.tar.xz").write_bytes(text)
    parts.main(tmp_path / "archives", tmp_path / "up", 1)
    folders = sorted((tmp_path / "up").iterdir())
    assert all(sum(f.stat().st_size for f in folder.iterdir()) <= 1 << 20 for folder in folders)
    assert {f.name.partition(".")[0] for f in folders[0].iterdir()} >= {"engine"}
    for name, text in held.items():
        pieces = sorted((tmp_path / "up").glob(f"*/{name}.*"), key=lambda file: file.name)
        assert b"".join(file.read_bytes() for file in pieces) == text
