"""What a fixed idle time would keep resident, followed beside what really happens: the budget of learned keep-warm.

Instances and devices here are imagined.  A function that needs so many instances has at least that many; each goes
when it was not used for the idle time; a new one is put on the fullest device with a free slot, else on a new device.
A device is resident while it holds any.  Time comes in as seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping


class FixedShadow:
    """Resident device-seconds of the fixed rule so far."""

    def __init__(self, slots: int, idle_s: float) -> None:
        self.resident_s = 0.0
        self._slots = slots
        self._idle_s = idle_s
        self._now: float | None = None
        self._instances: dict[str, list[tuple[float, int]]] = {}  # (last used, device), latest first
        self._held: Counter[int] = Counter()
        self._devices = 0

    def look(self, busy: Mapping[str, int], now: float) -> None:
        """So many instances of each function were in use since the last look."""
        if self._now is not None:
            self.resident_s += len(self._held) * (now - self._now)
        self._now = now
        for function, needed in busy.items():
            mine = self._instances.setdefault(function, [])
            while len(mine) < needed:
                mine.append((now, self._place()))
            mine[:needed] = [(now, device) for _, device in mine[:needed]]
        self._expire(now)

    def next_end(self) -> float:
        """When the next of its instances goes, if no call comes."""
        return min((mine[-1][0] for mine in self._instances.values()), default=math.inf) + self._idle_s

    def _place(self) -> int:
        room = [(held, -device) for device, held in self._held.items() if held < self._slots]
        device = -max(room)[1] if room else self._devices
        self._devices += not room
        self._held[device] += 1
        return device

    def _expire(self, now: float) -> None:
        for function in list(self._instances):
            mine = self._instances[function]
            while mine and now - mine[-1][0] > self._idle_s:
                device = mine.pop()[1]
                self._held[device] -= 1
                if not self._held[device]:
                    del self._held[device]
            if not mine:
                del self._instances[function]
