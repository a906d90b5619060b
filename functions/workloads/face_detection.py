"""Face detection: a small single-shot network and non-maximum suppression, all of it on the device."""

from __future__ import annotations

import functools
from typing import Any

import dgsf
from functions.workloads.pictures import crowd
from functions.workloads.places import beside, remote

app = dgsf.App("face_detection", gpu="any", memory="1GiB", timeout=60)
OVERLAP, CANDIDATES = 0.4, 50
MAX_SIDE = 1024


def run(device: Any, faces: int, side: int, threshold: float, seed: int) -> dict[str, Any]:
    """The boxes that the network sees in one picture, best first."""
    import torch

    from functions.models.faces import suppress

    if side % 32 or not 32 <= side <= MAX_SIDE or not 0 <= faces <= 100:
        raise ValueError(f"side must be a multiple of 32 up to {MAX_SIDE}, faces from 0 to 100")
    picture = crowd(faces, seed, side).to(device)
    with torch.inference_mode():
        boxes, logits = network(str(device))(picture)
        best, scores, keep = suppress(boxes[0], logits[0].sigmoid(), OVERLAP, CANDIDATES)
        table = torch.cat([best, scores[:, None], keep[:, None].to(best.dtype)], dim=1).tolist()  # one download
    found = [{"box": row[:4], "score": row[4]} for row in table if row[5] and row[4] >= threshold]
    return {"found": len(found), "faces": found}


@functools.cache
def network(device: str) -> Any:
    """Once per worker: its weights stay on the device."""
    from functions.models.faces import FaceDetector
    from functions.models.seeded import seeded

    return seeded(FaceDetector, 5).eval().to(device)


@app.function
def near(faces: int = 5, side: int = 256, threshold: float = 0.5, seed: int = 0) -> dict[str, Any]:
    """Faces found beside the device."""
    return run(beside(), faces, side, threshold, seed)


@app.function(attach="fabric")
def fabric(faces: int = 5, side: int = 256, threshold: float = 0.5, seed: int = 0) -> dict[str, Any]:
    """Faces found by a remote device."""
    return run(remote(), faces, side, threshold, seed)
