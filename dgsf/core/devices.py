"""Devices as data: what a node offers, read from a short text or a TOML file.

    auto                                every CUDA GPU, or one CPU device
    cpu:2                               two CPU devices
    cpu:1,sim:A100:4                    and four simulated A100s
    cpu:2:slots=8:memory=2GiB           with attributes
    sim:A100:4:speed=9.7:launch_us=5    what a simulated device adds to each launch
    sim:A100:1:timing=a100:values=dummy kernel times of an A100 and no values: as fast to a remote program as one
    devices.toml                        the same as tables, with kernel times

Pure: a file is read by the function that the caller gives.  What only the machine knows (its memory, the
names of its GPUs) is left 0 or empty here and filled in by `dgsf.fabric.devices`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dgsf.config import GIB, parse_bytes
from dgsf.errors import ConfigError

AUTO: Final = "auto"
KINDS = ("cpu", "cuda", "sim")
DUMMY: Final = "dummy"  # values=dummy, and the kind under which placement knows such a device
KERNELS_OPTION: Final = "kernels"  # of a CPU device: the quickest that are known, or torch's own choice
TORCHS_CHOICE: Final = "torch"
HOST: Final = "host"  # the kind of a function host: a server without a device, which runs function bodies
HOST_SLOTS = 8
MAX_DEVICES = 1024
DEFAULT_SLOTS = 4
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")
SETTING = "--devices (DGSF_DEVICES)"
_EXAMPLE = "write e.g. 'cpu:2', 'cpu:1,sim:A100:4' or 'sim:T4:2:memory=16GiB:slots=8', or name a .toml file"

# Memory and speed (single-precision TFLOPS) of GPUs that people like to simulate.
_KNOWN_GPUS = {
    "A100": (40 * GIB, 19.5),
    "A10": (24 * GIB, 31.2),
    "H100": (80 * GIB, 66.9),
    "L4": (24 * GIB, 30.3),
    "P100": (16 * GIB, 9.3),
    "T4": (16 * GIB, 8.1),
    "V100": (16 * GIB, 15.7),
}
_OTHER_GPU = (16 * GIB, 1.0)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device of a node. `memory_bytes` 0: ask the machine. `options`: what only its kind understands."""

    kind: str
    type: str
    index: int
    memory_bytes: int
    slots: int = DEFAULT_SLOTS
    speed: float = 1.0
    price_nano_per_us: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    node_cpus: int = 0  # processors of its node, for all its devices together; 0: not known

    @property
    def short_name(self) -> str:
        """Unique on its node: cpu0, cuda1, sim-A100-3."""
        return f"sim-{self.type}-{self.index}" if self.kind == "sim" else f"{self.kind}{self.index}"


Devices = list[DeviceSpec] | Literal["auto"]


def parse_devices(text: str, read_file: Callable[[str], str] | None = None, price_nano_per_us: int = 1) -> Devices:
    """The devices that a text or the TOML file it names describes, or AUTO."""
    stripped = text.strip()
    if stripped.lower() == AUTO:
        return AUTO
    if stripped.endswith(".toml"):
        groups = _groups_of_file(stripped, read_file)
    else:
        groups = [_group_of_text(piece) for piece in stripped.split(",")]
    return _number([_checked(group, price_nano_per_us) for group in groups])


def parse_hosts(text: str) -> DeviceSpec | None:
    """The function host that a setting describes, 'auto' or a number of slots; None for 0. It costs nothing."""
    stripped = text.strip().lower()
    slots = HOST_SLOTS if stripped == AUTO else int(stripped) if stripped.isdecimal() else -1
    if not 0 <= slots <= MAX_DEVICES:
        raise ConfigError(
            f"DGSF_HOSTS={text!r}: expected 'auto' or a number of slots from 0 (no host) to {MAX_DEVICES}"
        )
    return DeviceSpec(HOST, HOST, 0, 0, slots, price_nano_per_us=0) if slots else None


@dataclass(frozen=True, slots=True)
class _Group:
    """Some equal devices as they were written down; `where` is how to point at them in a message."""

    where: str
    kind: str
    type: str
    count: int
    attributes: Mapping[str, Any]


def _wrong(where: str, reason: str) -> ConfigError:
    return ConfigError(f"{SETTING}: {where}: {reason}; {_EXAMPLE}")


# --- text -------------------------------------------------------------------------------------
def _group_of_text(piece: str) -> _Group:
    where = repr(piece.strip())
    fields = [part.strip() for part in piece.strip().split(":")]
    plain = [part for part in fields if "=" not in part]
    if plain != fields[: len(plain)]:
        raise _wrong(where, "attributes (name=value) come last")
    if not plain or plain[0] not in KINDS:
        raise _wrong(where, f"the kind must be one of {', '.join(KINDS)}")
    kind, rest = plain[0], plain[1:]
    if kind == "sim" and not rest:
        raise _wrong(where, "a simulated device needs a type")
    type_name = rest.pop(0) if kind == "sim" else ""
    if len(rest) > 1:
        raise _wrong(where, f"{rest[1]!r} is not name=value")
    return _Group(where, kind, type_name, _count(where, rest), _attributes(where, fields[len(plain) :]))


def _count(where: str, rest: list[str]) -> int:
    if not rest:
        return 1
    if not rest[0].isdecimal():
        raise _wrong(where, f"{rest[0]!r} is not a number of devices")
    return int(rest[0])


