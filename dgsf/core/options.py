"""The options of a function: one table of name, type, range, default and meaning.

The decorator checks options against this table when the function is defined, the gateway checks the same
table when it is deployed, so a mistake is told once, early, and in the same words.  Values are normalised
here (sizes to bytes, one GPU type to a tuple of one); nothing else in the code base reads raw options.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dgsf.config import GIB, MIB, parse_bytes
from dgsf.core.devices import HOST
from dgsf.core.genuine import spelled_out
from dgsf.core.perfmodel import Attach, Curve
from dgsf.errors import InvalidOption, UnknownOption

ANY_GPU = "any"
AUTO = "auto"
MAX_GPU_CHOICES = 16
MAX_CURVE_POINTS = 64
RESERVED = frozenset({"packages", "env", "secrets", "volumes"})
_GPU_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """How a function wants to be run; every field has a default."""

    gpu: tuple[str, ...] = (ANY_GPU,)
    memory: int = 512 * MIB
    cpu: float = 0.0
    timeout: float = 30.0
    retries: int = 0
    attach: str = "near"
    network: bool = False
    max_workers: int = 0
    idle_seconds: float | None = None
    gpu_memory: int | None = None
    device_alias: str = ""
    profile: Curve = ()
    chosen: Attach = field(default="near", compare=False)  # by the platform, for attach="auto"; not an option

    @property
    def memory_bytes(self) -> int:
        return self.memory

    @property
    def over_fabric(self) -> bool:
        """Whether the body runs on a function host and reaches its device through a session."""
        return (self.chosen if self.attach == AUTO else self.attach) == "fabric"

    @property
    def worker_types(self) -> tuple[str, ...]:
        """The types of device server that may run the body."""
        return (HOST,) if self.over_fabric else spelled_out(self.gpu)

    @property
    def gpu_memory_bytes(self) -> int:
        """What a session of this function may hold on its device."""
        return self.memory if self.gpu_memory is None else self.gpu_memory

    @property
    def cpu_milli(self) -> int:
        return math.ceil(round(1000 * self.cpu, 6))

    @property
    def timeout_us(self) -> int:
        return round(self.timeout * 1_000_000)

    def given(self) -> dict[str, Any]:
        """The options that differ from the defaults, as JSON; `parse_options` reads it back."""
        found = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value != item.default and item.name in TABLE:
                found[item.name] = _jsonable(value)
        return found


def _jsonable(value: object) -> object:
    if isinstance(value, tuple):
        if isinstance(value[0], tuple):
            return [list(pair) for pair in value]
        return value[0] if len(value) == 1 else list(value)
    return value


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table; `read` normalises a value or raises ValueError with what was expected."""

    name: str
    expected: str
    default: str
    help: str
    read: Callable[[Any], Any]


def parse_options(given: Mapping[str, Any]) -> FunctionOptions:
    """Checked and normalised options; UnknownOption or InvalidOption says what to write instead."""
    values = {}
    for name, value in given.items():
        option = TABLE.get(name)
        if option is None:
            raise _unknown(name)
        try:
            values[name] = option.read(value)
        except ValueError as error:
            hint = str(error) or f"expected {option.expected}"
            raise InvalidOption(f"option {name}={_short(value)}: {hint}", option=name) from None
    return FunctionOptions(**values)


def refuse_without_fabric(said: Mapping[str, Any], options: FunctionOptions) -> None:
    """Options about a remote device, said of a function that has none; inherited ones do no harm."""
    for name in ("gpu_memory", "device_alias"):
        if said.get(name) and options.attach == "near":
            raise InvalidOption(
                f"option {name}={_short(said[name])}: it is about a remote device; "
                "add attach='fabric' (or 'auto'), or leave it out",
                option=name,
            )


def options_table() -> list[tuple[str, str, str, str]]:
    """(name, expected, default, meaning) of every option, for manuals and OpenAPI."""
    return [(option.name, option.expected, option.default, option.help) for option in TABLE.values()]


