"""Devices that fail and are repaired: when, how often, and what becomes of the calls under which one failed.

Times are drawn from the run's seed.  It sets the health of devices; what was on them is the engine's to end.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from dgsf.sim.agenda import FAIL, REPAIR, Agenda
from dgsf.sim.machine import Machine
from dgsf.sim.rules import Rules

MOST_ATTEMPTS = 10  # of one call on devices that fail under it; then it is lost
_PATIENCE = 100  # repairs of each device without a start, after which the calls that still wait are given up


class Failures:
    """Which devices are down, and what failures have cost."""

    def __init__(self, rules: Rules, machine: Machine, agenda: Agenda) -> None:
        self.down = self.retried = self.lost = 0
        self.lost_s = 0.0  # device-seconds of calls on devices that failed under them
        self.vain = 0  # repairs since a call started last
        self._rules = rules
        self._machine = machine
        self._agenda = agenda
        self._random = Random(rules.seed + 1)  # noqa: S311  # a simulation
        self._attempts: Counter[int] = Counter()  # call: how often a device failed under it
        if rules.mtbf_h:
            for device in range(machine.devices):
                self._fails_later(device, 0.0)

    def failed(self, device: int, now: float) -> None:
        """From now on, until it is repaired."""
        self.down += 1
        self._machine.set_health(device, False, now)

    def repair_later(self, device: int, now: float) -> None:
        self._agenda.add(now + self._random.expovariate(1 / self._rules.mttr_s), REPAIR, device)

    def repaired(self, device: int, now: float) -> None:
        self.down -= 1
        self.vain += 1
        self._machine.set_health(device, True, now)
        self._fails_later(device, now)

    def may_help(self) -> bool:
        """Whether a repair may still give a place to who waits."""
        return self.down > 0 and self.vain < _PATIENCE * self._machine.devices

    def try_again(self, call: int) -> bool:
        """Whether a call under which a device failed is tried again: unless it has been tried often enough."""
        self._attempts[call] += 1
        again = self._attempts[call] < MOST_ATTEMPTS
        self.retried += again
        self.lost += not again
        return again

    def _fails_later(self, device: int, now: float) -> None:
        self._agenda.add(now + self._random.expovariate(1 / (self._rules.mtbf_h * 3600)), FAIL, device)
