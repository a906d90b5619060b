"""The names of the placement policies, so that settings can list them without loading the policies themselves."""

from __future__ import annotations

PLACEMENT_POLICIES = (
    "dgsf",
    "dgsf_slices",
    "random",
    "first_fit",
    "best_fit",
    "worst_fit",
    "dot_product",
    "gpu_packing",
    "gpu_clustering",
    "fgd",
    "conspirator",
    "gavel",
)
DEFAULT_PLACEMENT = "dgsf"
