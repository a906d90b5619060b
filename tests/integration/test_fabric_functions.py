"""Functions over the fabric on a small platform: body on a function host, device commands through the proxy."""

import asyncio
import os
import signal

import pytest
import pytest_asyncio
from fabric_world import until, world_of
from gateway_world import fresh_database

from dgsf.fabric.device_server import ServerOptions

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
WARM = ServerOptions()  # with torch loaded ahead


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(database_url):
    """One device with one slot, so that whoever has it gives it up for the next test, and one host."""
    async with fresh_database(database_url) as database, world_of(database, devices="", idle_seconds=60.0) as world:
        await asyncio.gather(
            world.add_device("cpu:1:price=3:memory=2GiB:threads=1:slots=1", WARM), world.add_host(3, WARM)
        )
        yield world


async def leased(world, version_id):
    """The devices on which this function holds a slot."""
    return {row.device_name for row in await world.leases.list_leases(None) if row.version_id == version_id}


def session_of(world, version_id):
    return next(session for session in world.proxy.sessions.sessions.values() if session.owner.version_id == version_id)


def doubled(values):
    import torch

    where = torch.tensor(values, device="dgsf")
    return (where * 2).sum().item()


async def test_the_body_runs_on_a_host_and_its_device_time_is_billed(world):
    version = await world.deploy(doubled, attach="fabric")
    _request, stream = world.open(version, [1.0, 2.0, 3.5])
    result = await stream.result()
    assert result.failure is None, result.failure
    assert result.device == "box/cpu0"
    assert result.device_us > 0 and result.cost_nano == 3 * result.device_us
    held = await leased(world, version)
    assert held == {"box/host0", "box/cpu0"}, "the body holds a slot of the host, its session one of the device"


def loaded_by_workers(size):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    total = torch.zeros((), device="dgsf")
    for (batch,) in DataLoader(TensorDataset(torch.arange(float(size))), batch_size=4, num_workers=2):
        total += batch.to("dgsf").sum()
    return total.item()


async def test_a_function_may_load_its_data_by_forked_workers(world):
    version = await world.deploy(loaded_by_workers, attach="fabric")
    assert await world.value(version, 12) == 66.0


def idle(x):
    return x + 1


async def test_a_call_that_never_touches_its_device_costs_nothing_and_takes_none(world):
    version = await world.deploy(idle, attach="fabric")
    result = await world.call(version, 1)
    assert result.failure is None and (result.device_us, result.cost_nano) == (0, 0)
    assert await leased(world, version) == {"box/host0"}


def counter(step):
    import torch

    global state
    if "state" not in globals():
        state = torch.zeros(1, device="dgsf")
    state += step
    return state.item()


async def test_what_is_on_the_device_stays_between_calls(world):
    version = await world.deploy(counter, attach="fabric", max_workers=1)
    assert [await world.value(version, step) for step in (1, 2, 3)] == [1.0, 3.0, 6.0]


def slow(seconds):
    import time

    import torch

    x = torch.ones(4, device="dgsf")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        x = x * 1.0
        x.sum().item()
    return "done"


async def test_a_timeout_stops_it_also_while_it_waits_for_the_device(world):
    version = await world.deploy(slow, attach="fabric")
    result = await world.call(version, 60, timeout_s=1.0)
    assert result.failure.code == "timed_out" and result.device_us > 0
    assert await world.value(version, 0.01) == "done", "the next call gets a fresh session"


def wrong(kind):
    import torch

    x = torch.ones(2, 3, device="dgsf")
    if kind == "shape":
        return (x @ x).sum().item()
    torch.linalg.cholesky(-torch.eye(3, device="dgsf"))  # fails on the device, after the function has gone on
    return "fine so far"


async def test_errors_of_the_device_are_the_calls_own(world):
    version = await world.deploy(wrong, attach="fabric")
    for kind in ("shape", "late"):
        result = await world.call(version, kind)
        assert result.failure is not None and result.failure.code == "function_error", kind
    assert (await world.call(version, "shape")).failure.code == "function_error"


def steps(count):
    import time

    import torch

    x = torch.zeros(1, device="dgsf")
    for _ in range(count):
        x = x + 1
        x.item()
        time.sleep(0.05)
    assert x.item() == count
    return x.item()


async def test_the_executors_death_does_not_reach_the_function(world):
    version = await world.deploy(steps, attach="fabric")

    def mine(session):
        return session.owner.version_id == version

    _request, stream = world.open(version, 60)
    await until(lambda: any(session.device_us for session in world.proxy.sessions.sessions.values() if mine(session)))
    executor = world.servers["box/cpu0"]._table.workers[session_of(world, version).device.post.worker_id]
    os.kill(executor.child.host_pid, signal.SIGKILL)
    result = await stream.result()
    assert result.failure is None, result.failure
    assert result.device_us > 0 and result.device == "box/cpu0"


def doubled_if_any(xs):
    import torch

    return float((torch.tensor(xs, device="dgsf") * 2).sum()) if xs else 0


async def test_the_wait_for_a_device_ends_at_the_start_deadline_and_says_what_it_was_for(world):
    version = await world.deploy(doubled_if_any, attach="fabric")
    assert await world.value(version, []) == 0, "a warm worker that has not asked for a device yet"
    (device,) = [row for row in await world.devices.list_devices() if not row.is_host]
    await world.devices.set_state(device.id, device.incarnation, "quarantined")
    try:
        result = await world.call(version, [1.0], start_s=2.0, timeout_s=0.2)
        assert result.failure.code == "start_deadline_missed", result.failure
        assert "no device (any) takes work now (1 quarantined)" in result.failure.message
        assert (result.state, result.cost_nano) == ("failed", 0), "its body had begun"
    finally:
        await world.devices.set_state(device.id, device.incarnation, "healthy")


async def test_near_functions_and_sessions_make_room_for_each_other(world):
    fabric, near = await world.deploy(doubled, attach="fabric"), await world.deploy(idle)
    for number in range(2):
        assert await world.value(fabric, [1.0]) == 2.0
        assert await world.value(near, number) == number + 1


def own_device(x):
    import torch

    import dgsf

    with dgsf.attach() as device:
        return (torch.ones(2, device=device) * x).sum().item(), device.type


async def test_attach_inside_a_fabric_function_is_its_own_device(world):
    version = await world.deploy(own_device, attach="fabric")
    assert await world.value(version, 3.0) == (6.0, "dgsf")
    assert await world.value(version, 4.0) == (8.0, "dgsf")


def either_way(x):
    import torch

    import dgsf

    device = dgsf.device()
    return (torch.ones(2, device=device) * x).sum().item(), device.type


async def test_a_function_that_leaves_the_choice_runs_where_its_deploy_decided(world):
    auto = {"attach": "auto", "profile": [[0, 1.0], [1000, 1.02]]}
    far, near = await world.deploy(either_way, chosen="fabric", **auto), await world.deploy(either_way, **auto)
    assert await world.value(far, 3.0) == (6.0, "dgsf")
    assert await world.value(near, 3.0) == (6.0, "cpu")
