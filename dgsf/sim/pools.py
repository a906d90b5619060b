"""Pools of devices, from a short text or a CSV file of nodes.

'A100:8,T4:16' is 8 A100 and 16 T4 on nodes of up to 8; 'A100:4x8' is 4 nodes of 8; 'A100:4x8@96' gives each node 96
CPU cores; 'B200=192/10/6.50:8' says what a type has that the table of types does not know.  A CSV has the columns of
the openb trace: sn, cpu_milli, memory_mib, gpu, model; types that are not in the table count as a T4 there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dgsf.core.placement import Speeds
from dgsf.errors import TraceError, UsageError
from dgsf.sim.devicetypes import FORM, STAND_IN, TYPES, DeviceType, known, of_figures, unknown
from dgsf.sim.tracefiles import (
    MOST_MIB,
    MOST_MILLI,
    NumberedRow,
    device_type,
    distinct,
    is_device_type,
    numbered_rows,
    shown,
    text,
    whole,
)

NODE_DEVICES = 8
MOST_DEVICES = 1_000_000
MOST_CORES = 1_000_000  # of one node
MOST_PLACES = 4_000_000  # nodes x devices of the largest: a pool is a table of that size
_CORES_PER_DEVICE = 12
_HOST_MIB_PER_DEVICE = 128 * 1024
_TYPE = re.compile(r"[A-Za-z][\w.-]*")
_PART = re.compile(
    rf"(?P<type>{_TYPE.pattern})(?:=(?P<figures>[^:]*))?:(?P<first>[0-9]+)(?:x(?P<each>[0-9]+))?(?:@(?P<cores>[0-9]+))?"
)


@dataclass(frozen=True, slots=True)
class Node:
    """One machine and its devices, all of one type."""

    name: str
    type: str
    devices: int
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """The machines of a pool, and the figures of their device types."""

    name: str
    nodes: Sequence[Node]
    speeds: Speeds | None = None  # by function and type, instead of the type's one figure
    own: Mapping[str, DeviceType] = field(default_factory=dict)  # figures that came with the pool, by upper-case name

    @property
    def devices(self) -> int:
        return sum(node.devices for node in self.nodes)

    def figures(self, type_: str) -> DeviceType:
        name = type_.upper()
        return self.own.get(name) or TYPES.get(name) or TYPES[STAND_IN]

    @property
    def assumed(self) -> list[str]:
        """Types of its devices that nothing is known of: they count as the stand-in."""
        types = {node.type for node in self.nodes if node.devices}
        return sorted(type_ for type_ in types if type_.upper() not in self.own and not known(type_))


def parse_pool(words: str) -> PoolSpec:
    """A pool from text such as 'A100:8,T4:4x8@96'."""
    nodes: list[Node] = []
    own: dict[str, DeviceType] = {}
    for part in words.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"--pool {shown(words)}: {shown(part.strip())} is no group of devices, {_why_no_group(part.strip())}; "
                f"write TYPE:DEVICES, TYPE:NODESxDEVICES, TYPE:NODESxDEVICES@CORES or {FORM}"
            )
        if not is_device_type(match["type"]):
            raise UsageError(f"--pool: no device type can be called {match['type']!r}; that word means something else")
        if match["figures"] is not None:
            _define(own, match["type"], of_figures(match["type"], match["figures"]))
        nodes += _nodes(match, len(nodes))
    pool = PoolSpec(words, nodes, own=own)
    if not 1 <= pool.devices <= MOST_DEVICES:
        raise UsageError(f"--pool {shown(words)}: has {pool.devices} devices; 1 to {MOST_DEVICES:,} are possible")
    _check_size(pool)
    if pool.assumed:
        raise unknown(pool.assumed[0])
    return pool


def _why_no_group(part: str) -> str:
    """Which part of the text is missing or wrong."""
    head, _, count = part.partition(":")
    type_ = head.partition("=")[0]
    if not _TYPE.fullmatch(type_):
        return f"{shown(type_)} is no TYPE" if type_ else "the TYPE is missing"
    return f"{shown(count)} is no number of DEVICES" if count else "the number of DEVICES is missing"


def _define(own: dict[str, DeviceType], type_: str, figures: DeviceType) -> None:
    """Every device of a type has the same figures."""
    before = own.setdefault(type_.upper(), figures)
    if before != figures:
        raise UsageError(f"--pool: {type_.upper()} is {before} and {figures}; give its figures once, or two names")


def _check_size(pool: PoolSpec) -> None:
    most = max(node.devices for node in pool.nodes)
    if len(pool.nodes) * most > MOST_PLACES:
        raise UsageError(
            f"--pool: {len(pool.nodes):,} nodes beside one of {most:,} devices are too much for one table "
            f"({MOST_PLACES:,} places); make the large nodes smaller"
        )


def _nodes(match: re.Match[str], start: int) -> list[Node]:
    first = _number(match, "first", MOST_DEVICES, "devices") or 0
    each = _number(match, "each", MOST_DEVICES, "devices")
    cores = _number(match, "cores", MOST_CORES, "cores of a node")
    if first * (1 if each is None else each) > MOST_DEVICES:
        raise UsageError(f"--pool {shown(match[0])}: at most {MOST_DEVICES:,} devices are possible")
    full, rest = divmod(first, NODE_DEVICES)
    sizes = [NODE_DEVICES] * full + _rest(rest) if each is None else [each] * first
    return [
        Node(
            f"node-{start + index}",
            match["type"],
            size,
            1000 * (_CORES_PER_DEVICE * max(1, size) if cores is None else cores),
            _HOST_MIB_PER_DEVICE * max(1, size),
        )
        for index, size in enumerate(sizes)
    ]


def _number(match: re.Match[str], group: str, most: int, what: str) -> int | None:
    digits = match[group]
    if digits is None:
        return None
    if len(digits.lstrip("0")) > len(str(most)) or int(digits) > most:  # thousands of digits are no number to Python
        raise UsageError(f"--pool {shown(match[0])}: at most {most:,} {what} are possible")
    return int(digits)


def _rest(devices: int) -> list[int]:
    return [devices] if devices else []


def read_pool(path: Path) -> PoolSpec:
    """A pool from a CSV file of nodes."""
    columns = {
        "sn": text,
        "cpu_milli": whole(1, MOST_MILLI),
        "memory_mib": whole(1, MOST_MIB),
        "gpu": whole(0, 64),
        "model": device_type,
    }
    nodes = [
        Node(row["sn"], row["model"] or "none", row["gpu"], row["cpu_milli"], row["memory_mib"])
        for row in distinct(_named(numbered_rows(path, columns)), "sn")
    ]
    if not any(node.devices for node in nodes):
        raise TraceError(f"{path}: has no node with a device")
    pool = PoolSpec(path.name, nodes)
    _check_size(pool)
    return pool


def _named(rows: Iterable[NumberedRow]) -> Iterator[NumberedRow]:
    """The rows; devices without a type are not guessed at."""
    for where, row in rows:
        if row["gpu"] and not row["model"]:
            raise where.wrong("model", f"is empty beside {row['gpu']} devices; name their type")
        yield where, row


def load_pool(words: str) -> PoolSpec:
    """A CSV file if the text ends so, otherwise a short spec."""
    return read_pool(Path(words)) if words.lower().endswith(".csv") else parse_pool(words)
