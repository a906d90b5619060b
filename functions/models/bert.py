"""A BERT-shaped encoder with a head for question answering: where in the text the answer starts and ends."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class BertShape:
    """Sizes of the encoder; the defaults are those of BERT base."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int = 3072
    words: int = 30522
    positions: int = 512


TINY = BertShape(layers=2, width=64, heads=4, inner=128, words=1000)


class Layer(nn.Module):
    """Attention and a feed-forward net, each with its residual and normalisation behind it."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.mix = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        self.attention_norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.widen = nn.Linear(shape.width, shape.inner)
        self.narrow = nn.Linear(shape.inner, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        parts = self.mix(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=mask)
        x = self.attention_norm(x + self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.norm(x + self.narrow(F.gelu(self.widen(x))))


class BertForAnswers(nn.Module):
    """Token ids [N, L] (and their segments) to logits [N, L, 2] of start and end."""

    def __init__(self, shape: BertShape | None = None) -> None:
        super().__init__()
        shape = shape or BertShape()
        self.words = nn.Embedding(shape.words, shape.width)
        self.places = nn.Embedding(shape.positions, shape.width)
        self.segments = nn.Embedding(2, shape.width)
        for table in (self.words, self.places, self.segments):
            nn.init.uniform_(table.weight, -0.035, 0.035)
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, 2)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        if segments is not None:
            x = x + self.segments(segments)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def bert_base() -> BertForAnswers:
    return BertForAnswers(BertShape())
