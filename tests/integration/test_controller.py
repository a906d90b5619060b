"""The controller with a real database and real device servers in processes of their own, without Ray."""

import asyncio
import contextlib
import os
import signal

import pytest
from process_cluster import process_cluster

from dgsf.clock import SystemClock
from dgsf.core.pool import Policy
from dgsf.errors import DgsfError
from dgsf.fabric.cluster import ClusterLost
from dgsf.fabric.controller import Controller
from dgsf.fabric.leader import NAME, Leader, LeadershipLost
from dgsf.store.devices import DeviceStore
from dgsf.store.leader import Leadership
from dgsf.store.leases import LeaseStore

DEADLINE = 60.0
A, B = "a/sim-T4-0", "b/sim-T4-0"


@pytest.fixture
async def cluster():
    async with process_cluster() as made:
        made.add("aaaa", "a", "cpu:1")
        yield made


@pytest.fixture
def devices(database):
    return DeviceStore(database)


@contextlib.asynccontextmanager
async def controlled(devices, cluster, **changes):
    """A controller at work."""

    async def joined():
        return None

    given = {"clock": SystemClock(), "leads": lambda: True, **changes}
    controller = Controller(devices, cluster, cluster.secret, **given)
    task = asyncio.create_task(controller.run(joined()))
    try:
        yield controller, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def row_when(devices, name, state, above=0):
    """The device's row, once it is in that state with a later incarnation."""
    async with asyncio.timeout(DEADLINE):
        while True:
            for row in await devices.list_devices():
                if row.name == name and row.state == state and row.incarnation > above:
                    return row
            await asyncio.sleep(0.02)


async def until(condition):
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.02)


def answers_as(controller, name, row):
    device = controller.pool.devices.get(name)
    return device is not None and device.incarnation == row.incarnation and device.heard_us > device.since_us


async def test_each_device_of_each_node_is_started_registered_and_heard_of(devices, cluster):
    cluster.add("bbbb", "b", "cpu:2")
    async with controlled(devices, cluster) as (controller, _):
        for name, node in ((A, "a"), (B, "b"), ("b/sim-T4-1", "b")):
            row = await row_when(devices, name, "healthy")
            assert (row.node, row.info["node_id"]) == (node, node * 4)
            await until(lambda name=name, row=row: answers_as(controller, name, row))
        before = (await row_when(devices, A, "healthy")).heartbeat_at
        while (await row_when(devices, A, "healthy")).heartbeat_at == before:
            await asyncio.sleep(0.05)


async def test_a_killed_server_is_replaced_and_its_leases_are_free(devices, cluster, database):
    leases = LeaseStore(database)
    async with controlled(devices, cluster):
        old = await row_when(devices, A, "healthy")
        assert await leases.grant(old.id, "p", 1, None, None, 1, 60.0) is not None
        os.kill(cluster.pid_of(A), signal.SIGKILL)
        new = await row_when(devices, A, "healthy", above=old.incarnation)
        assert new.incarnation >= old.incarnation + 2, "it was lost, then registered"
        assert new.info["actor"] != old.info["actor"]
        assert [lease.holder for lease in await leases.list_leases(None) if lease.holder] == []


async def test_a_server_that_is_stopped_is_given_up_killed_and_replaced(devices, cluster):
    async with controlled(devices, cluster) as (controller, _):
        old = await row_when(devices, A, "healthy")
        await until(lambda: answers_as(controller, A, old))
        os.kill(cluster.pid_of(A), signal.SIGSTOP)
        new = await row_when(devices, A, "healthy", above=old.incarnation)
        assert old.info["actor"] in cluster.killed and new.info["actor"] not in cluster.killed


async def test_a_new_controller_adopts_what_runs_and_ends_what_does_not_belong(devices, cluster):
    cluster.add("bbbb", "b", "cpu:1")
    async with controlled(devices, cluster):
        a, b = await row_when(devices, A, "healthy"), await row_when(devices, B, "healthy")
    os.kill(cluster.pid_of(B), signal.SIGKILL)  # while nobody looks
    starts = cluster.starts
    async with controlled(devices, cluster) as (controller, _):
        await row_when(devices, B, "healthy", above=b.incarnation)
        await until(lambda: answers_as(controller, A, a))
        kept = await row_when(devices, A, "healthy")
        assert (kept.incarnation, kept.info) == (a.incarnation, a.info)
        assert cluster.starts == starts + 1 and a.info["actor"] not in cluster.killed


async def test_a_server_of_this_host_that_is_only_slow_at_the_take_over_is_kept(devices, cluster):
    patient = Policy(hung_us=600_000_000)
    async with controlled(devices, cluster):
        old = await row_when(devices, A, "healthy")
    os.kill(cluster.pid_of(A), signal.SIGSTOP)
    async with controlled(devices, cluster, policy=patient) as (controller, _):
        await row_when(devices, A, "suspect")
        os.kill(cluster.pid_of(A), signal.SIGCONT)
        await until(lambda: answers_as(controller, A, old))
        assert (await row_when(devices, A, "healthy")).incarnation == old.incarnation


