"""What tests of remote tensors compare with."""

from __future__ import annotations

import torch


def same(remote: torch.Tensor, local: torch.Tensor) -> None:
    """The remote tensor has the local one's values, type and sizes."""
    assert remote.device.type != "cpu"
    torch.testing.assert_close(remote.detach().cpu(), local.detach())
