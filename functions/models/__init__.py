"""Networks for samples and benchmarks: own implementations in plain torch, with seeded random weights.

The modules in here import torch; load them inside the functions that use them.
"""
