"""Moves in the simulator: asks placement which running instances should move so that a device can be given up.

It prepares the question and keeps count of moves and what they cost; the engine carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping

from dgsf.core.placement import Placement
from dgsf.core.placement.consolidate import Budget, MoveRules, Running, moves_to_give_up_one
from dgsf.core.placement.pool import Pool
from dgsf.sim.instance import Instance


class Mover:
    """What may move, and what has moved."""

    def __init__(self, rules: MoveRules, idle_s: float, pool: Pool, on: Mapping[int, Mapping[Instance, None]]) -> None:
        self.rules = rules
        self._idle_s = idle_s
        self._pool = pool
        self._on = on  # device: its instances
        self._budget = Budget(rules.per_hour)
        self.moves = 0
        self.twice_s = 0.0  # device-seconds that were held twice

    def wanted(self, now: float) -> list[tuple[Instance, Placement]]:
        """The moves that give up one device, if that is worth it and moves are left; they count as made."""
        most = self._budget.left(now)
        if most < 1:
            return []
        items: list[Instance] = []
        on = {}
        for device, held in self._on.items():
            if held:
                first = len(items)
                items += held
                on[self._pool.where[device]] = [self._running(key, items[key], now) for key in range(first, len(items))]
        moves = moves_to_give_up_one(self._pool, on, now, self.rules, most)
        self._budget.spend(len(moves))
        self.moves += len(moves)
        self.twice_s += self.rules.copy_s * sum(items[move.key].share for move in moves)
        return [(items[move.key], move.to) for move in moves]

    def _running(self, key: int, item: Instance, now: float) -> Running:
        """What runs is expected to run as long again as it has, unless its duration is known; warm ones stay."""
        if item.call < 0:
            return Running(key, item.request, item.placement, item.idle_since + self._idle_s, movable=False)
        return Running(key, item.request, item.placement, item.ends_at or 2 * now - item.began)
