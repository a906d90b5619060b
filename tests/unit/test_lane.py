"""The queue of a lane: who is next, and who is not started any more."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from dgsf.clock import ManualClock
from dgsf.store.catalogue import Function
from dgsf.store.rows import FunctionVersion
from dgsf.wire.messages import Codec, Failure, RunEnd
from dgsf.wire.ports import CallRequest, CallStream, Payload
from proxy.call import ActiveCall
from proxy.lane import Lane

SECOND = 1_000_000


class Host:
    """A pool without room; notes which calls end without having run."""

    def __init__(self):
        self.over = []

    def start_worker(self, lane):
        """There is none."""

    def call_over(self, lane, call, payload, failure):
        self.over.append((call.request.id.int, failure.code))
        self.told = failure.message


@pytest.fixture
def world():
    return World()


class World:
    def __init__(self):
        self.clock, self.host = ManualClock(), Host()
        version = FunctionVersion(1, 1, 1, "f", 1, b"", {}, None)
        self.lane = Lane(self.host, Function.of(version), self.clock, 64)

    def submit(self, number, start_s, priority=0, attempt=1):
        request = CallRequest(
            UUID(int=number), 1, 1, Payload.of(Codec.json, b""), Codec.json, start_s * SECOND, 0, priority, attempt
        )
        stream = CallStream(lambda: None)
        self.lane.submit(ActiveCall(request, stream, self.clock.now_us(), 0.0))
        self.clock.advance(1)

    @property
    def waiting(self):
        return [call.request.id.int for call in self.lane.queue]


def test_the_next_call_is_the_most_important_one_that_must_start_first(world):
    for number, start_s, priority in ((1, 30, 0), (2, 30, 0), (3, 5, 0), (4, 60, 1), (5, 5, -1), (6, 30, 0)):
        world.submit(number, start_s, priority)
    assert world.waiting == [4, 3, 1, 2, 6, 5]
    assert world.lane.deadline_s(world.clock.now_us()) == pytest.approx(60 + 30, abs=0.1), "what a new worker is for"


def test_no_stream_of_urgent_calls_keeps_a_patient_one_from_its_turn(world):
    world.submit(0, 30)
    world.clock.advance(20 * SECOND)
    world.submit(1, 5)
    world.clock.advance(6 * SECOND)
    world.submit(2, 5)  # must start later than the patient one, which has waited for long
    assert [call for call in world.waiting if call != 1] == [0, 2]


def test_a_call_is_not_started_after_its_deadline_though_a_worker_may_come_just_then(world):
    world.submit(1, 5)
    world.submit(2, 30)
    world.submit(3, 5, attempt=2)  # it has run before: only its first start was to be in time
    world.clock.advance(6 * SECOND)
    world.lane.pump()
    assert world.host.over == [(1, "start_deadline_missed")]
    assert world.waiting == [3, 2]


@pytest.mark.parametrize(
    ("lack", "starting", "told"),
    [
        ("all 2 slots of device (any) are taken", 0, "waited for a worker: all 2 slots of device (any) are taken"),
        ("", 1, "waited for a worker that is being started"),
        ("", 0, "waited for its turn: 1 call waited for 0 busy workers"),
    ],
)
def test_a_missed_start_deadline_says_what_was_waited_for(world, lack, starting, told):
    world.submit(1, 5)
    world.lane.lack, world.lane.starting = lack, starting
    world.clock.advance(6 * SECOND)
    world.lane.pump()
    assert told in world.host.told


def test_a_call_that_was_not_started_has_waited_all_the_time(world):
    call = ActiveCall(
        CallRequest(UUID(int=1), 1, 1, Payload.of(Codec.json, b""), Codec.json, 8 * SECOND), CallStream(lambda: None),
        world.clock.now_us(), 0.0,
    )  # fmt: skip
    world.lane.submit(call)
    world.clock.advance(9 * SECOND)
    world.lane.pump()
    assert world.host.over == [(1, "start_deadline_missed")]
    assert call.queue_us == 9 * SECOND


def test_who_is_refused_is_told_to_come_when_there_should_be_room(world):
    for number in range(100):
        world.submit(number, 30)
    assert world.lane.retry_after_s == 1, "how long a call takes is not known yet"
    world.lane._run_time.saw(SECOND // 5)
    assert world.lane.retry_after_s == pytest.approx(20)
    world.lane._run_time.saw(10 * SECOND)
    assert world.lane.retry_after_s == 60


def test_a_new_worker_is_wanted_with_the_run_time_and_the_type_where_it_was_seen(world):
    ended = SimpleNamespace(request=SimpleNamespace(id=UUID(int=1)))
    failed = Failure("function_error", "whatever comes of it, it took its time")
    for type_, run_us in (("slow", 2 * SECOND), ("fast", SECOND), ("slow", 2 * SECOND)):
        post = SimpleNamespace(device=SimpleNamespace(type=type_))
        link = SimpleNamespace(post=post, session=None, bill=lambda call, device_us: None)
        world.lane.calls_ended(link, [(ended, RunEnd(run_us, failure=failed), None, run_us)])
    assert world.lane.run_times.latest == (2.0, "slow")
