"""Devices, leases, proxies and leadership under concurrency and over restarts."""

from __future__ import annotations

import asyncio

import pytest
from store_world import World, make_world

from dgsf.store.devices import DeviceStore
from dgsf.store.leader import Leadership
from dgsf.store.leases import LeaseStore
from dgsf.store.proxies import ProxyStore
from dgsf.store.registry import Registry

LONG = 600.0
GONE = -1.0  # a time to live that has passed already: expired without waiting


@pytest.fixture
async def world(database) -> World:
    return await make_world(database)


async def add_device(database, name="gpu-0", *, slots=4, memory_bytes=1000, **info):
    return await DeviceStore(database).register(
        name=name,
        node="n1",
        kind="cpu",
        type="cpu",
        memory_bytes=memory_bytes,
        slots=slots,
        speed=1.0,
        price_nano_per_us=1,
        host_id="h1",
        unix_path="/run/x.sock",
        tcp_host=None,
        tcp_port=None,
        info={"cores": 2} | info,
    )


async def grant(world, device, holder="p1", *, incarnation=1, memory_bytes=10, ttl_s=LONG, cpu_milli=0):
    leases = LeaseStore(world.database)
    return await leases.grant(
        device.id, holder, incarnation, world.version_id, world.tenant_id, memory_bytes, ttl_s, cpu_milli
    )


# --- devices


async def test_a_device_that_registers_again_is_the_same_one_in_its_next_life(world):
    first = await add_device(world.database)
    again = await add_device(world.database, slots=2)
    assert (again.id, again.incarnation, again.slots) == (first.id, first.incarnation + 1, 2)
    assert again.info == {"cores": 2}
    assert [device.id for device in await DeviceStore(world.database).list_devices()] == [first.id]


async def test_registering_frees_the_leases_of_the_life_before_with_a_higher_epoch(world):
    old = await grant(world, await add_device(world.database))
    device = await add_device(world.database)
    assert await LeaseStore(world.database).list_leases() == []
    new = await grant(world, device)
    assert new.slot == old.slot and new.epoch > old.epoch and new.device_incarnation == device.incarnation
    assert not await LeaseStore(world.database).release(old, "p1")


async def test_state_changes_only_of_the_incarnation_that_was_judged(world):
    devices = DeviceStore(world.database)
    old = await add_device(world.database)
    new = await add_device(world.database)
    assert not await devices.set_state(old.id, old.incarnation, "quarantined")
    assert await devices.set_state(new.id, new.incarnation, "draining")
    assert await grant(world, new) is None


async def test_a_lost_device_has_no_leases_and_refuses_its_old_server(world):
    devices = DeviceStore(world.database)
    device = await add_device(world.database)
    await grant(world, device)
    assert await devices.mark_lost(device.id, device.incarnation)
    assert not await devices.mark_lost(device.id, device.incarnation)
    [lost] = await devices.list_devices()
    assert (lost.state, lost.incarnation) == ("lost", device.incarnation + 1)
    assert await LeaseStore(world.database).list_leases() == []
    assert await grant(world, device) is None


async def test_a_heartbeat_moves_the_time_and_not_the_metadata_version(world):
    devices, registry = DeviceStore(world.database), Registry(world.database)
    device = await add_device(world.database)
    version = await registry.meta_version()
    await devices.beat([device.id])
    [beaten] = await devices.list_devices()
    assert beaten.heartbeat_at > device.heartbeat_at
    assert await registry.meta_version() == version


# --- leases


async def test_concurrent_grants_never_exceed_the_slots(world):
    device = await add_device(world.database, slots=5)
    grants = await asyncio.gather(*(grant(world, device, f"p{n}") for n in range(40)))
    slots = [given.slot for given in grants if given is not None]
    assert sorted(slots) == [0, 1, 2, 3, 4]


async def test_concurrent_grants_never_exceed_the_memory(world):
    device = await add_device(world.database, slots=100, memory_bytes=1000)
    grants = await asyncio.gather(*(grant(world, device, memory_bytes=300) for _ in range(20)))
    assert sum(given is not None for given in grants) == 3
    assert await grant(world, device, memory_bytes=100) is not None


