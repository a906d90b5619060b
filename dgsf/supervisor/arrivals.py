"""Which devices a start waits for, and for how long.

A platform with a Ray of its own waits for every device and function host of this machine; what nodes of somebody's
cluster have is not known here, so there the first device and the first function host will do.  Nobody waits for ever
for one that does not come: as long as there is a device at all, the start goes on without it and says so.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dgsf.store.rows import DeviceRow

PATIENCE_SECONDS = 60.0  # since the last one came
_ABSENT = frozenset({"lost", "suspect"})
_DEVICE, _HOST = "a device of the cluster", "a function host of the cluster"


class Arrivals:
    """Looks at the pool again and again until it is as it was announced."""

    def __init__(self, names: Collection[str], *, host: bool, now_s: float, log: str) -> None:
        """`names`: what this machine announces; none: a cluster's, with a function host if `host`."""
        self._names = names
        self._host = host
        self._log = log
        self._lacking: list[str] = []
        self._since_s = now_s
        self._told = False

    def look(self, rows: Sequence[DeviceRow], now_s: float) -> tuple[bool, str]:
        """Whether to wait no longer, and what to say now, if anything."""
        lacking = self._lacking_of(rows)
        if len(lacking) != len(self._lacking):
            self._since_s, self._told = now_s, False
        self._lacking = lacking
        if not lacking:
            return True, ""
        if self._told or now_s - self._since_s < PATIENCE_SECONDS:
            return False, ""
        self._told = True
        enough = any(row.usable for row in rows)
        way_out = "going on without; see 'dgsf devices' and" if enough else "waiting for a first device; see"
        return enough, f"not there after {PATIENCE_SECONDS:g} s: {', '.join(lacking)}; {way_out} {self._log}"

    def _lacking_of(self, rows: Sequence[DeviceRow]) -> list[str]:
        if self._names:
            states = {row.name: row.state for row in rows}
            found = {name: states.get(name, "not started") for name in self._names}
            return [f"{name} ({state})" for name, state in found.items() if state in _ABSENT | {"not started"}]
        wanted = {_DEVICE: any(row.usable for row in rows), _HOST: not self._host or any(map(_hosts, rows))}
        return [what for what, there in wanted.items() if not there]


def _hosts(row: DeviceRow) -> bool:
    return row.is_host and row.state not in _ABSENT
