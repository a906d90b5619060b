"""How calls wait for a worker of the proxy: cancelled, late, too many, and in which order."""

import time

from fabric_world import ended, until, world_of


def nap(seconds):
    time.sleep(seconds)
    return "slept"


async def test_a_call_cancelled_in_the_queue_never_runs_and_costs_nothing(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(nap)
        await world.value(version, 0.01)
        _, running = world.open(version, 0.3)
        request, waiting = world.open(version, 60)
        waiting.cancel()
        result = await ended(waiting)
        assert (result.state, result.cost_nano) == ("cancelled", 0)
        assert not (await world.calls.get(request.id)).charged
        assert (await ended(running)).state == "succeeded"


async def test_a_call_that_cannot_start_in_time_is_aborted_unbilled(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(nap)
        await world.value(version, 0.01)
        _, running = world.open(version, 60)
        request, late = world.open(version, 0, start_s=0.1)
        result = await ended(late)
        assert (result.state, result.failure.code) == ("aborted", "start_deadline_missed")
        assert not (await world.calls.get(request.id)).charged
        running.cancel()
        assert (await ended(running)).state == "cancelled"


async def test_a_full_queue_refuses_at_once_with_a_time_to_wait(database):
    async with world_of(database, "cpu:1:slots=1", queue_limit=3) as world:
        version = await world.deploy(nap)
        await world.value(version, 0.01)
        streams = [world.open(version, 0.2)[1] for _ in range(10)]
        results = [await ended(stream) for stream in streams]
        refused = [result for result in results if result.failure]
        assert {result.failure.code for result in refused} == {"queue_full"}
        assert refused[0].failure.details["retry_after"] == 1
        assert len(refused) == 6


async def test_waiting_calls_go_by_priority_then_by_arrival(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(nap)
        await world.value(version, 0.01)
        running = world.open(version, 0.5)[1]
        order = []
        for name, priority in (("a", 0), ("b", 0), ("c", 5), ("d", -3), ("e", 5)):
            world.open(version, 0.01, priority=priority)[1].when_ended(lambda _, name=name: order.append(name))
        assert (await ended(running)).state == "succeeded"
        await until(lambda: len(order) == 5)
        assert "".join(order) == "ceabd"


async def test_calls_of_one_priority_go_by_who_must_start_first(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(nap)
        await world.value(version, 0.01)
        running = world.open(version, 0.5)[1]
        order = []
        for name, start_s, priority in (("a", 600, 0), ("b", 600, 0), ("c", 300, 0), ("d", 900, 1), ("e", 400, 0)):
            stream = world.open(version, 0.01, start_s=start_s, priority=priority)[1]
            stream.when_ended(lambda _, name=name: order.append(name))
        assert (await ended(running)).state == "succeeded"
        await until(lambda: len(order) == 5)
        assert "".join(order) == "dceab"
