"""Functions that only benchmarks deploy, each under many names.

A file of its own beside no package, as a user's first file is: only its own source travels with it.
"""

from __future__ import annotations

from typing import Any

import dgsf

app = dgsf.App("bench")


@app.function(memory="1GiB", timeout=60, idle_seconds=0.1)
def torch_sum() -> float:
    """The least that needs torch; its worker is given back at once, so that the next call is cold again."""
    import torch

    return float(torch.ones(4).sum())


@app.function
def echo(**values: Any) -> dict[str, Any]:
    """Returns its arguments."""
    return values
