"""Benchmarks and load tests: the platform beside its peers, measured from outside in one run."""
