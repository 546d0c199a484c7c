"""What a recipe would do, before a GPU is asked for."""

from __future__ import annotations

from speccli.core.plan.build import Plan, plan

__all__ = ["Plan", "plan"]
