"""What a session has to pay for: the executors' own clocks in, device time and money out.

An executor tells its device time since its start, with the number of the last command that is done.  After a loss
that was not the guest's doing, it repeats what the lost device had done: that time is free until the command at which
the guest said that its replay is over, but never more than a bound by what was *paid* since the last checkpoint, so
nobody computes for free by not saying so.  Free time earns no free time, and who loses a device by its own doing pays
for the replay.  Whole microseconds, whole nano-units, and neither ever shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgsf.core.pricing import cost_nano

REPLAY_SLACK = 2  # a replay may take so much longer than the first time: another device, cold caches
REPLAY_FLOOR_US = 100_000  # and at least so long: a checkpoint has to be restored
RESUME_MOST_US = 120_000_000  # what is known of a session lost with its proxy is all of its time, not a generation's


def replay_credit_us(paid_us: int) -> int:
    """How long a replay of work that was paid so much for may take for nothing."""
    return max(REPLAY_FLOOR_US, paid_us * REPLAY_SLACK)


@dataclass(slots=True)
class Meter:
    """Of one session, over all its devices."""

    device_us: int = 0  # to be paid for
    cost_nano: int = 0
    memory_bytes: int = 0  # in use now
    replaying: bool = False  # nothing new was done since the last loss
    _price: int = 0
    _seen_us: int = 0  # of the present executor
    _covered_us: int = 0  # the present executor's clock at the last checkpoint that the guest has of it
    _repeat_us: int = 0  # paid, and to be repeated if the device is lost
    _credit_us: int = 0  # of replay that is still free
    _replay_until: int | None = None  # the last command of the replay; None: not known yet
    _by_guest: bool = False  # the last loss was its own doing

    def attached(self, price_nano_per_us: int, *, replay: bool) -> None:
        """A new generation begins on a device of this price."""
        self._price, self._seen_us, self._covered_us, self.memory_bytes = price_nano_per_us, 0, 0, 0
        self.replaying, self._replay_until = replay, None
        if not replay:
            self._credit_us = 0
        elif not self._by_guest:  # else what is left of an earlier replay stays free: the platform owes that
            self._credit_us = replay_credit_us(self._repeat_us)

    def resumes(self, paid_us: int) -> None:
        """Before it has a device: it will repeat what another session did, which had paid for so much."""
        self._repeat_us = min(paid_us, RESUME_MOST_US)

    def moved(self, price_nano_per_us: int) -> None:
        """The same generation goes on on another device."""
        self._price, self._seen_us, self._covered_us = price_nano_per_us, 0, 0

    def replay_ended(self, last_command: int) -> None:
        """What comes after this command is new."""
        if self.replaying:
            self._replay_until = last_command

    def lost(self, *, by_guest: bool) -> None:
        """The device is gone; what it told before stands."""
        self.memory_bytes, self._by_guest = 0, by_guest

    def told(self, device_us: int, memory_bytes: int, last_command: int, covered_us: int = 0) -> None:
        """The executor's clock, which only grows, and what it showed at the last checkpoint that was sent in whole.

        A clock that goes back is not believed.
        """
        self.memory_bytes = memory_bytes
        if device_us > self._seen_us:
            self._worked(device_us - self._seen_us, last_command)
            self._seen_us = device_us
        if self._covered_us < covered_us <= self._seen_us:
            self._covered_us = covered_us
            self._repeat_us = min(self._repeat_us, self._seen_us - covered_us)

    def _worked(self, delta_us: int, last_command: int) -> None:
        if self.replaying and self._replay_until is not None and last_command > self._replay_until:
            self.replaying, self._credit_us = False, 0
        free = min(delta_us, self._credit_us)
        self._credit_us -= free
        if not self.replaying:  # else it is in it already
            self._repeat_us += delta_us - free
        self.device_us += delta_us - free
        self.cost_nano += cost_nano(delta_us - free, self._price)
