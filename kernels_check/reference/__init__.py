"""What is right, in float64 and from the papers, without looking at any engine's code."""