def _attributes(where: str, pieces: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for piece in pieces:
        name, _, value = piece.partition("=")
        if name in found:
            raise _wrong(where, f"{name!r} is given twice")
        found[name] = value
    return found


# --- file -------------------------------------------------------------------------------------
def _groups_of_file(path: str, read_file: Callable[[str], str] | None) -> list[_Group]:
    if read_file is None:
        raise _wrong(repr(path), "files cannot be read here")
    try:
        tables = tomllib.loads(read_file(path))
    except OSError as error:
        raise _wrong(repr(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(repr(path), f"is not TOML: {error}") from error
    if not tables:
        raise _wrong(repr(path), 'has no table; write one per group of devices, e.g. [fast] kind = "sim"')
    return [_group_of_table(f"{path} [{name}]", table) for name, table in tables.items()]


def _group_of_table(where: str, table: Any) -> _Group:
    if not isinstance(table, dict):
        raise _wrong(where, "must be a table")
    attributes = dict(table)
    kind, type_name = attributes.pop("kind", None), attributes.pop("type", "")
    count = attributes.pop("count", 1)
    if kind not in KINDS:
        raise _wrong(where, f"kind must be one of {', '.join(KINDS)}")
    if not isinstance(type_name, str) or type(count) is not int:
        raise _wrong(where, "type must be a name and count a whole number")
    if kind == "sim" and not type_name:
        raise _wrong(where, "a simulated device needs a type")
    return _Group(where, kind, type_name, count, attributes)


# --- attributes -------------------------------------------------------------------------------
def _size(value: Any) -> int:
    if not isinstance(value, str | int):
        raise ValueError
    return _positive(parse_bytes(value))


def _positive(value: Any) -> int:
    number = int(str(value))
    if number < 1:
        raise ValueError
    return number


def _not_negative(value: Any) -> int:
    number = int(str(value))
    if number < 0:
        raise ValueError
    return number


def _number_above_zero(value: Any) -> float:
    number = float(str(value))
    if not 0 < number < 1e9:
        raise ValueError
    return number


def _time(value: Any) -> float:
    number = float(str(value))
    if not 0 <= number <= 1e9:
        raise ValueError
    return number


def _times(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ValueError
    return {str(name): _time(each) for name, each in value.items()}


def _one_of(*names: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return read


Reader = Callable[[Any], Any]
_COMMON: dict[str, tuple[Reader, str]] = {
    "slots": (_positive, "a number of slots, e.g. slots=4"),
    "memory": (_size, "a size, e.g. memory=2GiB"),
    "speed": (_number_above_zero, "a number above 0, e.g. speed=9.7"),
    "price": (_not_negative, "nano-units per microsecond, e.g. price=3"),
}
_BY_KIND: dict[str, dict[str, tuple[Reader, str]]] = {
    "cpu": {
        "threads": (_positive, "a number of threads, e.g. threads=2"),
        KERNELS_OPTION: (_one_of("quickest", TORCHS_CHOICE), "kernels=quickest or kernels=torch (its own choice)"),
    },
    "cuda": {"threads": (_positive, "a number of threads, e.g. threads=2")},
    "sim": {
        "launch_us": (_time, "microseconds, e.g. launch_us=5"),
        "kernel_us": (_time, "microseconds, e.g. kernel_us=20"),
        "kernels": (_times, "a table of kernel names and microseconds (in a TOML file)"),
        "timing": (_one_of("a100"), "a model of kernel times: timing=a100"),
        "values": (_one_of("real", DUMMY), "values=real (computed on the CPU) or values=dummy (zeros, no work)"),
        "threads": (_positive, "a number of threads, e.g. threads=1"),
    },
}


def _checked(group: _Group, price: int) -> tuple[_Group, dict[str, Any]]:
    """The group with its attributes read, or ConfigError with the piece and what was expected."""
    known = _COMMON | _BY_KIND[group.kind]
    if not 1 <= group.count <= MAX_DEVICES:
        raise _wrong(group.where, f"the number of devices must be from 1 to {MAX_DEVICES}")
    if group.type and (not _TYPE.fullmatch(group.type) or group.type.lower() == HOST):
        raise _wrong(group.where, f"{group.type!r} cannot be a device type")
    values: dict[str, Any] = {"price": price}
    for name, value in group.attributes.items():
        if name not in known:
            raise _wrong(group.where, f"unknown attribute {name!r}; known: {', '.join(sorted(known))}")
        reader, expected = known[name]
        try:
            values[name] = reader(value)
        except ValueError:
            raise _wrong(group.where, f"{name}={value}: expected {expected}") from None
    return group, values


def _number(groups: list[tuple[_Group, dict[str, Any]]]) -> list[DeviceSpec]:
    """One spec per device, numbered through per kind and type."""
    total = sum(group.count for group, _ in groups)
    if total > MAX_DEVICES:
        raise ConfigError(f"{SETTING}: {total} devices are over the limit of {MAX_DEVICES} per node")
    following: dict[tuple[str, str], int] = {}
    devices = []
    for group, values in groups:
        for _ in range(group.count):
            index = following.setdefault((group.kind, group.type), 0)
            following[group.kind, group.type] += 1
            devices.append(_device(group, index, values))
    return devices


def _device(group: _Group, index: int, values: Mapping[str, Any]) -> DeviceSpec:
    memory, speed = _KNOWN_GPUS.get(group.type, _OTHER_GPU) if group.kind == "sim" else (0, 1.0)
    return DeviceSpec(
        kind=group.kind,
        type=group.type or group.kind,
        index=index,
        memory_bytes=values.get("memory", memory),
        slots=values.get("slots", DEFAULT_SLOTS),
        speed=values.get("speed", speed),
        price_nano_per_us=values["price"],
        options={name: value for name, value in values.items() if name not in _COMMON},
    )
