"""Functions that only benchmarks deploy; plain ones, without a decorator, because each is deployed under many names."""

from __future__ import annotations

from typing import Any


def torch_sum() -> float:
    """The least that needs torch."""
    import torch

    return float(torch.ones(4).sum())


def echo(**values: Any) -> dict[str, Any]:
    """Returns its arguments."""
    return values
