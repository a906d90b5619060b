"""How long the proxy's tick may rest: not at all while anything is under way, else until a worker was idle for long."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from dgsf.clock import ManualClock
from dgsf.store.catalogue import Function
from dgsf.store.rows import DeviceRow, FunctionVersion, LeaseGrant
from dgsf.wire.messages import Codec
from dgsf.wire.ports import CallRequest, CallStream, Payload
from dgsf.wire.shared import SharedArea
from proxy.call import ActiveCall
from proxy.lane import Lane
from proxy.post import Post
from proxy.resting import LONGEST_US, rest_us
from proxy.worker_link import Limits, WorkerLink

SECOND = 1_000_000


class World:
    """One lane of a pool without room."""

    def __init__(self):
        self.clock = ManualClock()
        self.idle_us = 60 * SECOND
        self.area = SharedArea("never made")
        self.lane = Lane(self, Function.of(FunctionVersion(1, 1, 1, "f", 1, b"", {}, None)), self.clock, 64)

    def start_worker(self, lane):
        """There is none."""

    def may_dispatch(self, link, now_us):
        return False

    def call(self):
        request = CallRequest(UUID(int=1), 1, 1, Payload.of(Codec.json, b""), Codec.json, 30 * SECOND, 0, 0, 1)
        return ActiveCall(request, CallStream(lambda: None), self.clock.now_us(), 0.0)

    def worker(self):
        where = ("vm/cpu0", "vm", "cpu", "cpu", 1, 1, 1.0, 1, "healthy", 1, "h", None, None, None, {})
        post = Post(DeviceRow(7, *where, datetime.now(UTC)), LeaseGrant(7, 0, 1, 1), 1, 1, "", True)
        link = WorkerLink(post, self.lane, self.clock, self.area, Limits(1, 1))
        self.lane.worker_ready(link)
        return link

    def rest(self, draining=frozenset()):
        return rest_us([self.lane], draining, lambda lane, link: link.idle_since_us + self.idle_us, self.clock.now_us())


@pytest.fixture
async def world():
    return World()


async def test_an_empty_proxy_rests_as_long_as_it_may(world):
    assert rest_us([], frozenset(), lambda lane, link: 0, 5) == world.rest() == LONGEST_US


async def test_nothing_rests_while_a_call_waits_or_a_worker_is_started_or_wanted(world):
    world.lane.submit(world.call())
    assert world.rest() == 0
    world.lane.queue.clear()
    assert world.lane.starting and world.rest() == 0
    world.lane.starting = 0
    assert world.rest() == LONGEST_US
    world.lane.starved = True
    assert world.rest() == 0


async def test_nothing_rests_while_a_call_runs_or_a_worker_is_to_leave_its_device(world):
    link = world.worker()
    assert world.rest() == LONGEST_US
    assert world.rest(draining={7}) == 0
    link.inflight.append((1, world.call()))
    assert world.rest() == 0


async def test_an_idle_worker_is_not_kept_for_longer_than_it_may(world):
    world.worker()
    world.idle_us = 100_000
    world.clock.advance(30_000)
    assert world.rest() == 70_000
    world.clock.advance(SECOND)
    assert world.rest() == 0
