"""Names of devices: which node has which, told by names that people can read.

A device is called "<node>/<its name there>", as in "box/cpu0".  Two nodes of the same name are told apart
by a short piece of the later one's id; the earlier keeps its plain name, so that a node that joins renames
nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dgsf.core.devices import DeviceSpec

_SHORT_ID = 6


@dataclass(frozen=True, slots=True)
class Place:
    """One device that a node offers."""

    name: str
    node: str
    node_id: str
    spec: DeviceSpec


class NodeNames:
    """Gives each node id a name of its own and keeps it."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self._names = {node_id: name for node_id, name in known if node_id}

    def name_of(self, node_id: str, wished: str) -> str:
        if node_id not in self._names:
            taken = wished in self._names.values()
            self._names[node_id] = f"{wished}-{node_id[:_SHORT_ID]}" if taken else wished
        return self._names[node_id]

    def keep(self, node_ids: Collection[str]) -> None:
        """Free the names of all other nodes: one that comes back under a new id gets its old name."""
        self._names = {node_id: name for node_id, name in self._names.items() if node_id in node_ids}


def places(node_id: str, node: str, specs: Sequence[DeviceSpec]) -> list[Place]:
    """The devices of one node."""
    return [Place(f"{node}/{spec.short_name}", node, node_id, spec) for spec in specs]
