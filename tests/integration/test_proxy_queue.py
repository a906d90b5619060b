"""How calls wait for a worker of the proxy: cancelled, late, too many, and in which order."""

import time

import pytest
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


@pytest.mark.parametrize(
    ("calls", "order"),
    [
        ({"a": {}, "b": {}, "c": {"priority": 5}, "d": {"priority": -3}, "e": {"priority": 5}}, "ceabd"),
        (
            {"a": {"start_s": 600}, "b": {"start_s": 600}, "c": {"start_s": 300}, "d": {"start_s": 900, "priority": 1},
             "e": {"start_s": 400}},
            "dceab",
        ),
    ],
    ids=["of one deadline by arrival", "of one priority by who must start first"],
)  # fmt: skip
async def test_waiting_calls_go_by_priority_then_by_start_deadline_then_by_arrival(database, calls, order):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(nap)
        await world.value(version, 0.01)
        running, found = world.open(version, 0.5)[1], []
        for name, how in calls.items():
            world.open(version, 0.01, **how)[1].when_ended(lambda _, name=name: found.append(name))
        assert (await ended(running)).state == "succeeded"
        await until(lambda: len(found) == len(calls))
        assert "".join(found) == order
