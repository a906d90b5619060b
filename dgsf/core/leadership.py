"""How long a leader may believe in its own lease.

The database decides who leads, by its own clock.  A leader counts from the moment before it sent its
last renewal, by its monotonic clock, and stops a fifth of the time early: whatever the network and the
scheduler did in between, it has stopped before another can start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SAFETY = 0.2


@dataclass(frozen=True, slots=True)
class Term:
    """One stretch of leadership; immutable, a renewal makes a new one."""

    epoch: int
    ttl_us: int
    sent_us: int

    @property
    def until_us(self) -> int:
        return self.sent_us + int(self.ttl_us * (1 - SAFETY))

    def holds(self, now_us: int) -> bool:
        return now_us < self.until_us

    def renewed(self, sent_us: int) -> Term:
        return replace(self, sent_us=max(sent_us, self.sent_us))
