"""The proxy over real leases, device servers, workers and Postgres."""

import asyncio
import ctypes
import os
import shutil
import signal
import time

import pytest
from fabric_world import ended, until, world_of

from dgsf.errors import StoreUnavailable
from dgsf.store.proxies import ProxyStore


def add(x, y=1):
    return x + y


def nap(seconds):
    time.sleep(seconds)
    return "slept"


def nap_until(moment):
    time.sleep(max(0, moment - time.time()))
    return "slept"


async def test_a_call_runs_is_charged_and_leaves_a_lease(database):
    async with world_of(database) as world:
        version = await world.deploy(add)
        request, stream = world.open(version, 2)
        result = await ended(stream)
        assert (result.state, result.device) == ("succeeded", "box/cpu0"), result.failure
        row = await world.calls.get(request.id)
        assert (row.state, row.attempt, row.cost_nano) == ("succeeded", 1, result.cost_nano)
        assert row.device_us == result.device_us > 0
        check = await world.ledger.check()
        assert check.clean and check.charges == 1
        (lease,) = await world.leases.list_leases()
        assert (lease.holder, lease.version_id, lease.expired) == ("box/proxy", version, False)


async def test_many_calls_at_once_are_all_answered_and_charged_once(database):
    async with world_of(database) as world:
        version = await world.deploy(add)
        await world.value(version, 1)
        streams = [world.open(version, number)[1] for number in range(1000)]
        results = [await ended(stream) for stream in streams]
        assert all(result.state == "succeeded" for result in results)
        check = await world.ledger.check()
        assert check.clean and check.charges == 1001


async def test_a_users_exception_is_billed_and_told(database):
    def bad():
        raise KeyError("gone")

    async with world_of(database) as world:
        request, stream = world.open(await world.deploy(bad))
        result = await ended(stream)
        assert (result.state, result.failure.code) == ("failed", "function_error")
        assert result.failure.details["error"]["type"].endswith("KeyError")
        assert (await world.calls.get(request.id)).charged


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (lambda: os._exit(3), "exit code 3"),
        (lambda: ctypes.string_at(0), "SIGSEGV"),
        (lambda: os._exit(0), "exit code 0"),
    ],
    ids=["os._exit", "segfault", "quiet exit"],
)
async def test_a_crash_fails_its_own_call_only(database, how, told):
    def maybe(crash):
        return how() if crash else "fine"

    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(maybe)
        for _ in range(20):
            await world.value(version, False)  # short ones: the next are sent ahead to the same worker
        crashing = world.open(version, True)[1]
        neighbours = [world.open(version, False)[1] for _ in range(20)]
        failure = (await ended(crashing)).failure
        assert (failure.code, told in failure.message) == ("worker_crashed", True), failure
        assert [(await ended(stream)).state for stream in neighbours] == ["succeeded"] * 20
        assert (await world.ledger.check()).clean


async def test_too_much_memory_is_told_as_such(database):
    def greedy():
        return len(b"x" * (600 * 1024 * 1024))

    async with world_of(database) as world:
        result = await world.call(await world.deploy(greedy, memory="64MiB"))
        assert result.failure.code == "out_of_memory"
        assert "memory=" in result.failure.message


async def test_a_function_over_its_time_is_stopped_and_its_worker_stays(database):
    async with world_of(database) as world:
        version = await world.deploy(nap)
        assert await world.value(version, 0) == "slept"
        (lease,) = await world.leases.list_leases()
        result = await world.call(version, 60, timeout_s=0.2)
        assert (result.state, result.failure.code) == ("timed_out", "timed_out")
        assert 150_000 < result.device_us < 60_000_000
        assert await world.value(version, 0) == "slept"
        assert [row.epoch for row in await world.leases.list_leases()] == [lease.epoch]


