"""Two networks for faces: one that finds boxes in a picture, one that turns a face into a short vector."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from functions.models.resnet import ResNet, resnet18

ANCHORS = 2  # boxes per place, one twice as large as the other


def _stage(ins: int, outs: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(ins, outs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outs), nn.ReLU())


class FaceDetector(nn.Module):
    """A single-shot detector: pictures [N, 3, S, S] to boxes [N, A, 4] (corners, from 0 to 1) and logits [N, A]."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(_stage(3, width, 2), _stage(width, width, 2), _stage(width, 2 * width, 2))
        self.deeper = nn.ModuleList([_stage(2 * width, 2 * width, 2), _stage(2 * width, 2 * width, 2)])
        self.heads = nn.ModuleList(nn.Conv2d(2 * width, ANCHORS * 5, 3, padding=1) for _ in range(3))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.body(pictures)]
        for stage in self.deeper:
            maps.append(stage(maps[-1]))
        told = [head(level) for head, level in zip(self.heads, maps, strict=True)]
        raw = torch.cat([out.permute(0, 2, 3, 1).reshape(out.shape[0], -1, 5) for out in told], dim=1)
        anchors = torch.cat([_anchors(out.shape[2], out.device) for out in told])
        centres = anchors[:, :2] + raw[..., :2].tanh() * anchors[:, 2:] / 2
        half = anchors[:, 2:] * raw[..., 2:4].clamp(-2, 2).exp() / 2
        return torch.cat([centres - half, centres + half], dim=2).clamp(0, 1), raw[..., 4]


def _anchors(side: int, device: torch.device) -> Tensor:
    """Centre, width and height of every anchor of one level."""
    line = (torch.arange(side, device=device) + 0.5) / side
    y, x = torch.meshgrid(line, line, indexing="ij")
    centres = torch.stack([x, y], dim=2).reshape(-1, 1, 2).expand(-1, ANCHORS, 2)
    sizes = torch.tensor([2.0 / side, 4.0 / side], device=device).reshape(1, ANCHORS, 1).expand(side * side, ANCHORS, 2)
    return torch.cat([centres, sizes], dim=2).reshape(-1, 4)


def suppress(boxes: Tensor, scores: Tensor, overlap: float, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """Non-maximum suppression without asking the device: the best `limit` boxes, their scores, and which to keep."""
    scores, order = scores.topk(min(limit, scores.shape[0]))
    boxes = boxes[order]
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(dim=2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
    covers = shared / (area[:, None] + area[None, :] - shared).clamp(min=1e-9) > overlap
    later = torch.ones_like(covers).triu(diagonal=1)
    keep = torch.ones_like(scores, dtype=torch.bool)
    for number in range(scores.shape[0]):
        keep = keep & ~(covers[number] & later[number] & keep[number])
    return boxes, scores, keep


class FaceEmbedder(nn.Module):
    """Faces [N, 3, S, S] to vectors [N, width] of length 1."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.body: ResNet = resnet18(width)

    def forward(self, faces: Tensor) -> Tensor:
        return F.normalize(self.body(faces), dim=1)
