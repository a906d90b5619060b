"""From what a running pool knows of itself to the next live move: which session goes to which device.

It translates held slots into the question that `core.placement.consolidate` answers, the same as in simulations, and
gives the first move of the answer.  How long something will stay, a running pool can only guess: as long as it has
been there.  What cannot move is believed to stay, so a device that holds such is never emptied in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from dgsf.core.placement import DeviceView, Placement, Pool, Request
from dgsf.core.placement.consolidate import MoveRules, Running, moves_to_give_up_one


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot of a device that is held, and since when by the same program."""

    device: int
    memory_bytes: int
    age_s: float
    session: UUID | None = None  # the session that may leave it; None: whatever holds it stays where it is


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """A session and the device where it should go on."""

    session: UUID
    to: int


def next_move(devices: Sequence[DeviceView], held: Sequence[HeldSlot], rules: MoveRules, most: int) -> MoveOrder | None:
    """The first of at most `most` moves that free a device; None if that is not worth it.

    Only devices among `devices` that are healthy are left or moved to; slots of others are passed over.
    """
    # One with dummy values is another type: a session with values never goes there.
    pool = Pool.of(replace(each, type=f"{each.type} {each.kind}") for each in devices if each.healthy)
    on: dict[tuple[int, int], list[Running]] = {}
    for key, slot in enumerate(held):
        if slot.device in pool.where:
            on.setdefault(pool.where[slot.device], []).append(_running(key, slot, pool, rules))
    for move in moves_to_give_up_one(pool, on, 0.0, rules, most):
        session = held[move.key].session
        if session is not None:
            return MoveOrder(session, move.to.devices[0])
    return None


def _running(key: int, slot: HeldSlot, pool: Pool, rules: MoveRules) -> Running:
    row, column = pool.where[slot.device]
    request = Request((pool.names[int(pool.model[row])][0],), slot.memory_bytes)
    where = Placement((slot.device,), pool.nodes[row], row, (column,), int(pool.slot[row]))
    movable = slot.session is not None and slot.age_s > rules.soon_s
    stays_s = slot.age_s if movable else max(slot.age_s, rules.stays_free_s)
    return Running(key, request, where, stays_s, movable)