async def test_concurrent_grants_never_exceed_the_processors_of_a_node_over_all_its_devices(world):
    devices = [await add_device(world.database, f"gpu-{n}", slots=30, cpus=4) for n in range(2)]
    grants = await asyncio.gather(*(grant(world, devices[n % 2], f"p{n}", cpu_milli=1500) for n in range(20)))
    assert sum(given is not None for given in grants) == 2
    assert await grant(world, devices[0]) is not None, "who asks for none is not counted"
    leases = LeaseStore(world.database)
    assert sum(row.cpu_milli for row in await leases.list_leases()) == 3000
    given, holder = next((given, f"p{n}") for n, given in enumerate(grants) if given is not None)
    assert await leases.release(given, holder)
    assert await grant(world, devices[1], cpu_milli=2500) is not None
    assert await grant(world, devices[1], cpu_milli=1) is None


async def test_a_node_that_does_not_tell_its_processors_gives_any_number(world):
    device = await add_device(world.database)
    assert await grant(world, device, cpu_milli=900_000) is not None


async def test_code_of_the_version_before_is_granted_slots_too(world):
    device = await add_device(world.database, cpus=1)
    async with world.database.acquire() as connection:
        asked = (device.id, "old", 1, world.version_id, world.tenant_id, 10)
        assert (
            await connection.fetchval("SELECT slot FROM grant_lease($1, $2, $3, $4, $5, $6, '1 minute')", *asked) == 0
        )
    assert await grant(world, device, cpu_milli=1000) is not None


async def test_grants_racing_releases_never_oversubscribe_and_epochs_only_grow(world):
    device = await add_device(world.database, slots=2, memory_bytes=20)
    leases = LeaseStore(world.database)
    epochs: dict[int, list[int]] = {0: [], 1: []}
    inside: set[int] = set()

    async def worker(name: str) -> None:
        for _ in range(15):
            given = await grant(world, device, name)
            if given is None:
                continue
            assert given.slot not in inside
            inside.add(given.slot)
            epochs[given.slot].append(given.epoch)
            inside.discard(given.slot)
            assert await leases.release(given, name)

    await asyncio.gather(*(worker(f"p{n}") for n in range(6)))
    assert all(seen == sorted(set(seen)) for seen in epochs.values())


async def test_an_expired_lease_is_not_free_until_it_is_taken_over(world):
    device = await add_device(world.database, slots=1)
    leases = LeaseStore(world.database)
    given = await grant(world, device, ttl_s=GONE)
    assert await grant(world, device, "p2") is None
    [row] = await leases.reclaimable(None, "p2", 1)
    assert (row.holder, row.expired, row.function_name, row.tenant_name) == ("p1", True, "square", "acme")
    assert await leases.take_over(row.device_id, row.slot, row.epoch)
    assert not await leases.take_over(row.device_id, row.slot, row.epoch)
    assert (await grant(world, device, "p2")).epoch > given.epoch


async def test_renewal_before_take_over_keeps_the_slot(world):
    device = await add_device(world.database)
    leases = LeaseStore(world.database)
    given = await grant(world, device, ttl_s=GONE)
    assert await leases.renew([given], "p1", 1, LONG) == [given]
    assert not await leases.take_over(given.device_id, given.slot, given.epoch)
    assert await leases.reclaimable(None, "p2", 1) == []


async def test_renewal_says_what_is_still_held(world):
    device = await add_device(world.database)
    leases = LeaseStore(world.database)
    kept, lost = await grant(world, device), await grant(world, device, ttl_s=GONE)
    others = await grant(world, device, "p2")
    unknown = await grant(world, device, ttl_s=GONE)
    assert await leases.take_over(lost.device_id, lost.slot, lost.epoch)
    assert await leases.renew([kept, lost, others], "p1", 1, LONG) == [kept]
    assert await leases.renew([kept], "p1", 2, LONG) == []
    assert [row.slot for row in await leases.reclaimable(None, "p9", 1)] == [unknown.slot], "what nobody renews expires"


