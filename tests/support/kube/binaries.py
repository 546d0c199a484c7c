"""Where the real Kubernetes programs are, or why a test that needs them cannot run."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.real import absent

ROOT = Path(__file__).parents[3]


@functools.cache
def built(module: str) -> Path | None:
    """The folder with the programs of `controlplane` or `keda`; None where they are not built."""
    where = subprocess.run(
        [ROOT / "scripts" / "build-kubernetes", "--where", module],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    found = Path(where.stdout.strip())
    return found if (found / ".complete").exists() else None


def folder(module: str) -> Path:
    """The folder with the programs of `controlplane` or `keda`; skips the test without them."""
    found = built(module)
    if found is None:
        why = "" if shutil.which("go") else " and Go is missing, which builds it"
        absent(f"the real {module} is not built{why}: run scripts/build-kubernetes {module}")
    return found


def program(name: str, package: str) -> str:
    """The path of a program that a Debian package brings; skips the test without it."""
    found = shutil.which(name)
    if found is None:
        absent(f"{name} is not installed: apt-get install {package}")
    return found


def need_root() -> None:
    """Skip the test where no network namespace can be made."""
    if os.geteuid() != 0:
        absent("pods with addresses need a network namespace of their own, and that needs root")
    for name, package in (
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("setpriv", "util-linux"),
        ("ip", "iproute2"),
    ):
        program(name, package)
