"""What a session has to pay for: the executors' own clocks in, device time and money out.

An executor tells its device time since its start, with the number of the last command that is done.  After a
loss the guest repeats what the lost device had done: that time is free until the command at which the guest said
that its replay is over, but never more than a bound by what the lost device had been paid for, so nobody computes
for free by not saying so.  Whole microseconds, whole nano-units, and neither ever shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgsf.core.pricing import cost_nano

REPLAY_SLACK = 2  # a replay may take so much longer than the first time: another device, cold caches
REPLAY_FLOOR_US = 100_000
RESUME_MOST_US = 120_000_000  # what is known of a session lost with its proxy is all of its time, not a generation's


@dataclass(slots=True)
class Meter:
    """Of one session, over all its devices."""

    device_us: int = 0  # to be paid for
    cost_nano: int = 0
    memory_bytes: int = 0  # in use now
    _price: int = 0
    _seen_us: int = 0  # of the present executor
    _repeat_us: int = 0  # what a replay may have to repeat
    _credit_us: int = 0  # of replay that is still free
    _spent_us: int = 0  # device time of this generation, paid or not
    _replay_until: int | None = None  # the last command of the replay; None: not known yet
    _replaying: bool = False

    def attached(self, price_nano_per_us: int, *, replay: bool) -> None:
        """A new generation begins on a device of this price."""
        self._price, self._seen_us, self.memory_bytes = price_nano_per_us, 0, 0
        self._replaying, self._replay_until = replay, None
        self._credit_us = max(REPLAY_FLOOR_US, self._repeat_us * REPLAY_SLACK) if replay else 0
        self._spent_us = 0

    def resumes(self, paid_us: int) -> None:
        """Before it has a device: it will repeat what another session did, which had paid for so much."""
        self._repeat_us = min(paid_us, RESUME_MOST_US)

    def moved(self, price_nano_per_us: int) -> None:
        """The same generation goes on on another device."""
        self._price, self._seen_us = price_nano_per_us, 0

    def replay_ended(self, last_command: int) -> None:
        """What comes after this command is new."""
        if self._replaying:
            self._replay_until = last_command

    def lost(self) -> None:
        """The device is gone; what it told before stands."""
        self.memory_bytes = 0
        self._repeat_us = max(self._repeat_us, self._spent_us) if self._replaying else self._spent_us

    def told(self, device_us: int, memory_bytes: int, last_command: int) -> None:
        """The executor's clock, which only grows; one that goes back is not believed."""
        self.memory_bytes = memory_bytes
        delta = device_us - self._seen_us
        if delta <= 0:
            return
        self._seen_us = device_us
        self._spent_us += delta
        if self._replaying and self._replay_until is not None and last_command > self._replay_until:
            self._replaying, self._credit_us = False, 0
        free = min(delta, self._credit_us)
        self._credit_us -= free
        self.device_us += delta - free
        self.cost_nano += cost_nano(delta - free, self._price)