def _unknown(name: str) -> UnknownOption:
    if name in RESERVED:
        return UnknownOption(f"option {name!r} is reserved for a later version; leave it out", option=name)
    close = difflib.get_close_matches(str(name), TABLE, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known options: {', '.join(TABLE)}"
    return UnknownOption(f"unknown option {name!r}; {hint}", option=str(name))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- readers: a value, or ValueError; an empty message means "say what the table expects" --------
def _gpu(value: Any) -> tuple[str, ...]:
    choices = (value,) if isinstance(value, str) else value
    if not isinstance(choices, list | tuple) or not 1 <= len(choices) <= MAX_GPU_CHOICES:
        raise ValueError
    for choice in choices:
        if not isinstance(choice, str) or not _GPU_TYPE.fullmatch(choice) or choice.lower() == HOST:
            raise ValueError
    if len(set(choices)) != len(choices):
        raise ValueError("the same type is named twice")
    return tuple(choices)


def _size(low: int, high: int, *, optional: bool = False) -> Callable[[Any], int | None]:
    def read(value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        try:
            size = parse_bytes(value)
        except (ValueError, OverflowError):
            raise ValueError from None
        return int(_within(size, low, high))

    return read


def _number(low: float, high: float, *, optional: bool = False) -> Callable[[Any], float | None]:
    def read(value: Any) -> float | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError
        return float(_within(value, low, high))

    return read


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        return int(_within(value, low, high))

    return read


def _within(value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _attach(value: Any) -> str:
    if value not in ("near", "fabric", AUTO):
        raise ValueError
    return str(value)


def _curve(value: Any) -> Curve:
    if not isinstance(value, list | tuple) or len(value) > MAX_CURVE_POINTS:
        raise ValueError
    points = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError
        points.append((_amount(pair[0]), _amount(pair[1])))
    if any(left[0] >= right[0] for left, right in pairwise(points)):
        raise ValueError("its round trips must rise")
    return tuple(points)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def _alias(value: Any) -> str:
    if value not in ("", "cuda"):
        raise ValueError
    return str(value)


TABLE: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "gpu",
            f"a device type such as 'A100', a list of up to {MAX_GPU_CHOICES} different types, or 'any'",
            "'any'",
            "which device types will do, in order of preference",
            _gpu,
        ),
        Option(
            "memory",
            "a size from 1MiB to 1TiB, such as '512MiB' or '2GiB', or a number of bytes",
            "'512MiB'",
            "memory that one running instance may use",
            _size(MIB, 1024 * GIB),
        ),
        Option(
            "cpu",
            "a number of processors from 0 to 1024, such as 2 or 0.5",
            "0",
            "processors of its node that are kept for one running instance, from others that ask for some; "
            "0: it shares what there is",
            _number(0, 1024),
        ),
        Option(
            "timeout",
            "a number of seconds from 0.01 to 86400",
            "30",
            "longest run of one attempt; then it is stopped",
            _number(0.01, 86_400),
        ),
        Option(
            "retries",
            "a whole number from 0 to 10",
            "0",
            "how often a call may run again after a fault; above 0 says that running twice does no harm",
            _whole(0, 10),
        ),
        Option(
            "attach",
            "'near', 'fabric' or 'auto'",
            "'near'",
            "where the body runs; near: in a worker beside the device; "
            "fabric: on a function host without one, with a remote device that torch calls 'dgsf'; "
            "auto: as its profile says when it is deployed, near without one (dgsf.device() is right in both)",
            _attach,
        ),
        Option("network", "True or False", "False", "whether the function may open network connections", _flag),
        Option(
            "max_workers",
            "a whole number from 0 to 1000 (0: as many as the pool gives)",
            "0",
            "most instances that run at the same time",
            _whole(0, 1000),
        ),
        Option(
            "idle_seconds",
            "a number of seconds from 0.05 to 86400, or None for the platform's own",
            "None",
            "an idle instance is given back after this",
            _number(0.05, 86_400, optional=True),
        ),
        Option(
            "gpu_memory",
            "a size from 1MiB to 1TiB, or None for as much as memory=",
            "None",
            "with attach='fabric': memory on the remote device that one instance may use",
            _size(MIB, 1024 * GIB, optional=True),
        ),
        Option(
            "device_alias",
            "'' or 'cuda'",
            "''",
            "with attach='fabric': another name of the remote device, so that code written for CUDA runs unchanged",
            _alias,
        ),
        Option(
            "profile",
            f"up to {MAX_CURVE_POINTS} pairs of a round trip in µs and a slow-down, round trips rising",
            "()",
            "with attach='auto': what 'dgsf profile --save' found; read from its file if it is not given",
            _curve,
        ),
    )
}
