"""Which weights a simulated node has in its own memory: those that it loaded last, as many as fit.

The processes of its instances take none of it here: how much they would take is not known, and not guessed.
"""

from __future__ import annotations

from collections import OrderedDict


class HostCache:
    """The weights in the memory of one node."""

    __slots__ = ("_held", "_left_mib", "_memory_mib")

    def __init__(self, memory_mib: float) -> None:
        self._memory_mib = self._left_mib = memory_mib
        self._held: OrderedDict[int, float] = OrderedDict()  # function: MiB, longest unused first

    def load(self, function: int, mib: float) -> bool:
        """Its weights go to a device; whether they were in the node's memory.  If they fit, they are from now on."""
        if function in self._held:
            self._held.move_to_end(function)
            return True
        if mib <= self._memory_mib:
            while self._held and mib > self._left_mib:  # sums of fractions may fall short of the whole by a hair
                self._left_mib += self._held.popitem(last=False)[1]
            self._held[function] = mib
            self._left_mib -= mib
        return False
