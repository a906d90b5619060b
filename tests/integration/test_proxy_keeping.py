"""Keep-warm in a running proxy: real workers are given back, or started ahead of their calls, and cost nothing."""

import time
from functools import partial

import pytest
from fabric_world import ended, until, world_of

from dgsf.core import warmth as core
from dgsf.core.shadow import DEVICE, Room, Slot
from dgsf.core.warmth import Ahead, Warmth
from proxy.keeping import AHEAD_AT_ONCE, AHEAD_PAUSE_US, LOAD_S, ROOM_US
from proxy.post import name_of


def add(x, y=1):
    return x + y


def nap(seconds):
    time.sleep(seconds)


def learned(world, name, period_s, calls, last_s_ago):
    """Give the proxy a past: so many calls at this period, the last one so long ago."""
    warmth, now = Warmth(4, 1.0, 60.0), world.proxy._clock.now_us() / 1e6
    for number in reversed(range(calls)):
        warmth.look([], {name: {1}}, now - last_s_ago - number * period_s)
    world.proxy.keeping._warmth = warmth
    world.proxy.keeping._names[name] = (world.tenant_id, name.partition("/")[2])
    return warmth


async def test_a_regular_function_is_there_before_its_call_and_nobody_pays_for_that(database):
    async with world_of(database) as world:
        version = await world.deploy(add, name="regular")
        learned(world, name_of(world.tenant_id, "regular"), period_s=40, calls=10, last_s_ago=36)
        await until(lambda: version in world.proxy.lanes and world.proxy.lanes[version].links)
        assert world.proxy.keeping.counts.ahead == 1
        check = await world.ledger.check()
        assert check.charges == 0, "no call, no charge"
        assert await world.value(version, 1) == 2
        await until(lambda: world.proxy.keeping.counts.ahead_used == 1)
        assert len(world.proxy.lanes[version].links) == 1, "the call found the worker"


async def test_an_idle_worker_is_displaced_by_one_that_is_expected_much_sooner(database):
    async with world_of(database, "cpu:1:slots=2") as world:
        busy, rare = await world.deploy(nap, name="busy"), await world.deploy(add, name="rare")
        hot = await world.deploy(add, name="hot")
        await world.value(rare, 1)
        device = world.proxy.lanes[rare].links[0].post.device.id
        learned(world, name_of(world.tenant_id, "hot"), period_s=3, calls=200, last_s_ago=1)
        world.proxy.keeping._warmth._policy._slots = 2
        _, stream = world.open(busy, 8)  # the device works, its other slot holds what nobody asks for
        await until(lambda: hot in world.proxy.lanes and world.proxy.lanes[hot].links)
        assert world.proxy.lanes[hot].links[0].post.device.id == device
        assert not world.proxy.lanes[rare].links, "it made way"
        assert (world.proxy.keeping.counts.ahead, world.proxy.keeping.counts.released) == (1, 1)
        await ended(stream)


