"""A small GPT: a decoder-only transformer over bytes, with about 11 million parameters by default."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class GptShape:
    layers: int = 6
    width: int = 384
    heads: int = 6
    words: int = 256
    positions: int = 256


class Layer(nn.Module):
    """Normalisation first, then attention to what came before; the same with a feed-forward net."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_mix = nn.LayerNorm(shape.width)
        self.mix = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.before_net = nn.LayerNorm(shape.width)
        self.widen = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.narrow = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        queries, keys, values = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.mix(self.before_mix(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.widen(self.before_net(x))))


class Gpt(nn.Module):
    """Token ids [N, L] to logits [N, L, words]; the last layer shares its weights with the first."""

    def __init__(self, shape: GptShape | None = None) -> None:
        super().__init__()
        shape = shape or GptShape()
        self.words = nn.Embedding(shape.words, shape.width)
        self.places = nn.Embedding(shape.positions, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words, bias=False)
        self.head.weight = self.words.weight
        for matrix in self.parameters():
            if matrix.dim() > 1:
                nn.init.normal_(matrix, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def loss(self, tokens: Tensor, following: Tensor) -> Tensor:
        """Cross entropy of the token that follows each."""
        return F.cross_entropy(self(tokens).flatten(0, 1), following.flatten())


def gpt_11m() -> Gpt:
    return Gpt(GptShape())
