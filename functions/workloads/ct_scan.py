"""CT scans judged by a 3D convolutional network: scans are drawn as two lungs with some opaque spots in them."""

from __future__ import annotations

import functools
from typing import Any

import dgsf
from functions.workloads.places import beside, remote

app = dgsf.App("ct_scan", gpu="any", memory="1GiB", timeout=60)
LABELS = ("clear", "affected")
MAX_SIDE = 128


def run(device: Any, spots: int, side: int, seed: int) -> dict[str, Any]:
    """The network's judgement of one scan."""
    import torch

    if side % 16 or not 16 <= side <= MAX_SIDE or not 0 <= spots <= 100:
        raise ValueError(f"side must be a multiple of 16 up to {MAX_SIDE}, spots from 0 to 100")
    scan = draw_scan(spots, side, seed).to(device)
    with torch.inference_mode():
        scan = (scan.clamp(-1000, 400) + 1000) / 1400  # Hounsfield units to numbers from 0 to 1
        scores = network(str(device))(scan[None, None]).softmax(dim=1)[0].tolist()
    return {"label": LABELS[scores[1] > scores[0]], "scores": dict(zip(LABELS, scores, strict=True))}


def draw_scan(spots: int, side: int, seed: int) -> Any:
    """A volume in Hounsfield units: tissue, two lungs full of air, and spots of a density between."""
    import torch

    numbers = torch.Generator().manual_seed(seed)
    line = torch.linspace(-1, 1, side)
    z, y, x = torch.meshgrid(line, line, line, indexing="ij")
    scan = torch.full((side, side, side), 40.0)
    for centre in (-0.45, 0.45):
        scan[(x - centre) ** 2 / 0.14 + y**2 / 0.5 + z**2 / 0.7 < 1] = -850.0
    for _ in range(spots):
        places = torch.rand(3, generator=numbers) * 1.2 - 0.6
        scan[(x - places[0]) ** 2 + (y - places[1]) ** 2 + (z - places[2]) ** 2 < 0.01] = -300.0
    return scan + 20 * torch.randn(scan.shape, generator=numbers)


@functools.cache
def network(device: str) -> Any:
    """Once per worker: its weights stay on the device."""
    from functions.models.seeded import seeded
    from functions.models.volumes import VolumeNet

    return seeded(VolumeNet, 3).eval().to(device)


@app.function
def near(spots: int = 6, side: int = 64, seed: int = 0) -> dict[str, Any]:
    """A scan judged beside the device."""
    return run(beside(), spots, side, seed)


@app.function(attach="fabric")
def fabric(spots: int = 6, side: int = 64, seed: int = 0) -> dict[str, Any]:
    """A scan judged on a remote device."""
    return run(remote(), spots, side, seed)
