"""Sample functions: an echo, two with numpy, one with torch, one that raises, one that is slow.

    dgsf deploy functions/demo.py
    dgsf invoke demo.echo '{"x": 1}'
    dgsf invoke demo.classify --raw --file circle.png

Heavy libraries are imported inside the functions, so that this file loads anywhere.
"""

from __future__ import annotations

import time
from typing import Any

import dgsf

app = dgsf.App("demo")


class DemoError(Exception):
    """What `fail` raises: an exception type of the user's own."""


@app.function
def echo(**values: Any) -> dict[str, Any]:
    """Returns its arguments."""
    return values


@app.function
def blob(data: bytes) -> bytes:
    """Returns the bytes that it is given."""
    return data


@app.function(memory="1GiB")
def statistics(values: list[float]) -> dict[str, float]:
    """Count, mean, standard deviation and quartiles of some numbers."""
    import numpy as np

    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError("values must be a list of at least one number")
    low, middle, high = (float(part) for part in np.percentile(numbers, [25, 50, 75]))
    spread = {"lower_quartile": low, "median": middle, "upper_quartile": high}
    return {"count": float(numbers.size), "mean": float(numbers.mean()), "deviation": float(numbers.std()), **spread}


@app.function(memory="1GiB")
def matmul(size: int = 256, seed: int = 0) -> dict[str, float]:
    """Multiplies two random square matrices; tells the trace of the product."""
    import numpy as np

    if not 1 <= size <= 4096:
        raise ValueError("size must be from 1 to 4096")
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((size, size)), rng.standard_normal((size, size))
    return {"size": float(size), "trace": float(np.trace(left @ right))}


@app.function(gpu="any", memory="2GiB", timeout=60)
def classify(image: bytes) -> dict[str, Any]:
    """Tells whether a picture (PNG or another common format) shows a circle, a square or a triangle."""
    from functions.shapes import classify_image

    label, scores = classify_image(image)
    return {"label": label, "scores": scores}


@app.function
def fail(message: str = "this function always fails") -> None:
    """Raises an exception of its own type."""
    raise DemoError(message)


@app.function(timeout=60)
def slow(seconds: float = 1.0) -> dict[str, float]:
    """Sleeps, and tells for how long it did."""
    if not 0 <= seconds <= 60:
        raise ValueError("seconds must be from 0 to 60")
    started = time.monotonic()
    time.sleep(seconds)
    return {"seconds": time.monotonic() - started}
