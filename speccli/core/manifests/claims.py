"""Dynamic resource allocation: the GPUs of a pod as a ResourceClaim."""

from __future__ import annotations

from typing import Any

from speccli.core.manifests import names
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pools import Unit

Object = dict[str, Any]

DEVICE_CLASS = "gpu.nvidia.com"
PATTERNS = {
    "h100": "^nvidia h100 80gb hbm3$",
    "h100-nvl": "^nvidia h100 nvl$",
    "h200": "^nvidia h200$",
    "a100": "^nvidia a100-sxm4-80gb$",
}
"""What the driver's attribute productName says, in small letters."""


def claim_template(unit: Unit, options: RenderOptions) -> Object:
    """As many whole GPUs of the recipe's kind as one server needs."""
    hardware = unit.recipe.hardware
    product = f"device.attributes['{DEVICE_CLASS}'].productName.lowerAscii()"
    patterns = ["^" + each.lower().replace("-", "[- ]") + "$" for each in hardware.products] or [
        PATTERNS[hardware.gpu]
    ]
    expression = " || ".join(f"{product}.matches('{pattern}')" for pattern in patterns)
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": DEVICE_CLASS,
            "allocationMode": "ExactCount",
            "count": hardware.count,
            "selectors": [{"cel": {"expression": expression}}],
        },
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": names.meta(unit.name, options.namespace, unit.deployment, unit.pool),
        "spec": {
            "metadata": {"labels": names.labels(unit.deployment, unit.pool)},
            "spec": {"devices": {"requests": [request]}},
        },
    }
