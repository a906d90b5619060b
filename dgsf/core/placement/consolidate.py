"""Which tasks should move so that a GPU can be given up: all tasks of one lightly used GPU go to others in use.

A pure decision over who is where; moving itself is a session's live migration.  A GPU that would be free soon anyway
is left alone, because every move costs something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dgsf.core.placement.model import WHOLE

Device = int


@dataclass(frozen=True, slots=True)
class Held:
    """A task on a device."""

    key: int
    share: int
    ends_s: float


def moves_to_empty_one(held: Mapping[Device, Sequence[Held]], now_s: float, worth_s: float) -> list[tuple[int, Device]]:
    """(task, new device) for all tasks of the emptiest device that can be given up; none if there is no such device.

    `worth_s` is how many seconds of a device a single move must save to be worth it.
    """
    loads = {device: sum(task.share for task in tasks) for device, tasks in held.items() if tasks}
    for device in sorted(loads, key=lambda each: (loads[each], each)):
        others = {each: load for each, load in loads.items() if each != device}
        room = WHOLE * len(others) - sum(others.values())
        if loads[device] > room:
            return []  # the fuller ones need even more room
        saved = max(task.ends_s for task in held[device]) - now_s
        if saved > worth_s * len(held[device]):
            moves = _fit_all(held[device], others)
            if moves:
                return moves
    return []


def _fit_all(tasks: Sequence[Held], loads: dict[Device, int]) -> list[tuple[int, Device]]:
    """Largest first, each to the fullest device that has room; nothing unless all fit."""
    moves = []
    for task in sorted(tasks, key=lambda each: (-each.share, each.key)):
        fitting = [(-load, device) for device, load in loads.items() if load + task.share <= WHOLE]
        if not fitting:
            return []
        device = min(fitting)[1]
        loads[device] += task.share
        moves.append((task.key, device))
    return moves
