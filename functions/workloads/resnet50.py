"""Picture classification by ResNet-50."""

from __future__ import annotations

import functools
from typing import Any

import dgsf
from functions.workloads.pictures import noise_picture
from functions.workloads.places import beside, remote

app = dgsf.App("resnet50", gpu="any", memory="1GiB", timeout=60)
MAX_BATCH, MAX_SIDE = 64, 512


def run(device: Any, batch: int, side: int, seed: int) -> dict[str, Any]:
    """The five likeliest classes of each picture."""
    import torch

    if not 1 <= batch <= MAX_BATCH or not 32 <= side <= MAX_SIDE:
        raise ValueError(f"batch must be from 1 to {MAX_BATCH}, side from 32 to {MAX_SIDE}")
    pictures = noise_picture(seed, side, batch).to(device)
    with torch.inference_mode():
        best = network(str(device))(pictures).softmax(dim=1).topk(5)
        scores, classes = best.values.tolist(), best.indices.tolist()
    pairs = [list(zip(row, values, strict=True)) for row, values in zip(classes, scores, strict=True)]
    return {"pictures": [[{"class": number, "score": score} for number, score in row] for row in pairs]}


@functools.cache
def network(device: str) -> Any:
    """Once per worker: its weights stay on the device."""
    from functions.models.resnet import resnet50
    from functions.models.seeded import seeded

    return seeded(resnet50, 13).eval().to(device)


@app.function
def near(batch: int = 1, side: int = 224, seed: int = 0) -> dict[str, Any]:
    """Pictures classified beside the device."""
    return run(beside(), batch, side, seed)


@app.function(attach="fabric")
def fabric(batch: int = 1, side: int = 224, seed: int = 0) -> dict[str, Any]:
    """Pictures classified by a remote device."""
    return run(remote(), batch, side, seed)
