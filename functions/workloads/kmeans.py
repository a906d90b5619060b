"""K-means in plain torch: points are drawn around hidden centres, and the centres are found again."""

from __future__ import annotations

from typing import Any

import dgsf
from functions.workloads.places import beside, remote

app = dgsf.App("kmeans", gpu="any", memory="1GiB", timeout=60)
LIMITS = {"count": 1_000_000, "width": 256, "clusters": 1000, "rounds": 1000}


def run(device: Any, count: int, width: int, clusters: int, rounds: int, seed: int) -> dict[str, Any]:
    """Lloyd's algorithm for a fixed number of rounds; the device is asked for values only at the end."""
    import torch

    _check(count=count, width=width, clusters=clusters, rounds=rounds)
    points, centres = (part.to(device) for part in make_points(count, width, clusters, seed))
    for _ in range(rounds):
        nearest = torch.cdist(points, centres).argmin(dim=1)
        chosen = torch.nn.functional.one_hot(nearest, clusters).to(points.dtype)
        sizes = chosen.sum(dim=0)
        sums = chosen.t() @ points
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    distances, nearest = torch.cdist(points, centres).min(dim=1)
    sizes = torch.bincount(nearest, minlength=clusters)
    return {"inertia": distances.square().sum().item(), "sizes": sizes.tolist(), "centres": centres.tolist()}


def make_points(count: int, width: int, clusters: int, seed: int) -> tuple[Any, Any]:
    """Points around random centres, and the points from which the search begins."""
    import torch

    numbers = torch.Generator().manual_seed(seed)
    hidden = 10 * torch.randn(clusters, width, generator=numbers)
    member = torch.randint(clusters, (count,), generator=numbers)
    points = hidden[member] + torch.randn(count, width, generator=numbers)
    return points, points[torch.randperm(count, generator=numbers)[:clusters]]


def _check(**given: int) -> None:
    for name, value in given.items():
        if not 1 <= value <= LIMITS[name]:
            raise ValueError(f"{name} must be from 1 to {LIMITS[name]}")
    if given["clusters"] > given["count"]:
        raise ValueError("there cannot be more clusters than points")


@app.function
def near(count: int = 20_000, width: int = 16, clusters: int = 16, rounds: int = 20, seed: int = 0) -> dict[str, Any]:
    """K-means beside its device."""
    return run(beside(), count, width, clusters, rounds, seed)


@app.function(attach="fabric")
def fabric(count: int = 20_000, width: int = 16, clusters: int = 16, rounds: int = 20, seed: int = 0) -> dict[str, Any]:
    """K-means with a remote device."""
    return run(remote(), count, width, clusters, rounds, seed)
