"""The outcome of a call: its value, and what it took to get it, as the answer's headers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """A result with its price: times in microseconds, cost in nano-units."""

    value: R
    call_id: str = ""
    device: str = ""
    queue_us: int = 0
    device_us: int = 0
    cost_nano: int = 0


def outcome_of(value: R, headers: Mapping[str, str]) -> Outcome[R]:
    """The outcome that these answer headers (names in lower case) describe."""
    return Outcome(
        value,
        call_id=headers.get("x-call-id", ""),
        device=headers.get("x-device", ""),
        queue_us=_number(headers.get("x-queue-us")),
        device_us=_number(headers.get("x-device-us")),
        cost_nano=_number(headers.get("x-cost-nano")),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
