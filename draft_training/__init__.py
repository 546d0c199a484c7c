"""Trains an EAGLE-3 or P-EAGLE head for a target, in a Python that has torch and an engine.

Imports nothing of specctl: it runs inside an engine's image. Model classes, losses and the
checkpoint format are those of Speculators.
"""
