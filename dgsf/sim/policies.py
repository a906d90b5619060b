"""The placement policies that a simulation can be asked for, by name."""

from __future__ import annotations

from collections.abc import Callable

from dgsf.core.placement import BestFit, DotProduct, Fgd, GpuClustering, GpuPacking, Policy, RandomFit, WorstFit
from dgsf.errors import UsageError

POLICIES: dict[str, Callable[[], Policy]] = {
    kind.name: kind for kind in (RandomFit, Policy, BestFit, WorstFit, DotProduct, GpuPacking, GpuClustering, Fgd)
}

DEFAULT = BestFit.name


def policy_by_name(name: str) -> Policy:
    """A fresh policy; it has learned nothing yet."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name]()
