"""Where a run took place: GPU, driver, image's versions."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from kernels_check.cuda import nvml

PACKAGES = ("torch", "triton", "vllm", "flashinfer-python", "numpy", "nvidia-cuda-nvrtc")


def describe() -> dict[str, Any]:
    """Facts for the record; nothing here needs CUDA."""
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
        "kernel": platform.release(),
        "image_digest": os.environ.get("KERNELS_CHECK_IMAGE"),
        "versions": versions,
    }
