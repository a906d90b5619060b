"""One call inside a proxy: its request, its life, its clock and its bill so far."""

from __future__ import annotations

from dgsf.core.invocation import Invocation
from dgsf.errors import StartDeadlineMissed
from dgsf.wire.ports import CallRequest, CallStream


class ActiveCall:
    """What the proxy knows of a call between its arrival and its answer."""

    __slots__ = (
        "arrived_us",
        "arrived_wall",
        "billed_us",
        "cancelled",
        "dead_us",
        "device_id",
        "device_name",
        "life",
        "price",
        "queue_us",
        "request",
        "session_nano",
        "stream",
        "timeout_us",
    )

    def __init__(self, request: CallRequest, stream: CallStream, now_us: int, wall: float) -> None:
        self.request = request
        self.stream = stream
        self.life = Invocation(request.attempt)
        self.arrived_us = now_us
        self.arrived_wall = wall
        self.dead_us = now_us + request.start_us
        self.timeout_us = request.timeout_us
        self.cancelled = False  # its caller is gone
        self.queue_us = 0
        self.billed_us = 0
        self.device_id: int | None = None
        self.device_name = ""
        self.price = 0
        self.session_nano = 0  # the cost of what its session used

    def late(self, now_us: int) -> bool:
        """Whether its time to start has passed; one that has started before may go on at any time."""
        return now_us > self.dead_us and self.life.attempt == 1

    def start_left_s(self, now_us: int) -> float | None:
        """What its start deadline leaves for the wait for a device; None: no deadline, it has started before."""
        return max(0, self.dead_us - now_us) / 1e6 if self.life.attempt == 1 else None

    def missed(self, now_us: int, waited_for: str) -> StartDeadlineMissed:
        self.waited(now_us)
        return StartDeadlineMissed(f"not started within {self.queue_us / 1e6:.1f} s; waited for {waited_for}")

    def waited(self, now_us: int) -> None:
        """Its wait is over, be it in vain."""
        self.queue_us = now_us - self.arrived_us

    @property
    def unwanted(self) -> bool:
        """Whether there is no use in running it: nobody waits, or its payload went with its caller."""
        return self.cancelled or self.request.payload.gone
