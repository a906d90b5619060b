"""A recurrent classifier: four LSTM layers over a sequence."""

from __future__ import annotations

import torch
from torch import nn


class LstmClassifier(nn.Module):
    """The class of a sequence, from its last state."""

    def __init__(self, inputs: int = 64, width: int = 256, layers: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x)
        return self.head(states[:, -1])