async def test_a_worker_that_got_a_call_meanwhile_is_not_displaced(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version, _ = await world.deploy(nap, name="busy"), await world.deploy(add, name="hot")
        await world.value(version, 0)
        keeping, link = world.proxy.keeping, world.proxy.lanes[version].links[0]
        keeping._learned = False  # it looks only when it is told to
        keeping._is_learned = lambda lane: True
        name = name_of(world.tenant_id, "hot")
        keeping._names[name] = (world.tenant_id, "hot")
        _, stream = world.open(version, 0.5)
        await until(lambda: link.inflight)
        keeping._start_ahead(Ahead(name, link.post.device.id, displaces=id(link)), world.proxy._clock.now_us())
        await until(lambda: not keeping._under_way)
        assert world.proxy.lanes[version].links == [link] and keeping.counts.released == 0
        await ended(stream)


@pytest.mark.parametrize("thrifty", [True, False])
async def test_a_call_takes_the_place_of_an_idle_worker_rather_than_a_device_in_no_use(database, thrifty):
    async with world_of(database, "cpu:2:slots=1") as world:
        old, new = await world.deploy(add, name="old"), await world.deploy(add, name="new")
        await world.value(old, 1)
        device = world.proxy.lanes[old].links[0].post.device.id
        world.proxy.keeping._learned = True
        warmth = learned(world, name_of(world.tenant_id, "old"), period_s=2, calls=50, last_s_ago=1)
        if thrifty:
            warmth.budget.spent = 1e9
        assert await world.value(new, 1) == 2
        chosen = world.proxy.lanes[new].links[0].post.device.id
        assert (chosen == device) is thrifty
        assert bool(world.proxy.lanes[old].links) is not thrifty


async def test_the_time_that_starts_take_is_learned(database):
    async with world_of(database) as world:
        version = await world.deploy(add, name="f")
        await world.value(version, 1)
        assert world.proxy.keeping._loads.of(name_of(world.tenant_id, "f")) != LOAD_S
        assert not world.proxy.keeping._loads.alike


async def test_the_budget_knows_the_room_that_there_is_without_what_others_hold(database):
    async with world_of(database, "cpu:2:slots=2") as world:
        version = await world.deploy(add, name="f")
        other = await world.deploy(add, name="other", idle_seconds=3600)  # a timer of its own: none of the kept ones
        await world.value(other, 1)
        await world.value(version, 1)
        keeping, type_ = world.proxy.keeping, world.proxy.lanes[version].links[0].post.device.type
        keeping._room_us = -ROOM_US
        keeping._saw_pool(await world.proxy._starter._seating.placing.look())
        assert keeping._room[type_] == Room(devices=2, parts=3 * DEVICE // 2)
        (mine,) = keeping._workers()
        assert mine.slot == Slot(type_, DEVICE // 2)


async def test_what_is_little_expected_is_given_back_when_there_is_no_budget(database, monkeypatch):
    monkeypatch.setattr(core, "SETTLED_S", 0.1)
    async with world_of(database) as world:
        learned(world, "0/nobody", period_s=40, calls=1, last_s_ago=4000).budget.spent = 1e9
        version = await world.deploy(add)
        await world.value(version, 1)
        await until(partial(_nothing_leased, world))
        await until(lambda: world.proxy.keeping.counts.released == 1)


async def _nothing_leased(world):
    return not await world.leases.list_leases()


async def test_by_default_a_worker_stays_and_a_new_version_lets_the_old_one_go(database):
    async with world_of(database, idle_seconds=0.3) as world:
        old = await world.deploy(add, name="f")
        await world.value(old, 1)
        new = await world.deploy(add, name="f")
        await world.value(new, 1)
        await until(lambda: not world.proxy.lanes[old].links)
        assert world.proxy.lanes[new].links


async def test_a_fixed_time_is_kept_to(database):
    async with world_of(database, keep_warm="fixed:0.2") as world:
        version = await world.deploy(add)
        await world.value(version, 1)
        await until(partial(_nothing_leased, world))
        assert world.proxy.keeping.counts.released == 0


async def test_nothing_is_started_ahead_while_a_call_waits_and_only_a_few_at_a_time(database):
    async with world_of(database) as world:
        version = await world.deploy(nap, name="busy", max_workers=1)
        keeping, now = world.proxy.keeping, world.proxy._clock.now_us()
        keeping._learned = False  # it looks only when it is told to
        orders = [Ahead(f"1/{number}", 7) for number in range(5)]
        keeping._names |= {order.function: (world.tenant_id, "busy") for order in orders}
        streams = [world.open(version, 0.3)[1] for _ in range(2)]
        await until(lambda: version in world.proxy.lanes and world.proxy.lanes[version].running)
        assert world.proxy.lanes[version].queue
        keeping._start_ahead(orders[0], now)
        assert not keeping._under_way
        for stream in streams:
            await ended(stream)
        for order in orders[:2]:
            keeping._start_ahead(order, now)
        assert len(keeping._under_way) == 1
        for number, order in enumerate(orders[1:], 1):
            keeping._start_ahead(order, now + number * AHEAD_PAUSE_US)
        assert len(keeping._under_way) == AHEAD_AT_ONCE
        keeping._start_ahead(Ahead(orders[0].function, None), now)
        assert len(keeping._put_off) == 1, "a regular one is tried again"
        await until(lambda: not keeping._under_way)
        assert keeping.counts.ahead == 0, "it has all the workers that it may have"


@pytest.mark.parametrize("trouble", ["full", "broken", "gone"])
async def test_starting_ahead_takes_only_what_is_free_and_fails_quietly(database, trouble):
    async with world_of(database, f"cpu:1:slots={1 if trouble == 'full' else 2}") as world:
        other, version = await world.deploy(add, name="other"), await world.deploy(add, name="wanted")
        await world.value(other, 1)
        name = name_of(world.tenant_id, "wanted")
        world.proxy.keeping._names[name] = (world.tenant_id, "wanted")
        if trouble == "broken":
            metadata = {"signature": [], "options": {}, "python": "3.11"}
            await world.registry.deploy(world.tenant_id, "wanted", b"d" * 32, metadata, b"not a bundle")
        if trouble == "gone":
            world.proxy.keeping._names[name] = (world.tenant_id, "no such function")
        keeping, order = world.proxy.keeping, Ahead(name, None)
        keeping._start_ahead(order, world.proxy._clock.now_us())
        assert order in keeping._under_way
        await until(lambda: not keeping._under_way)
        assert keeping.counts.ahead == 0 and world.proxy.lanes[other].links, "who has the slot keeps it"
        assert (name in keeping._sulking) == (trouble != "full")
        if trouble == "full":
            assert await world.value(version, 1) == 2, "a call does get it"


async def test_a_proxy_without_calls_hardly_ticks_and_is_awake_for_the_next_one(database):
    async with world_of(database) as world:
        version = await world.deploy(add)
        await world.value(version, 1)
        ticks, tick = [], world.proxy.room.tick
        world.proxy.room.tick = lambda now_us: (ticks.append(now_us), tick(now_us))
        await until(lambda: len(ticks) >= 5)  # the first may still be those of the call
        assert ticks[4] - ticks[2] > 500_000, "twice in a second, as keep-warm looks"
        assert world.proxy.lanes[version].links
        seen = len(ticks)
        assert await world.value(version, 2) == 3
        await until(lambda: len(ticks) > seen)
