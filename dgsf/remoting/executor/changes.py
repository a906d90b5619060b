"""Which tensors were written since the last snapshot, and which still are a known content.

Writes are noted by handle, which costs next to nothing; storages are looked up only when a written tensor is
freed or a snapshot is taken.  Where in doubt, a storage counts as changed.
"""

from __future__ import annotations

from typing import Any


class Changes:
    """Marks of one session."""

    __slots__ = ("contents", "handles", "storages")

    def __init__(self) -> None:
        self.handles: set[int] = set()  # written, and not freed since
        self.storages: set[int] = set()  # behind written tensors that were freed; an address may be in use again
        self.contents: dict[int, bytes] = {}  # tensors that KNOWN brought: the content's digest

    def written(self, places: tuple[int, ...], handles: list[int]) -> None:
        """A call wrote the handles at these places of its list."""
        if len(places) == len(handles):
            self.handles.update(handles)
        else:
            self.handles.update([handles[place] for place in places])

    def freed(self, handle: int, tensor: Any) -> None:
        """A written tensor goes; its storage may live on in a view."""
        self.handles.discard(handle)
        if hasattr(tensor, "untyped_storage"):
            self.storages.add(tensor.untyped_storage()._cdata)

    def clear(self) -> None:
        """All is told; from now on the next snapshot's changes are gathered."""
        self.handles = set()
        self.storages = set()
