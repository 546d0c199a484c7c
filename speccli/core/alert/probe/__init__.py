"""Requests of our own: what a server takes, whether its answers are right, a fixed canary."""
