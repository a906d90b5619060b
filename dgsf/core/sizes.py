"""Numbers of bytes as people read them in messages; the exact number stands behind."""

from __future__ import annotations

_UNITS = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def describe_bytes(size: int) -> str:
    """'6.0 GiB (6442450944 bytes)'; a small number alone."""
    for unit, scale in _UNITS:
        if abs(size) >= scale:
            return f"{size / scale:.1f} {unit} ({size} bytes)"
    return f"{size} bytes"
