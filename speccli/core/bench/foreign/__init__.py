"""Results of other load generators, read into rows of ours."""
