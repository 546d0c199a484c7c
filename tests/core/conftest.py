"""Hypothesis on a busy machine: time proves nothing about a property."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
