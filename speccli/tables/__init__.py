"""What the commands print for people: one module a command, with rich."""
