"""Memory of a session: live storage bytes against the lease.

Counting exactly costs a walk over all live tensors, so on the way only an upper bound is kept: what was live at
the last walk plus all that was allocated since.  Only when the bound passes the lease is the walk made.  A
call whose results do not fit loses them.  What the executor keeps beside the tensors, the copy of a checkpoint, lowers
the bound and gives way when it is passed; it never makes an allocation fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from dgsf.core.sizes import describe_bytes
from dgsf.errors import OutOfMemory

_REFUSED = ("not enough memory", "out of memory", "can't allocate memory")
_TRIED = re.compile(r"tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_LOOKS = 16  # while a lease is filled
_WALK_SHARE = 50  # for reports, at most a fiftieth of the time is spent on walks


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of all storages behind these tensors, each counted once."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def is_refusal(error: Exception) -> bool:
    """Whether an allocator says that there is no memory."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _REFUSED)


def tried_bytes(text: str) -> int:
    """What an allocator says it was asked for; 0 if it does not say."""
    found = _TRIED.search(text)
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0


def too_much(asked: int, live: int, lease: int, name: str = "the operation") -> OutOfMemory:
    wanted = f"{describe_bytes(asked)} more" if asked else "more memory than is left"
    return OutOfMemory(
        f"{name} needs {wanted}; in use are {describe_bytes(live)} "
        f"of the leased {describe_bytes(lease)}; "
        "free tensors or ask for more memory (gpu_memory= of the function, memory= of dgsf.attach)",
        asked=asked,
        leased=lease,
    )


def not_given(asked: int, live: int, lease: int, name: str) -> OutOfMemory:
    """The lease has room, but whoever gives memory out has none."""
    return OutOfMemory(
        f"{name} was refused {describe_bytes(asked)} more, although only {describe_bytes(live)} of the leased "
        f"{describe_bytes(lease)} are in use: the process that serves this session, or its device, has no memory left "
        "beside that; free tensors, or do it in smaller pieces",
        asked=asked,
        leased=lease,
    )


class Memory:
    """The lease and what is used of it. `room` is read and lowered directly on the hot path."""

    def __init__(self, lease: int, walk: Callable[[], int], now: Callable[[], int]) -> None:
        self.lease = lease
        self.look: Callable[[], None] = lambda: None  # called whenever a sixteenth of the lease was allocated
        self.room = self._stride = max(1, lease // _LOOKS)  # may be allocated before the next look
        self._left = lease - self.room  # and beyond that, before the next walk
        self.live = 0  # at the last walk
        self.most = 0  # at any walk
        self._walk = walk
        self._now = now
        self._next_walk = 0
        self._beside = 0  # bytes that are no tensor's and give way to them
        self._give_way: Callable[[], None] = lambda: None

    def walk(self) -> int:
        self.live = self._walk()
        self.most = max(self.most, self.live)
        self._allow(self.lease - self.live - self._beside)
        return self.live

    @property
    def allowed(self) -> int:
        """May be allocated before the next walk."""
        return self.room + self._left

    def _allow(self, size: int) -> None:
        self.room = min(size, self._stride)
        self._left = size - self.room

    def _have(self, size: int) -> bool:
        """Whether so much may be allocated without a walk; looks, if it is more than before the next look."""
        if size > self.room and self._left:
            given = min(self._left, max(size - self.room, self._stride))
            self._left -= given
            self.room += given
            self.look()
        return size <= self.room

    def keep_beside(self, size: int, give_way: Callable[[], None]) -> None:
        """So many bytes are kept beside the tensors, until these need the room."""
        self._allow(self.allowed + self._beside - size)
        self._beside, self._give_way = size, give_way

    def _make_room(self) -> None:
        self._give_way()
        self.keep_beside(0, lambda: None)

    def check(self, asked: int) -> None:
        """The room is used up: look, or, if the bound is passed, count, and raise OutOfMemory if it is true.

        The new results are live already.
        """
        if self._have(0):
            return
        if self.walk() > self.lease:
            raise too_much(asked, self.live - asked, self.lease)
        if self.room < 0:
            self._make_room()

    def reserve(self, asked: int) -> None:
        """Before bytes of known size come in."""
        if not self._have(asked) and self.walk() + asked > self.lease:
            raise too_much(asked, self.live, self.lease)
        if not self._have(asked):
            self._make_room()
            self._have(asked)
        self.room -= asked

    def refused(self, name: str, error: Exception) -> OutOfMemory:
        """The allocator refused an operation before its results could be counted."""
        asked, live = tried_bytes(str(error)), self.walk()
        if self._beside:
            self._make_room()  # not in time for this one
        if asked and live + asked <= self.lease:
            return not_given(asked, live, self.lease, name)
        return too_much(asked, live, self.lease, name)

    def estimate(self) -> int:
        """For reports: exact if it is cheap to say, else the bound."""
        now = self._now()
        if now >= self._next_walk:
            self.walk()
            spent = self._now() - now
            self._next_walk = now + spent * _WALK_SHARE
        return min(self.lease, self.lease - self.allowed - self._beside)
