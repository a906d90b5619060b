"""One running or warm instance of a function in the simulator: plain slots, next to no behaviour."""

from __future__ import annotations

from dgsf.core.placement import Placement, Request


class Instance:
    """Where it is, what it runs, and since when."""

    __slots__ = (
        "began", "call", "charged", "dead", "devices", "ends_at", "expiring", "function", "idle_since", "loaded",
        "placement", "ready_at", "request", "rested", "row", "share", "slow", "speed", "updated", "version", "work",
    )  # fmt: skip

    def __init__(self, function: int, request: Request, placement: Placement, speed: float, ends_at: float) -> None:
        self.function = function
        self.request = request
        self.settle(placement)
        self.share = (request.share or 1000) / 1000 * len(placement.devices)  # devices that its calls use
        self.ends_at = ends_at  # when it is expected to end; 0: not known
        self.speed = speed
        self.call = -1  # the call that it runs; -1: idle
        self.charged = 0.0  # device time that its tenant was charged when the call began
        self.began = 0.0
        self.loaded = 0.0  # seconds of the call that went by before it ran
        self.work = 0.0  # seconds left at full speed
        self.updated = 0.0  # when `work` was true
        self.slow = 1.0
        self.version = 0  # of its end event; older ones are ignored
        self.idle_since = 0.0
        self.rested = 0  # the number of its last rest: who has the least was used longest ago
        self.ready_at = 0.0  # when it is loaded, if it was started ahead
        self.expiring = False  # an expiry event is in the heap
        self.dead = False

    def settle(self, placement: Placement) -> None:
        """It is here now."""
        self.placement = placement
        self.devices = placement.devices
        self.row = placement.row
