"""A 3D convolutional network that judges volumes such as CT scans."""

from __future__ import annotations

import itertools

from torch import Tensor, nn


def _stage(ins: int, outs: int) -> list[nn.Module]:
    return [nn.Conv3d(ins, outs, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.BatchNorm3d(outs)]


class VolumeNet(nn.Module):
    """Volumes [N, 1, D, H, W], each side a multiple of 16, to logits [N, classes]."""

    def __init__(self, classes: int = 2, width: int = 16) -> None:
        super().__init__()
        widths = (1, width, width, 2 * width, 4 * width)
        stages = [_stage(ins, outs) for ins, outs in itertools.pairwise(widths)]
        self.stages = nn.Sequential(*(layer for stage in stages for layer in stage))
        self.head = nn.Sequential(nn.Linear(4 * width, 8 * width), nn.ReLU(), nn.Linear(8 * width, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean(dim=(2, 3, 4)))
