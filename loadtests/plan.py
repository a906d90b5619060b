"""How a benchmark is to be run: handed to every measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of one run."""

    rounds: int
    seconds: float  # of one round against one contender
    folder: Path  # temporary; short, because Ray makes sockets below it
    say: Callable[[str], None]
    functions: int = 10_000
    calls: int = 1_000_000


def rotated(contenders: Sequence[T], round_number: int) -> list[T]:
    """Each round begins with another contender, so that no one always follows the same neighbour."""
    start = round_number % len(contenders)
    return [*contenders[start:], *contenders[:start]]
