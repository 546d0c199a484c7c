"""From a recipe to something that serves, proven, and back: on a cluster or on this machine."""
