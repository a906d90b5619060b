"""What was sent since the last checkpoint, ready to be sent again.

Bodies of records are kept as they were encoded, transfers with their bytes.  Questions that only read are no
part of it; an ask is, and its second answer is dropped.  Where a reading question told the program of an
error, a SYNC stands in its place, so that the replay tells the error to nobody once more.  One that was given up
keeps nothing until it begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dgsf.remoting.guest.bodies import join_bodies
from dgsf.remoting.guest.room import Room

_JOIN_BYTES = 64 * 1024
_COVER_BYTES = 8 * 1024**2  # bodies are in Python's memory, which is counted in lots


class Transfer(NamedTuple):
    """Bulk bytes behind the record that announced them."""

    number: int
    data: memoryview


class Mark(NamedTuple):
    """A place in the journal."""

    entries: int
    digests: int
    bytes: int


class Journal:
    """Grows with every batch; `drop` forgets what a checkpoint covers."""

    def __init__(self, room: Room | None = None, keeping: bool = True) -> None:
        self.bytes = 0
        self.keeping = keeping
        self._room = room or Room()
        self._bodies = self._covered = 0  # bytes of bodies, and the most there were: a heap gives nothing back
        self._done = 0  # entries that a device is known to have done
        self._entries: list[bytes | Transfer] = []
        self._digests: list[bytes] = []

    def note(self, body: bytes) -> None:
        if not self.keeping:
            return
        self._entries.append(body)
        self.bytes += len(body)
        self._bodies += len(body)
        while self._bodies > self._covered:
            self._room.hold(_COVER_BYTES)
            self._covered += _COVER_BYTES

    def note_transfer(self, number: int, data: memoryview) -> None:
        if not self.keeping:
            return
        self._entries.append(Transfer(number, data))
        self.bytes += len(data)

    def note_name(self, digest: bytes) -> None:
        """This content was named; its bytes must stay."""
        if self.keeping:
            self._digests.append(digest)

    @property
    def digests(self) -> set[bytes]:
        return set(self._digests)

    def mark(self) -> Mark:
        return Mark(len(self._entries), len(self._digests), self.bytes)

    def drop(self, mark: Mark) -> None:
        """Forgets everything before the mark."""
        self._bodies -= sum(len(entry) for entry in self._entries[: mark.entries] if isinstance(entry, bytes))
        del self._entries[: mark.entries]
        self._done = max(0, self._done - mark.entries)
        del self._digests[: mark.digests]
        self.bytes -= mark.bytes

    def begin_anew(self) -> None:
        """Keeps what is sent from now on, and nothing of before."""
        self.drop(self.mark())
        self.keeping = True

    def give_up(self) -> None:
        """Keeps nothing any more."""
        self.drop(self.mark())
        self.keeping = False

    def all_done(self) -> None:
        """An answer says so: everything up to here went well once."""
        self._done = len(self._entries)

    def replay(self) -> Iterator[bytes | Transfer]:
        """All of it in order, small bodies joined."""
        return _joined(list(self._entries))

    def replay_done(self) -> Iterator[bytes | Transfer]:
        """The part that went well once."""
        return _joined(self._entries[: self._done])

    def doubtful(self) -> list[bytes | Transfer]:
        """The rest, as it was sent."""
        return self._entries[self._done :]


def _joined(entries: list[bytes | Transfer]) -> Iterator[bytes | Transfer]:
    joined: list[bytes] = []
    for entry in entries:
        if isinstance(entry, bytes):
            joined.append(entry)
            if sum(map(len, joined)) < _JOIN_BYTES and len(joined) < 256:
                continue
            yield join_bodies(joined)
        else:
            if joined:
                yield join_bodies(joined)
            yield entry
        joined = []
    if joined:
        yield join_bodies(joined)
