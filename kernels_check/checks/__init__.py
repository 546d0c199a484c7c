"""The checks: each function takes a Context and returns Passed, or raises Wrong or NotHere."""
