"""Where a run took place: GPU, driver, image's versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

from kernels_check.cuda import nvml

PACKAGES = ("torch", "triton", "vllm", "flashinfer-python", "numpy", "nvidia-cuda-nvrtc")


def describe() -> dict[str, Any]:
    """Facts for the record, asked in a process of its own: who forks must not have opened NVML."""
    command = [sys.executable, "-c", f"import json, {__name__} as e; print(json.dumps(e.look()))"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(told.stdout)
    return facts


def look() -> dict[str, Any]:
    """Ask NVML and the package metadata here; nothing needs CUDA."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        facts = nvml.Nvml().facts()
    except (OSError, AttributeError):
        facts = {"name": None, "uuid": None, "driver": None}
    return {
        "gpu": facts["name"],
        "gpu_uuid": facts["uuid"],
        "driver": facts["driver"],
        "image_digest": os.environ.get("KERNELS_CHECK_IMAGE"),
        "versions": versions,
    }
