"""What the leases of the whole pool come to, device by device.

There are several leases to a device and all are read for every look, so one pass takes from each only what placement
needs, and what is expected of a function is worked out once for all its leases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from dgsf.core.durations import remaining
from dgsf.store.rows import DeviceRow, LeaseRow
from proxy.post import name_of
from proxy.sight import Held

Holder = tuple[int | None, str | None]  # tenant, function


class Leased:
    """Sums over the leases that were added."""

    def __init__(self, expected: Callable[[str], float]) -> None:
        """`expected`: how long a name's leases are held."""
        self.busy_s: dict[int, float] = {}  # device: for how long the last of them is probably held
        self._expected = expected
        self._holders: dict[Holder, tuple[str, float]] = {}
        self._slots: dict[int, int] = {}
        self._memory: dict[int, int] = {}
        self._names: dict[int, list[str]] = {}
        self._cpu_milli: Counter[int] = Counter()

    def add(self, lease: LeaseRow) -> None:
        device, holder = lease.device_id, (lease.tenant_id, lease.function_name)
        known = self._holders.get(holder)
        if known is None:
            name = name_of(*holder)
            known = self._holders[holder] = (name, self._expected(name))
        name, expected_s = known
        left_s = remaining(expected_s, lease.held_s)
        if device not in self._slots:
            self._slots[device], self._memory[device] = 1, lease.memory_bytes
            self.busy_s[device], self._names[device] = max(left_s, 0.0), [name]
        else:
            self._slots[device] += 1
            self._memory[device] += lease.memory_bytes
            self._names[device].append(name)
            if left_s > self.busy_s[device]:
                self.busy_s[device] = left_s
        if lease.cpu_milli:
            self._cpu_milli[device] += lease.cpu_milli

    def held(self) -> dict[int, Held]:
        """What is taken of each device, and by whom."""
        memory, names = self._memory, self._names
        return {device: Held(slots, memory[device], frozenset(names[device])) for device, slots in self._slots.items()}

    def cpu_by_node(self, rows: Mapping[int, DeviceRow]) -> Counter[str]:
        """Processors that are reserved on each node of these devices."""
        taken: Counter[str] = Counter()
        for device, cpu_milli in self._cpu_milli.items():
            if device in rows:
                taken[rows[device].node] += cpu_milli
        return taken
