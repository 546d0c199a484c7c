"""Baselines: recorded acceptance profiles that drift is judged against.

`model` says what one is, `record` makes one of snapshots, `store` keeps them, `reference` has the
public ones.
"""

from speccli.core.baseline.model import Baseline, Difference, Key, differences

__all__ = ["Baseline", "Difference", "Key", "differences"]
