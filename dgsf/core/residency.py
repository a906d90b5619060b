"""Which functions were on which device lately: there their code, weights and uploads are probably still at hand.

A guess, not a register: what a device keeps beyond a worker's life is pruned by the device itself.  So an entry is
good for a while, and only for the device's life in which it was made.  Time comes in as seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

LATELY_S = 1800.0
NAMES = 64  # per device


class Residency:
    """Names by device, newest last; devices likewise, so that those of long ago are found and dropped at once."""

    def __init__(self, lately_s: float = LATELY_S, names: int = NAMES) -> None:
        self._lately_s = lately_s
        self._names = names
        self._devices: dict[int, tuple[int, OrderedDict[str, float]]] = {}

    def was(self, device_id: int, incarnation: int, name: str, now: float) -> None:
        """It is or was there at this time."""
        life, names = self._devices.pop(device_id, (incarnation, OrderedDict[str, float]()))
        if life != incarnation:
            names = OrderedDict()
        names[name] = now
        names.move_to_end(name)
        if len(names) > self._names:
            names.popitem(last=False)
        self._devices[device_id] = (incarnation, names)
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Drops devices where nothing was lately; many of them are no more."""
        while True:
            device, (_, names) = next(iter(self._devices.items()))
            if now - next(reversed(names.values())) <= self._lately_s:
                return
            del self._devices[device]

    @property
    def devices(self) -> Collection[int]:
        """Those of which anything is remembered."""
        return self._devices.keys()

    def on(self, device_id: int, incarnation: int, now: float) -> frozenset[str]:
        """What was lately on this life of the device."""
        life, names = self._devices.get(device_id, (incarnation, OrderedDict[str, float]()))
        if life != incarnation:
            return frozenset()
        return frozenset(name for name, at in names.items() if now - at <= self._lately_s)
