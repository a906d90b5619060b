"""Does what learned keep-warm says: gives idle instances up and starts others ahead of their calls.

The rule is asked through `dgsf.sim.warming`; looks are events of the agenda.  An instance is given up only if it is
still idle and no call of its function waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgsf.core.placement import Placement, Request
from dgsf.errors import UsageError
from dgsf.sim.agenda import LOOK, Agenda
from dgsf.sim.fleet import Fleet
from dgsf.sim.instance import Instance
from dgsf.sim.warming import LOOK_S, SETTLED_S, Start, Warming

MOST_LOOKS = 10_000_000  # some two months of them without a pause: an hour, if little is there


class Keeping:
    """Learned keep-warm at work in one run."""

    def __init__(self, warming: Warming, fleet: Fleet, agenda: Agenda, queues: Sequence[Sequence[int]]) -> None:
        """`queues`: the waiting calls of each function."""
        self.warming = warming
        self.ahead = 0  # instances started ahead
        self._looks = 0
        self._fleet = fleet
        self._agenda = agenda
        self._queues = queues
        fleet.stay_s = warming.longest_s
        fleet.idling.wanted = warming.wanted
        fleet.instead_of_opening = self.instead_of_opening
        agenda.add(LOOK_S, LOOK, 0)

    def look(self, now: float, *, waits: bool) -> Start | None:
        """Gives up what the rule says; the answer is what to start ahead, after those that wait for room."""
        gone, ahead = self.warming.look(self._fleet.idling.everything, now, waits=waits)
        for item in gone:
            if self._may_go(item):
                self._fleet.close(item, now)
        return ahead

    def start_ahead(self, start: Start, now: float) -> None:
        """Where there is room, or in place of one that is still idle; loaded ones of its function are used first."""
        function, device, displaced = start
        if displaced is not None:
            if not self._may_go(displaced):
                return
            self._fleet.close(displaced, now)
        self.ahead += self._fleet.open_ahead(function, device, now) is not None

    def look_again(self, now: float, next_arrival: float) -> None:
        """The next look becomes an event."""
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise UsageError(
                f"--keep-warm learned: it was asked {MOST_LOOKS:,} times, and the calls have come to no end after "
                f"{now:,.0f} simulated seconds (take fewer --calls, a lower --run-s, or --keep-warm fixed:60)"
            )
        events = self._agenda.events
        next_event = min(next_arrival, events[0][0]) if events else next_arrival
        self._agenda.add(now + self.warming.next_look_s(now, next_event), LOOK, 0)

    def instead_of_opening(self, function: int, request: Request, opened: Placement, now: float) -> Instance | None:
        """The idle instance whose place a call's new one takes rather than that of a device in no use, if any should.

        As in production one goes, whose place alone is enough, on a device of which as much is thought.  Slices of
        tenants are not considered: what one task frees of its slice is not what another may take.
        """
        machine = self._fleet.machine
        if machine.makes_slices or len(opened.devices) != 1:
            return None
        settled = now - (SETTLED_S if self.warming.has_some(function) else 0.0)
        would_do = machine.without(request, opened)
        idle = self._fleet.idling.unused
        able = [item for item in idle if item.idle_since <= settled and self._may_go(item) and would_do(item)]
        return self.warming.victim(self._fleet.idling.everything, able, now) if able else None

    def _may_go(self, item: Instance) -> bool:
        return item in self._fleet.idling.unused and not self._queues[item.function]
