"""Judging over time: what one snapshot cannot tell, because it needs a baseline or a memory.

`judge` owns the memory; `judgement` is what it hands to the rules in `speccli.core.findings`.
"""
