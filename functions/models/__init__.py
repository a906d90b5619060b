"""Models for samples and benchmarks: the usual shapes, own code, weights that are drawn from a seed."""