async def test_a_holder_reclaims_what_its_earlier_life_has_left(world):
    device = await add_device(world.database)
    leases = LeaseStore(world.database)
    given = await grant(world, device, incarnation=1)
    assert await leases.reclaimable(device.id, "p2", 9) == []
    assert not await leases.take_over(given.device_id, given.slot, given.epoch, "p2", 9)
    [row] = await leases.reclaimable(device.id, "p1", 2)
    assert (row.holder_incarnation, row.expired) == (1, False)
    assert await leases.take_over(row.device_id, row.slot, row.epoch, "p1", 2)


async def test_a_lease_is_released_once_and_only_by_its_holder(world):
    device = await add_device(world.database)
    leases = LeaseStore(world.database)
    given = await grant(world, device)
    assert not await leases.release(given, "p2")
    assert await leases.release(given, "p1")
    assert not await leases.release(given, "p1")


async def test_leases_are_listed_by_tenant(world):
    device = await add_device(world.database)
    await grant(world, device)
    leases = LeaseStore(world.database)
    assert [row.device_name for row in await leases.list_leases(world.tenant_id)] == ["gpu-0"]
    assert await leases.list_leases(world.tenant_id + 1) == []


async def test_renewals_racing_lost_devices_never_deadlock(world):
    devices = DeviceStore(world.database)
    pool = [await add_device(world.database, f"gpu-{n}", slots=8) for n in range(4)]
    held = [await grant(world, device) for device in pool for _ in range(8)]
    leases = LeaseStore(world.database)
    renewals = [leases.renew(held, "p1", 1, LONG) for _ in range(20)]
    await asyncio.gather(*renewals, *(devices.mark_lost(device.id, device.incarnation) for device in pool))
    assert await leases.renew(held, "p1", 1, LONG) == []


# --- proxies and leadership


async def test_a_proxy_keeps_its_number_and_replaces_its_earlier_process(database):
    proxies = ProxyStore(database)
    first = await proxies.register("a", "n1", "h1", unix_path="/run/a")
    other = await proxies.register("b", "n1", "h1")
    again = await proxies.register("a", "n2", "h2", tcp_host="10.0.0.1", tcp_port=99)
    assert (first.number, other.number, again.number) == (1, 2, 1)
    assert again.incarnation == first.incarnation + 1 and again.unix_path is None
    assert not await proxies.beat(1, first.incarnation)
    assert await proxies.beat(1, again.incarnation)


async def test_proxies_that_register_at_once_get_numbers_of_their_own(database):
    proxies = ProxyStore(database)
    rows = await asyncio.gather(*(proxies.register(f"p{n}", "n", "h") for n in range(12)))
    assert sorted(row.number for row in rows) == list(range(1, 13))


async def test_silent_proxies_are_not_listed_and_in_the_end_give_their_number_back(database):
    proxies = ProxyStore(database)
    await proxies.register("old", "n", "h")
    await proxies.register("young", "n", "h")
    await database.pool.execute(
        "UPDATE proxies SET heartbeat_at = heartbeat_at - interval '31 days' WHERE name = 'old'"
    )
    assert [row.name for row in await proxies.list_proxies(3600.0)] == ["young"]
    assert (await proxies.register("new", "n", "h")).number == 1


async def test_one_leads_until_its_time_is_over(database):
    leaders = Leadership(database)
    epoch = await leaders.acquire("controller", "a", LONG)
    assert epoch == 1
    assert await leaders.acquire("controller", "b", LONG) is None
    assert await leaders.renew("controller", "a", epoch, GONE)
    taken = await leaders.acquire("controller", "b", LONG)
    assert taken == 2
    assert not await leaders.renew("controller", "a", epoch, LONG)


async def test_of_many_candidates_one_leads(database):
    leaders = Leadership(database)
    epochs = await asyncio.gather(*(leaders.acquire("controller", f"c{n}", LONG) for n in range(12)))
    assert [epoch for epoch in epochs if epoch is not None] == [1]


async def test_a_released_leadership_is_free_at_once_and_cannot_be_renewed(database):
    leaders = Leadership(database)
    epoch = await leaders.acquire("controller", "a", LONG)
    assert await leaders.release("controller", "a", epoch)
    assert not await leaders.renew("controller", "a", epoch, LONG)
    assert await leaders.acquire("controller", "b", LONG) == epoch + 1
