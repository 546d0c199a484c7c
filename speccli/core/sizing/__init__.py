"""What fits, what is captured, what a draft earns: arithmetic over shapes, no I/O."""
