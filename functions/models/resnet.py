"""Residual networks of the usual shapes: 18 layers of plain blocks, 50 layers of bottlenecks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

WIDTHS = (64, 128, 256, 512)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """A chain of convolutions beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int, body: nn.Sequential) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


def plain(inputs: int, width: int, stride: int) -> tuple[Block, int]:
    """Two 3x3 convolutions."""
    body = nn.Sequential(
        _conv(inputs, width, 3, stride),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        _conv(width, width, 3),
        nn.BatchNorm2d(width),
    )
    return Block(inputs, width, stride, body), width


def bottleneck(inputs: int, width: int, stride: int) -> tuple[Block, int]:
    """1x1 down, 3x3, 1x1 up to four times the width."""
    outputs = 4 * width
    body = nn.Sequential(
        _conv(inputs, width, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        _conv(width, width, 3, stride),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        _conv(width, outputs, 1),
        nn.BatchNorm2d(outputs),
    )
    return Block(inputs, outputs, stride, body), outputs


Maker = Callable[[int, int, int], tuple[Block, int]]


class ResNet(nn.Module):
    """Stem, four stages, average, classifier."""

    def __init__(self, make: Maker, depths: Sequence[int], classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = 64
        for stage, (width, depth) in enumerate(zip(WIDTHS, depths, strict=True)):
            for position in range(depth):
                block, channels = make(channels, width, 2 if stage and not position else 1)
                blocks.append(block)
        self.stages = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.stages(self.stem(x)))
        return self.head(torch.flatten(features, 1))


def resnet18(classes: int = 1000) -> ResNet:
    return ResNet(plain, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> ResNet:
    return ResNet(bottleneck, (3, 4, 6, 3), classes)
