"""What device time costs, in whole nano-units: rounded once, never a float."""

from __future__ import annotations


def cost_nano(device_us: int, price_nano_per_us: int) -> int:
    """The price of so many device-microseconds."""
    if device_us < 0 or price_nano_per_us < 0:
        raise ValueError("time and price cannot be negative")
    return device_us * price_nano_per_us
