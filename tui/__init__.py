"""The live screen: what `specctl top` shows in a terminal."""
