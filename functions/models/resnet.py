"""Residual networks for pictures: ResNet-18 and ResNet-50 (the variant that strides in its 3 x 3 convolutions)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

RESIDUAL_GAIN = 0.25  # of each block's last normalisation: untrained networks keep their numbers in bounds


def _conv(ins: int, outs: int, size: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(ins, outs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outs))


class Block(nn.Module):
    """A path of convolutions beside a short cut."""

    def __init__(self, ins: int, outs: int, stride: int, path: list[nn.Module]) -> None:
        super().__init__()
        self.path = nn.Sequential(*path)
        nn.init.constant_(path[-1][1].weight, RESIDUAL_GAIN)
        self.cut = _conv(ins, outs, 1, stride) if stride != 1 or ins != outs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.path(x) + self.cut(x))


def _basic(ins: int, width: int, stride: int) -> Block:
    return Block(ins, width, stride, [_conv(ins, width, 3, stride), nn.ReLU(), _conv(width, width, 3)])


def _bottleneck(ins: int, width: int, stride: int) -> Block:
    path = [_conv(ins, width, 1), nn.ReLU(), _conv(width, width, 3, stride), nn.ReLU(), _conv(width, 4 * width, 1)]
    return Block(ins, 4 * width, stride, path)


class ResNet(nn.Module):
    """Pictures [N, 3, H, W] to logits [N, classes]."""

    def __init__(self, make_block: Any, widening: int, depths: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
        blocks, ins = [], width
        for stage, depth in enumerate(depths):
            outs = width * 2**stage
            for number in range(depth):
                blocks.append(make_block(ins, outs, 2 if stage and number == 0 else 1))
                ins = outs * widening
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(ins, classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees: [N, features]."""
        return self.blocks(self.stem(x)).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def resnet18(classes: int = 1000, width: int = 64) -> ResNet:
    return ResNet(_basic, 1, (2, 2, 2, 2), classes, width)


def resnet50(classes: int = 1000, width: int = 64) -> ResNet:
    return ResNet(_bottleneck, 4, (3, 4, 6, 3), classes, width)
