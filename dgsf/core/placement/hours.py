"""GPU hours: what it costs to put a task of known duration on a device that is paid for while it holds any task.

The cost is the time by which the device stays in use longer, plus small terms that were tuned on reshuffled copies of
a trace: room left over, room left over for long, opening an idle device, and a short task on a device that stays in
use much longer.  Costs are in seconds of one device.  What a task takes from others beside the device's time is
counted in the same seconds: processors that its neighbours lack, and room of a type that many ask for.
"""

from __future__ import annotations

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pool import Bools, Floats, Ints

ROOM_LEFT = 87.0  # per device left free
ROOM_LEFT_LONG = 0.24  # per device left free and second of the task
OPENING = 147.0
MISMATCH = 0.1  # per geometric mean of the task's duration and how much longer the device is in use
STRANDED = 2.0  # as where durations are not known,
TOGETHER = 0.4  # and this,
WHOLE_AGAIN = 16.0  # and this
SOUGHT = 10.0  # times what its room is worth: on drawn slots of two types, waits are a third and hours the same


def hours_cost(until: Floats, rest: Ints, idle: Bools, now: float, duration: float) -> Floats:
    """The cost of a task of this duration, started now, on devices in use until then, that it leaves so much of."""
    left = np.maximum(until - now, 0.0)  # what is overdue ends now, as far as anybody knows
    cost: Floats = np.where(idle, duration + OPENING, np.maximum(duration - left, 0.0))
    cost += _worth_of_room(duration) / WHOLE * rest
    cost += MISMATCH * np.sqrt(np.maximum(left - duration, 0.0) * duration)
    return cost


def stranded_cost(stranded: Floats, duration: float) -> Floats:
    """The cost of so many thousandths left without processors: nobody can use them while the task holds those."""
    cost: Floats = STRANDED * (ROOM_LEFT + duration) / WHOLE * stranded
    return cost


def together_cost(lost: Floats, duration: float) -> Floats:
    """The cost of so many thousandths that nobody can have together while the task is there."""
    cost: Floats = TOGETHER * (ROOM_LEFT + duration) / WHOLE * lost
    return cost


def whole_again_cost(later: Floats, duration: float) -> Floats:
    """The cost of so many thousandths that are together later by as many durations of the task."""
    cost: Floats = WHOLE_AGAIN * (ROOM_LEFT + duration) / WHOLE * later
    return cost


def sought_cost(share: Ints, sought: Floats, duration: float) -> Floats:
    """The cost of taking this share where it could have served so large a part of all requests."""
    cost: Floats = SOUGHT * _worth_of_room(duration) / WHOLE * share * sought
    return cost


def _worth_of_room(duration: float) -> float:
    """What a whole device's room is worth while a task of this duration is there."""
    return ROOM_LEFT + ROOM_LEFT_LONG * duration
