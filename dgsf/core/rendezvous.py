"""Which proxy a function belongs to: highest random weight, so that a lost proxy moves only its own functions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def ranked(key: str, members: Sequence[str]) -> list[str]:
    """Members in the order in which they should be tried for this key."""
    return sorted(members, key=lambda member: hashlib.blake2b(f"{member}\0{key}".encode(), digest_size=8).digest())