async def test_a_function_that_does_not_stop_is_killed(database):
    def stubborn(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                time.sleep(seconds)
            except BaseException:
                continue

    async with world_of(database) as world:
        version = await world.deploy(stubborn)
        await world.value(version, 0)
        assert (await world.call(version, 50, timeout_s=0.2)).state == "timed_out"
        assert (await world.call(version, 0)).state == "succeeded"


async def test_the_callers_own_timeout_can_only_shorten(database):
    async with world_of(database) as world:
        version = await world.deploy(nap, timeout=0.3)
        over = await world.call(version, 30, timeout_s=20)
        assert over.state == "timed_out" and "timeout of 0.3 s" in over.failure.message
        assert (await world.call(version, 30, timeout_s=0.05)).state == "timed_out"


async def test_a_cancelled_call_stops_and_what_it_used_is_billed(database):
    async with world_of(database) as world:
        version = await world.deploy(nap)
        await world.value(version, 0)
        request, stream = world.open(version, 30)
        await until(lambda: any(link.inflight for link in world.proxy.lanes[version].links))
        stream.cancel()
        result = await ended(stream)
        assert (result.state, result.failure.code) == ("cancelled", "cancelled")
        assert (await world.calls.get(request.id)).charged


async def test_a_call_that_is_given_up_by_a_platform_that_stops_is_not_charged(database):
    async with world_of(database) as world:
        version = await world.deploy(nap)
        await world.value(version, 0)
        request, stream = world.open(version, 30)
        await until(lambda: any(link.inflight for link in world.proxy.lanes[version].links))
        request.given_up = True
        stream.cancel()
        result = await ended(stream)
        assert (result.failure.code, result.cost_nano, result.device_us) == ("shutting_down", 0, 0)
        assert "the call was stopped and is not charged" in result.failure.message
        assert not (await world.calls.get(request.id)).charged


async def test_an_idle_worker_makes_room_least_recently_used_first(database):
    async with world_of(database, "cpu:1:slots=2") as world:
        first, second, third = [await world.deploy(add, name=name) for name in ("a", "b", "c")]
        for version in (first, second, first):
            await world.value(version, 1)
        await world.value(third, 1)
        held = {lease.version_id for lease in await world.leases.list_leases()}
        assert held == {first, third}


async def test_idle_workers_are_given_back_to_nothing(database):
    async with world_of(database) as world:
        version = await world.deploy(add, idle_seconds=0.1)
        await world.value(version, 1)

        async def nothing_leased():
            return not await world.leases.list_leases()

        await until(nothing_leased)
        await until(lambda: not world.servers["box/cpu0"]._table.workers)
        assert await world.value(version, 1) == 2


async def test_a_function_spreads_over_several_workers_up_to_its_limit(database):
    def who(seconds):
        time.sleep(seconds)
        return os.stat("/dgsf/shared").st_ino

    async with world_of(database) as world:
        free = await world.deploy(who)
        streams = [world.open(free, 0.3)[1] for _ in range(4)]
        for stream in streams:
            assert (await ended(stream)).state == "succeeded"
        assert len(world.proxy.lanes[free].links) == 4
        bounded = await world.deploy(who, max_workers=1)
        streams = [world.open(bounded, 0.01)[1] for _ in range(4)]
        for stream in streams:
            assert (await ended(stream)).state == "succeeded"
        assert len(world.proxy.lanes[bounded].links) == 1


async def test_a_function_that_cannot_be_loaded_says_so_and_costs_nothing(database):
    def needs():
        import no_such_package_anywhere

        return no_such_package_anywhere

    async with world_of(database) as world:
        metadata = {"signature": [], "options": {}, "python": "3.11"}
        broken = await world.registry.deploy(world.tenant_id, "broken", b"d" * 32, metadata, b"not a bundle")
        result = await world.call(broken.version_id)
        assert (result.failure.code, result.cost_nano) == ("function_load_error", 0)
        assert (await world.call(await world.deploy(needs))).failure.code == "function_error"


async def test_retries_run_again_and_everything_used_is_billed_once(database):
    def flaky(path):
        with open(path, "a") as file:
            file.write("x")
        with open(path) as file:
            if len(file.read()) < 3:
                raise ValueError("not yet")
        return "done"

    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(flaky, retries=2)
        request, stream = world.open(version, "/tmp/count")
        assert (await ended(stream)).state == "succeeded"
        row = await world.calls.get(request.id)
        assert (row.attempt, row.state) == (3, "succeeded")
        check = await world.ledger.check()
        assert check.clean and check.charges == 1


async def test_a_killed_worker_is_retried_where_allowed(database):
    async with world_of(database) as world:
        for retries, states in ((0, {"failed"}), (1, {"succeeded"})):
            version = await world.deploy(nap_until, retries=retries)
            await world.value(version, 0)
            request, stream = world.open(version, time.time() + 3)  # long enough to be met in it
            lane = world.proxy.lanes[version]
            link = await until(lambda lane=lane: next((one for one in lane.links if one.inflight), None))
            os.kill(link.post.pid, signal.SIGKILL)
            result = await ended(stream)
            assert {result.state} == states
            assert (await world.calls.get(request.id)).attempt == retries + 1
        assert (await world.ledger.check()).clean


async def test_a_lost_device_server_loses_only_its_calls_unbilled(database):
    async with world_of(database, "cpu:1") as world:
        version = await world.deploy(nap)
        await world.value(version, 0)
        request, stream = world.open(version, 60)
        await until(lambda: any(link.inflight for link in world.proxy.lanes[version].links))
        await world.servers.pop("box/cpu0").stop()
        result = await ended(stream)
        assert result.failure.code == "outcome_unknown"
        assert not (await world.calls.get(request.id)).charged
        await world.add_device("cpu:1")
        assert await world.value(version, 0) == "slept"


async def test_a_restarted_proxy_reclaims_the_slots_of_its_earlier_life(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(add)
        await world.value(version, 1)
        row = (await world.leases.list_leases())[0]
        replacement = await world.add_proxy()
        _, stream = world.open(version, 1, proxy=replacement)
        assert (await ended(stream)).state == "succeeded"
        (now,) = await world.leases.list_leases()
        assert now.epoch > row.epoch and now.holder_incarnation > row.holder_incarnation


async def test_a_proxy_without_slots_gets_those_that_another_leaves_idle(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        one = await world.deploy(add, name="one")
        two = await world.deploy(add, name="two")
        await world.value(one, 1)
        other = await world.add_proxy("box/other")
        _, stream = world.open(two, 1, proxy=other)
        assert (await ended(stream)).state == "succeeded"


async def test_no_healthy_device_is_told_instead_of_waiting_for_ever(database, monkeypatch):
    monkeypatch.setattr("proxy.local.WITHHELD_SECONDS", 0.2)
    async with world_of(database) as world:
        for row in await world.devices.list_devices():
            await world.devices.drain(row.id)
        result = await world.call(await world.deploy(add), 1)
        assert result.failure.code == "no_device" and "dgsf devices restore" in result.failure.message


async def test_a_device_that_is_only_suspect_is_waited_for_until_the_start_deadline(database, monkeypatch):
    monkeypatch.setattr("proxy.local.WITHHELD_SECONDS", 0.0)
    async with world_of(database) as world:
        version = await world.deploy(add)
        (device,) = await world.devices.list_devices()
        await world.devices.set_state(device.id, device.incarnation, "suspect")
        late = await world.call(version, 1, start_s=0.5)
        assert late.failure.code == "start_deadline_missed"
        assert "waited for a worker: no device (any) takes work now (1 suspect)" in late.failure.message
        _, stream = world.open(version, 1)
        await until(lambda: world.proxy.lanes[version].queue)
        await world.devices.set_state(device.id, device.incarnation, "healthy")
        assert (await ended(stream)).state == "succeeded"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
async def test_large_arguments_and_results_by_shared_memory_and_by_chunks(database, transport):
    async with world_of(database, transport=transport) as world:
        version = await world.deploy(lambda data: data[::-1])
        data = os.urandom(3_000_000)
        request = world.request(version, data)
        blob = request.payload.data
        descriptor, path = world.area.new_file()
        os.write(descriptor, blob)
        os.close(descriptor)
        request.payload.data, request.payload.path = b"", path
        result = await ended(world.proxy.open(request))
        import cloudpickle

        assert cloudpickle.loads(result.payload.read()) == data[::-1]
        result.payload.discard()
        assert list((world.area.folder / "in").iterdir()) == []


async def test_an_expired_lease_stops_dispatching_and_its_slot_is_taken_over(database):
    """A proxy that stands still past its lease: another takes the slot, and it sends nothing any more."""
    async with world_of(database, "cpu:1:slots=1", lease_seconds=2.0) as world:
        version = await world.deploy(add)
        await world.value(version, 1)
        stopped = world.proxy
        await stopped._leases.stop()  # as if the process stood still: nothing is renewed any more
        other = await world.add_proxy("box/other")
        _, stream = world.open(version, 1, proxy=other)
        assert (await ended(stream)).state == "succeeded"
        link_lost = await until(lambda: not stopped.lanes[version].links)
        assert link_lost
        assert [row.holder for row in await world.leases.list_leases()] == ["box/other"]


async def test_a_stale_finish_lands_nowhere(database):
    """The call was taken over while its first proxy stood still: its late result is refused and not charged."""
    from dgsf.store.rows import OpenCall

    async with world_of(database) as world:
        version = await world.deploy(nap)
        await world.value(version, 0)
        request, stream = world.open(version, 2)
        await until(lambda: any(link.inflight for link in world.proxy.lanes[version].links))
        opened = OpenCall(request.id, 1, world.tenant_id, version, time.time())
        await world.calls.settle_unknown(opened, "outcome_unknown")
        result = await ended(stream)
        assert result.failure.code == "outcome_unknown"
        row = await world.calls.get(request.id)
        assert (row.state, row.charged) == ("failed", False)
        assert (await world.ledger.check()).clean


async def test_proxies_keep_their_number(database):
    store = ProxyStore(database)
    first = await store.register("box/proxy", "box", "h")
    again = await store.register("box/proxy", "box", "h")
    assert (first.number, first.incarnation + 1) == (again.number, again.incarnation)


async def test_stopping_lets_running_calls_end(database):
    async with world_of(database) as world:
        version = await world.deploy(nap)
        await world.value(version, 0)
        _, stream = world.open(version, 0.5)
        proxy = world.proxy
        stopping = asyncio.create_task(world.stop_proxy(proxy))
        assert (await ended(stream)).state == "succeeded"
        await stopping
        assert await world.leases.list_leases() == []
        _, refused = world.open(version, 0, proxy=proxy)
        assert (await ended(refused)).failure.code == "shutting_down"


async def test_a_slot_whose_release_was_lost_expires_and_is_used_again(database, monkeypatch):
    """A database that is away at the wrong moment costs no slot for ever."""
    async with world_of(database, "cpu:1:slots=1", lease_seconds=2.0) as world:
        one, two = await world.deploy(add, name="one"), await world.deploy(add, name="two")
        await world.value(one, 1)

        async def away(*_):
            raise StoreUnavailable

        with monkeypatch.context() as patched:
            patched.setattr(world.proxy._leases._store, "release", away)
            link = world.proxy.lanes[one].links[0]
            world.proxy.retire(world.proxy.lanes[one], link)
            await until(lambda: link.post.lease not in world.proxy._leases._until_us)
        assert await world.value(two, 1) == 2


async def test_an_error_of_ours_that_a_function_raises_is_its_own_and_is_billed(database):
    def cheat():
        from dgsf.errors import PlatformError

        raise PlatformError("x", answer=42)

    async with world_of(database) as world:
        request, stream = world.open(await world.deploy(cheat))
        result = await ended(stream)
        assert result.failure.code == "function_error"
        row = await world.calls.get(request.id)
        assert row.charged and row.cost_nano > 0


async def test_only_idle_workers_on_devices_that_would_do_are_given_up(database):
    async with world_of(database, "cpu:1,sim:A100:1:slots=1") as world:
        idle = [await world.deploy(add, name=f"idle{number}", gpu="cpu") for number in range(3)]
        for version in idle:
            await world.value(version, 1)
        busy = await world.deploy(nap, name="busy", gpu="A100")
        _, running = world.open(busy, 1.5)
        wanting = await world.deploy(add, name="wanting", gpu="A100")
        assert await world.value(wanting, 1) == 2
        assert (await ended(running)).state == "succeeded"
        assert all(len(world.proxy.lanes[version].links) == 1 for version in idle)


async def test_a_call_cancelled_before_its_lane_exists_never_runs(database):
    async with world_of(database) as world:
        request, stream = world.open(await world.deploy(nap), 0)
        stream.cancel()
        result = await ended(stream)
        assert (result.failure.code, result.cost_nano) == ("cancelled", 0)
        assert await world.calls.get(request.id) is None


async def test_a_worker_whose_folder_is_gone_is_replaced_and_the_call_runs(database):
    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(lambda data: len(data))
        await world.value(version, b"x")
        shutil.rmtree(world.proxy.lanes[version].links[0].post.shared_dir)
        request = world.request(version, b"y" * 300_000)
        descriptor, path = world.area.new_file()
        os.write(descriptor, request.payload.data)
        os.close(descriptor)
        request.payload.data, request.payload.path = b"", path
        assert (await ended(world.proxy.open(request))).state == "succeeded"


async def test_code_of_more_than_a_window_is_loaded_and_a_worker_lost_meanwhile_is_replaced(database):
    data = os.urandom(3_000_000)

    async with world_of(database, "cpu:1:slots=1") as world:
        version = await world.deploy(lambda: len(data))
        assert await world.value(version) == len(data)
