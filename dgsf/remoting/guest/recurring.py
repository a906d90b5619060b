"""Which contents come again, of those that are sent without asking whether the device has them.

Hashing every batch would cost more than it brings, so only some bytes of each are compared with those before.  If they
agree the whole is hashed; a hash that was met before is a content that comes again, and worth a name.  Nothing is kept
but samples and hashes, the latest few of each.
"""

from __future__ import annotations

from collections.abc import Hashable

from dgsf.remoting.digest import digest_of

POINTS = 512  # bytes of a sample, evenly over the content
MOST = 1024  # samples and hashes that are remembered


class Recurring:
    """Of one session."""

    def __init__(self) -> None:
        self._samples: dict[Hashable, None] = {}
        self._digests: dict[Hashable, None] = {}

    def digest_of(self, data: memoryview) -> bytes | None:
        """The hash of these bytes if they came before, at least for the third time now; else they are remembered."""
        sample = len(data), bytes(data[:: max(1, len(data) // POINTS)])
        if not _met(self._samples, sample):
            return None
        digest = digest_of(data)
        return digest if _met(self._digests, digest) else None


def _met(known: dict[Hashable, None], item: Hashable) -> bool:
    """Whether it is known; it is from now on, and another one may be forgotten for it."""
    if item in known:
        return True
    if len(known) >= MOST:
        del known[next(iter(known))]
    known[item] = None
    return False
