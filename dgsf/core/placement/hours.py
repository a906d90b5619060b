"""GPU hours: what it costs to put a task of known duration on a device that is paid for while it holds any task.

The cost is the time by which the device stays in use longer, plus small terms that were tuned on reshuffled copies of
a trace: room left over, room left over for long, opening an idle device, and a short task on a device that stays in
use much longer.  Costs are in seconds of one device.  What opening and room cost whoever comes next is a part of how
long tasks typically take, so tasks of seconds and of hours are placed alike.  What a task takes from others beside the
device's time is counted in the same seconds: processors that its neighbours lack, and room of a type that many ask for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pool import Bools, Floats, Ints

ROOM_LEFT = 0.072  # typical durations per device left free
ROOM_LEFT_LONG = 0.24  # per device left free and second of the task
OPENING = 0.122  # typical durations
REMEMBERED = 500  # tasks, of which the typical duration is the mean
MISMATCH = 0.1  # per geometric mean of the task's duration and how much longer the device is in use
STRANDED = 2.0  # as where durations are not known,
TOGETHER = 0.4  # and this,
WHOLE_AGAIN = 16.0  # and this
SOUGHT = 10.0  # times what its room is worth: on drawn slots of two types, waits are a third and hours the same


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long a task takes, and how long tasks typically do, in seconds."""

    task_s: float
    typical_s: float

    @property
    def opening_s(self) -> float:
        return OPENING * self.typical_s

    @property
    def room_s(self) -> float:
        """What a whole device's room is worth to others while the task is there."""
        return ROOM_LEFT * self.typical_s + ROOM_LEFT_LONG * self.task_s

    @property
    def withheld_s(self) -> float:
        """What it costs others that a whole device cannot be used while the task is there."""
        return ROOM_LEFT * self.typical_s + self.task_s


class Typical:
    """The mean duration of tasks that were asked for: of all of them, later of about the last ones."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._count = 0

    def saw(self, seconds: float) -> None:
        self._count = min(self._count + 1, REMEMBERED)
        self.seconds += (seconds - self.seconds) / self._count


def hours_cost(until: Floats, rest: Ints, idle: Bools, now: float, lasting: Lasting) -> Floats:
    """The cost of such a task, started now, on devices in use until then, that it leaves so much of."""
    duration = lasting.task_s
    left = np.maximum(until - now, 0.0)  # what is overdue ends now, as far as anybody knows
    cost: Floats = np.where(idle, duration + lasting.opening_s, np.maximum(duration - left, 0.0))
    cost += lasting.room_s / WHOLE * rest
    cost += MISMATCH * np.sqrt(np.maximum(left - duration, 0.0) * duration)
    return cost


def stranded_cost(stranded: Floats, lasting: Lasting) -> Floats:
    """The cost of so many thousandths left without processors: nobody can use them while the task holds those."""
    cost: Floats = STRANDED * lasting.withheld_s / WHOLE * stranded
    return cost


def together_cost(lost: Floats, lasting: Lasting) -> Floats:
    """The cost of so many thousandths that nobody can have together while the task is there."""
    cost: Floats = TOGETHER * lasting.withheld_s / WHOLE * lost
    return cost


def whole_again_cost(later: Floats, lasting: Lasting) -> Floats:
    """The cost of so many thousandths that are together later by as many durations of the task."""
    cost: Floats = WHOLE_AGAIN * lasting.withheld_s / WHOLE * later
    return cost


def sought_cost(share: Ints, sought: Floats, lasting: Lasting) -> Floats:
    """The cost of taking this share where it could have served so large a part of all requests."""
    cost: Floats = SOUGHT * lasting.room_s / WHOLE * share * sought
    return cost
