"""specctl: the operator's console for speculative decoding."""

__version__ = "0.1.0"
