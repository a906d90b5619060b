"""Numbers of things in messages. Pure."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """'1 call', '2 calls', '1,000 calls'."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
