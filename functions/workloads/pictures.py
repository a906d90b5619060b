"""Pictures that need no files: drawn from a seed, so that every machine sees the same ones."""

from __future__ import annotations

from typing import Any


def noise_picture(seed: int, side: int, count: int = 1) -> Any:
    """Smooth random colours [count, 3, side, side], about 0 with spread 1."""
    import torch

    numbers = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 8, 8, generator=numbers)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear", align_corners=False)
    return 1.2 * smooth + 0.2 * torch.randn(count, 3, side, side, generator=numbers)


def crowd(faces: int, seed: int, side: int) -> Any:
    """A picture [1, 3, side, side] with bright discs where faces would be."""
    import torch

    numbers = torch.Generator().manual_seed(seed)
    picture = noise_picture(seed, side)[0] * 0.3
    line = torch.linspace(0, 1, side)
    y, x = torch.meshgrid(line, line, indexing="ij")
    for _ in range(faces):
        cx, cy, size = (torch.rand(3, generator=numbers) * torch.tensor([0.8, 0.8, 0.1]) + 0.1).tolist()
        picture = torch.where((x - cx) ** 2 + (y - cy) ** 2 < (size / 2) ** 2, 1.5, picture)
    return picture[None]
