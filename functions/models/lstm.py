"""A language model of four stacked LSTM layers: many small operations, one after the other."""

from __future__ import annotations

from torch import Tensor, nn


class LstmModel(nn.Module):
    """Token ids [N, L] to logits [N, L, words]."""

    def __init__(self, words: int = 256, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        outs, _state = self.lstm(self.words(tokens))
        return self.head(outs)


def lstm4() -> LstmModel:
    return LstmModel()
