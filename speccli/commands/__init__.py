"""One file a command: options in, one call to the core, one call to the output."""
