"""What a simulated device has: memory, speed and price of its type, from one table of rough, stated figures.

A type that is not in the table has to bring its own (`B200=192/10/6.50`); only types that a file names are taken as
a T4, and whoever runs that is told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dgsf.errors import UsageError

MOST = 1e6  # GiB, times a T4, or money per hour
EXAMPLE = "B200=192/10/6.50:8"
FORM = "TYPE=GiB/SPEED/PRICE:DEVICES"
_FIGURES = ("GiB", "SPEED", "PRICE")
_FREE = "PRICE"  # may be 0
_DECIMAL = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")


@dataclass(frozen=True, slots=True)
class DeviceType:
    """What a device of this type has: memory, speed beside a T4, price of an hour."""

    memory_mib: int
    speed: float
    price_per_h: float

    def __str__(self) -> str:
        return f"{self.memory_mib / 1024:g} GiB, speed {self.speed:g}, {self.price_per_h:g} per hour"


TYPES = {
    "T4": DeviceType(16 * 1024, 1.0, 0.35),
    "K80": DeviceType(12 * 1024, 0.35, 0.25),
    "P100": DeviceType(16 * 1024, 1.2, 0.75),
    "V100M16": DeviceType(16 * 1024, 2.0, 1.50),
    "V100M32": DeviceType(32 * 1024, 2.0, 1.80),
    "V100": DeviceType(32 * 1024, 2.0, 1.80),
    "A10": DeviceType(24 * 1024, 1.8, 0.90),
    "A100": DeviceType(80 * 1024, 4.0, 2.80),
    "H100": DeviceType(80 * 1024, 8.0, 5.50),
}
STAND_IN = "T4"  # for types of a file


def known(type_: str) -> bool:
    return type_.upper() in TYPES


def of_figures(type_: str, words: str) -> DeviceType:
    """A type's own figures, such as '192/10/6.50'."""
    figures = [_figure(word) for word in words.split("/")]
    if wrong := _wrong_figure(words.split("/"), figures):
        raise UsageError(
            f"--pool: {type_[:40]}={words[:40]}: {wrong}; write {FORM}: memory in GiB / speed beside a T4 / price per "
            f"hour, as in {EXAMPLE}"
        )
    memory_gib, speed, price = figures
    return DeviceType(max(1, round(memory_gib * 1024)), speed, price)


def _figure(word: str) -> float:
    """A plain decimal number; NaN if it is none."""
    return float(word) if _DECIMAL.fullmatch(word) else math.nan


def _wrong_figure(words: Sequence[str], figures: Sequence[float]) -> str:
    """Which figure of a type is wrong; empty: none is."""
    if len(words) != len(_FIGURES):
        return f"{len(words)} of {len(_FIGURES)} figures" if len(words) < len(_FIGURES) else "too many figures"
    for name, word, figure in zip(_FIGURES, words, figures, strict=True):
        if not (figure > 0 or (figure == 0 and name == _FREE)) or figure > MOST:
            least = "from 0" if name == _FREE else "above 0 and"
            return f"the {name} {word[:20]!r} is no number {least} up to {MOST:,.0f}"
    return ""


def unknown(type_: str) -> UsageError:
    """What to tell whoever named a type without figures."""
    return UsageError(
        f"--pool: of device type {type_[:40]!r} no figures are known; known are {', '.join(sorted(TYPES))}. Give "
        f"others their memory in GiB, speed beside a T4 and price per hour, as in {EXAMPLE}"
    )
