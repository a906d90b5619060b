"""Face identification: pictures become vectors, and the nearest in a gallery of known ones is the answer."""

from __future__ import annotations

import functools
from typing import Any

import dgsf
from functions.workloads.pictures import noise_picture
from functions.workloads.places import beside, remote

app = dgsf.App("face_identification", gpu="any", memory="1GiB", timeout=60)
SIDE = 64
GALLERY_SEED = 1000


def run(device: Any, person: int, people: int, blur: float, seed: int) -> dict[str, Any]:
    """Who of the gallery it is: a picture of `person`, disturbed by noise."""
    import torch

    if not 1 <= people <= 1000 or not 0 <= person < people:
        raise ValueError("people must be from 1 to 1000, and person one of them, counted from 0")
    original = noise_picture(GALLERY_SEED, SIDE, people)[person]
    probe = original + blur * torch.randn(3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        vector = network(str(device))(probe[None].to(device))
        likeness = (gallery(str(device), people) @ vector[0]).topk(min(3, people))
        values, places = likeness.values.tolist(), likeness.indices.tolist()
    best = [{"person": place, "likeness": value} for place, value in zip(places, values, strict=True)]
    return {"person": places[0], "right": places[0] == person, "best": best}


@functools.cache
def network(device: str) -> Any:
    """Once per worker: its weights stay on the device."""
    from functions.models.faces import FaceEmbedder
    from functions.models.seeded import seeded

    return seeded(FaceEmbedder, 7).eval().to(device)


@functools.lru_cache(maxsize=4)
def gallery(device: str, people: int) -> Any:
    """The vectors of everybody who is known, on the device."""
    import torch

    with torch.inference_mode():
        pictures = noise_picture(GALLERY_SEED, SIDE, people).to(device)
        return torch.cat([network(device)(batch) for batch in pictures.split(32)])


@app.function
def near(person: int = 3, people: int = 64, blur: float = 0.2, seed: int = 0) -> dict[str, Any]:
    """A face identified beside the device."""
    return run(beside(), person, people, blur, seed)


@app.function(attach="fabric")
def fabric(person: int = 3, people: int = 64, blur: float = 0.2, seed: int = 0) -> dict[str, Any]:
    """A face identified by a remote device."""
    return run(remote(), person, people, blur, seed)
