"""Training a head: what is asked for, the stages that make it, and what it is worth afterwards.

The stages themselves (`draft_training`) run in a Python that has torch, an engine and Speculators.
"""
