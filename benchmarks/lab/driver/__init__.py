"""The lab: prepares, measures and collects the benchmark report on one GPU, a phase a call."""
