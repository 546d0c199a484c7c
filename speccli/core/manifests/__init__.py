"""From a recipe to the objects that run it, as plain dictionaries in the order to apply them."""

from __future__ import annotations

from speccli.core.manifests.build import objects
from speccli.core.manifests.options import RenderOptions

__all__ = ["RenderOptions", "objects"]
