"""Random weights that are the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def seeded(make: Callable[[], Any], seed: int = 0) -> Any:
    """What `make` builds with the CPU's random numbers from this seed; the caller's own go on as before."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # the CPU's alone: a device's numbers are none of our business
    try:
        return make()
    finally:
        torch.set_rng_state(state)


def random_tensor(seed: int, *sizes: int) -> Any:
    """Normally distributed numbers on the CPU."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))
