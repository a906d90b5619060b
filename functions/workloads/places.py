"""Which device a workload uses: the one beside it, or the remote one."""

from __future__ import annotations

from typing import Any


def beside() -> Any:
    """The GPU of this worker, or the CPU where there is none."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def remote() -> Any:
    """The device of this worker's session."""
    import torch

    return torch.device("dgsf")
