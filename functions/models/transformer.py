"""Transformers: an encoder of BERT's base shape that marks an answer in a text, and a small GPT."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Self-attention over all heads at once."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Attention and a two-layer perceptron, each normalised before (`pre`) or after."""

    def __init__(self, width: int, heads: int, *, causal: bool, pre: bool) -> None:
        super().__init__()
        self.pre = pre
        self.attention = Attention(width, heads, causal)
        self.first = nn.LayerNorm(width)
        self.second = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.pre:
            x = x + self.attention(self.first(x), mask)
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attention(x, mask))
        return self.second(x + self.mlp(x))


class BertForAnswers(nn.Module):
    """Where in a text the answer begins and ends; BERT's base shape by default."""

    def __init__(
        self, words: int = 30_522, length: int = 512, width: int = 768, layers: int = 12, heads: int = 12
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.parts = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, heads, causal=False, pre=False) for _ in range(layers)])
        self.head = nn.Linear(width, 2)

    def forward(
        self, tokens: torch.Tensor, parts: torch.Tensor, present: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.places(places) + self.parts(parts))
        mask = None if present is None else present[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        begin, end = self.head(x).unbind(-1)
        return begin, end


class Gpt(nn.Module):
    """Predicts the next token; about 11 million parameters by default, embedding and head tied."""

    def __init__(self, words: int = 512, length: int = 256, width: int = 384, layers: int = 6, heads: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList([Layer(width, heads, causal=True, pre=True) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of each token from those before it."""
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