async def test_a_node_that_goes_takes_only_its_own_devices_and_may_come_back(devices, cluster):
    cluster.add("bbbb", "b", "cpu:1")
    async with controlled(devices, cluster):
        a, b = await row_when(devices, A, "healthy"), await row_when(devices, B, "healthy")
        del cluster.offers["bbbb"]
        await row_when(devices, B, "lost", above=b.incarnation)
        assert (await row_when(devices, A, "healthy")).incarnation == a.incarnation
        cluster.add("cccc", "b", "cpu:1")  # the same machine, as a new node
        back = await row_when(devices, B, "healthy", above=b.incarnation)
        assert back.info["node_id"] == "cccc"


async def test_a_node_of_a_taken_name_gets_a_name_of_its_own(devices, cluster):
    async with controlled(devices, cluster):
        await row_when(devices, A, "healthy")
        cluster.add("dddddddd", "a", "cpu:1")
        await row_when(devices, "a-dddddd/sim-T4-0", "healthy")


async def test_a_start_that_fails_is_tried_again(devices, cluster):
    cluster.failures = 3
    async with controlled(devices, cluster, policy=Policy(backoff_us=10_000)):
        await row_when(devices, A, "healthy")
        assert cluster.starts == 4


async def test_a_server_that_ends_before_it_knows_who_it_is_leaves_no_healthy_row(devices, cluster, monkeypatch):
    async def gone(actor, incarnation):
        del cluster.offers["aaaa"]  # its node goes as soon as it is registered
        raise RuntimeError("the actor died")

    monkeypatch.setattr(cluster, "set_incarnation", gone)
    async with controlled(devices, cluster):
        await row_when(devices, A, "lost")


async def test_a_controller_that_does_not_lead_changes_nothing(devices, cluster):
    leads = True
    async with controlled(devices, cluster, leads=lambda: leads) as (controller, _):
        row = await row_when(devices, A, "healthy")
        await until(lambda: answers_as(controller, A, row))
        leads = False
        os.kill(cluster.pid_of(A), signal.SIGKILL)
        await until(lambda: cluster.processes[row.info["actor"]].returncode is not None)
        async with controlled(devices, cluster) as _:  # the one that leads now
            new = await row_when(devices, A, "healthy", above=row.incarnation)
        assert new.incarnation == row.incarnation + 2, "one loss, one registration: the old leader did nothing"


async def test_a_lost_cluster_ends_the_controller(devices, cluster):
    async with controlled(devices, cluster) as (_, task):
        await row_when(devices, A, "healthy")
        cluster.gone = True
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(asyncio.shield(task), DEADLINE)
        assert caught.group_contains(ClusterLost)


async def test_a_slow_cluster_is_asked_again(devices, cluster):
    cluster.slow = 3  # which actors there are, twice; which nodes, once
    async with controlled(devices, cluster) as (_, task):
        old = await row_when(devices, A, "healthy")
        cluster.slow = 2  # the next look at the nodes, or the kill below
        os.kill(cluster.pid_of(A), signal.SIGKILL)
        await row_when(devices, A, "healthy", above=old.incarnation)
        await until(lambda: cluster.slow == 0)
        assert not task.done()


# --- leadership
class Lead:
    """A leader whose work is to be cancelled."""

    def __init__(self, database, holder, ttl_s=1.0, always=False):
        self.terms = 0
        self.leader = Leader(Leadership(database), holder, SystemClock(), ttl_s)
        self.task = asyncio.create_task((self.leader.serve if always else self.leader.run)(self._work))

    async def _work(self):
        self.terms += 1
        await asyncio.Event().wait()

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_one_leads_the_other_stands_by_and_takes_over(database):
    first = Lead(database, "first", ttl_s=30.0)
    await until(first.leader.leads)
    second = Lead(database, "second", ttl_s=30.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(second.task), 1.5)  # it asks several times in this
    assert first.leader.leads() and not second.leader.leads()
    await first.stop()  # steps down, so that nobody waits for the lease to run out
    await until(second.leader.leads)
    assert not first.leader.leads()
    await second.stop()


async def test_a_leader_whose_lease_was_taken_ends(database):
    lead = Lead(database, "first", ttl_s=30.0)
    await until(lead.leader.leads)
    async with database.acquire() as connection:
        await connection.execute("UPDATE leaders SET holder = 'other', epoch = epoch + 1 WHERE name = $1", NAME)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(lead.task, DEADLINE)
    assert caught.group_contains(LeadershipLost)


async def test_one_that_has_lost_the_lead_stands_by_and_leads_again(database):
    lead = Lead(database, "first", ttl_s=30.0, always=True)
    await until(lambda: lead.terms == 1)
    async with database.acquire() as connection:
        await connection.execute("UPDATE leaders SET holder = 'other', epoch = epoch + 1 WHERE name = $1", NAME)
        await until(lambda: not lead.leader.leads())
        await connection.execute("UPDATE leaders SET expires_at = '-infinity' WHERE name = $1", NAME)
    await until(lambda: lead.terms == 2)
    assert lead.leader.leads()
    await lead.stop()


async def test_a_leader_that_cannot_reach_the_database_stops_in_time(database):
    lead = Lead(database, "first", ttl_s=2.0)
    await until(lead.leader.leads)
    await database.close()
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(lead.task, DEADLINE)
    assert caught.group_contains(DgsfError)
    assert not lead.leader.leads()
