"""Benches: what speculation earns, measured by requests of our own."""
