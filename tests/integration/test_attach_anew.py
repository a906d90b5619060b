"""attach="auto" when the way changes: the leader makes the other choice a new version, once it is clearly better."""

import pytest

from dgsf.config import MIB
from dgsf.core.devices import HOST
from dgsf.fabric.reconsidering import IN_A_ROW, Reconsidering
from dgsf.store.devices import DeviceStore
from dgsf.store.registry import Registry
from dgsf.store.rows import RoundTrip

CURVE = [[0, 1.0], [1000, 1.2]]  # within 1.10 up to 500 µs; clearly beyond from 750, clearly within up to 250


class Pool:
    """One device, one host, one function; the way between them as said."""

    def __init__(self, database):
        self.registry, self.devices = Registry(database), DeviceStore(database)
        self.leader = Reconsidering(self.registry, self.devices)

    async def make(self, attach, host_bytes=4096 * MIB):
        tenant = await self.registry.create_tenant("acme")
        for name, kind, size in (("cpu0", "cpu", 4096 * MIB), ("host0", HOST, host_bytes)):
            await self.devices.register(
                name=name, node="box", kind=kind, type=kind, memory_bytes=size, slots=4, speed=1.0,
                price_nano_per_us=1, host_id="h", unix_path="/nowhere", tcp_host=None, tcp_port=None,
            )  # fmt: skip
        options = {"attach": "auto", "profile": CURVE}
        self.tenant = tenant
        await self.registry.deploy(
            tenant, "f", b"d" * 32, {"signature": [], "options": options, "attach": attach}, b"code"
        )
        await self.registry.deploy(tenant, "plain", b"d" * 32, {"signature": [], "options": {}}, b"code")

    async def looks(self, us, times=IN_A_ROW):
        device, _ = await self.devices.list_devices()
        await self.devices.write_round_trips(1, [(device.id, device.incarnation, RoundTrip(us, False, True))])
        for _ in range(times):
            await self.leader.look()
        found = await self.registry.find_function(self.tenant, "f")
        return found.metadata["attach"], found.number


@pytest.fixture
def pool(database):
    return Pool(database)


async def test_a_longer_way_brings_it_near_and_a_shorter_one_back_with_the_same_code(pool):
    await pool.make("fabric")
    await pool.leader.look()
    assert await pool.looks(700.0) == ("fabric", 1), "not clearly too far"
    assert await pool.looks(800.0, IN_A_ROW - 1) == ("fabric", 1), "not for long enough"
    assert await pool.looks(800.0, 1) == ("near", 2)
    assert await pool.looks(400.0) == ("near", 2), "near enough at a deploy, but not clearly"
    assert await pool.looks(100.0) == ("fabric", 3)
    found = await pool.registry.find_function(pool.tenant, "f")
    assert await pool.registry.code_of(found.version_id) == b"code"
    assert (await pool.registry.find_function(pool.tenant, "plain")).number == 1


async def test_a_look_in_between_that_says_otherwise_begins_the_count_again(pool):
    await pool.make("fabric")
    await pool.looks(800.0, IN_A_ROW - 1)
    await pool.looks(100.0, 1)
    assert await pool.looks(800.0, IN_A_ROW - 1) == ("fabric", 1)


async def test_nothing_goes_where_no_host_can_run_it(pool):
    await pool.make("near", host_bytes=128 * MIB)
    assert await pool.looks(10.0) == ("near", 1)


async def test_a_version_that_is_not_current_any_more_is_left_alone(pool):
    await pool.make("fabric")
    old = await pool.registry.find_function(pool.tenant, "f")
    new = await pool.registry.deploy(pool.tenant, "f", b"d" * 32, old.metadata, b"newer")
    assert await pool.registry.attach_anew(old.version_id, "near") is None
    await pool.registry.retire(pool.tenant, "f")
    assert await pool.registry.attach_anew(new.version_id, "near") is None
