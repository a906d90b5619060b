"""The zygote alone: what it loads, what it gives to its workers, and how it ends."""

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from device_kit import DEADLINE, HERE, MIB, alive, descendants, until

from dgsf.errors import ConnectionLost, DgsfError, StartError
from dgsf.fabric.spec import GO, Prepared, WorkerSpec
from dgsf.fabric.zygote_client import PRELOAD, ZygoteClient, ZygoteOptions, zygote_environment
from dgsf.wire.messages import reader


@contextlib.asynccontextmanager
async def zygote(**options):
    given = {"entry": "worker_bodies:serve", "preload": ("cloudpickle",), "import_paths": (HERE,)} | options
    client = ZygoteClient(ZygoteOptions(**given))
    try:
        yield client, await client.start()
    finally:
        await client.stop()


@contextlib.contextmanager
def sockets():
    """A worker's two ends and ours: ours, theirs, near, far."""
    ends = (*socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET), *socket.socketpair())
    ends[0].setblocking(False)
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


def worker_spec(folder, **changes):
    fields = {
        "worker_id": 1, "slot": 0, "epoch": 1, "tenant_id": 1, "version_id": 1, "memory_bytes": 64 * MIB,
        "network": False, "shared_dir": str(folder), "device_kind": "cpu", "device_index": 0, "device_options": {},
        "max_file_bytes": MIB,
    }  # fmt: skip
    return WorkerSpec(**(fields | changes))


async def prepared_of(ours):
    async with asyncio.timeout(DEADLINE):
        return reader(Prepared)(await asyncio.get_running_loop().sock_recv(ours, 65536))


async def test_it_loads_the_heavy_modules_and_stays_single_threaded():
    async with zygote(preload=(*PRELOAD, "no_such_module")) as (_, ready):
        assert ready.threads == 1
        assert ready.absent == ["no_such_module"]
        assert ready.resident_bytes > 20 * MIB


async def test_its_environment_is_made_from_an_allow_list(monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "x")
    monkeypatch.setenv("RAY_ADDRESS", "x")
    monkeypatch.setenv("DGSF_MARK", "m")
    environment = zygote_environment(ZygoteOptions(environment=(("CUDA_VISIBLE_DEVICES", "1"),)))
    assert "SOME_SECRET" not in environment and "RAY_ADDRESS" not in environment
    assert environment["DGSF_MARK"] == "m" and environment["CUDA_VISIBLE_DEVICES"] == "1"


async def test_an_entry_that_does_not_exist_is_told_at_the_start():
    with pytest.raises(StartError, match="no_such_thing"):
        async with zygote(entry="worker_bodies:no_such_thing"):
            pass


async def test_a_worker_waits_for_the_word_to_go(tmp_path):
    async with zygote() as (client, _):
        with sockets() as (ours, theirs, near, far):
            child = await client.spawn(worker_spec(tmp_path), theirs, far)
            far.close()
            theirs.close()
            prepared = await prepared_of(ours)
            assert prepared.failure is None
            assert {"fork", "namespaces", "root", "rights"} <= dict(prepared.timings_us).keys()
            near.setblocking(False)
            near.close()  # so the worker will find its connection closed, once it looks
            assert alive(child.host_pid) and not child.ended.done()
            ours.send(GO)
            async with asyncio.timeout(DEADLINE):
                assert (await child.ended).exit_code == 0


async def test_the_number_of_the_process_is_the_one_that_we_see(tmp_path):
    async with zygote() as (client, _):
        with sockets() as (ours, theirs, _near, far):
            child = await client.spawn(worker_spec(tmp_path), theirs, far)
            await prepared_of(ours)
            assert child.host_pid in descendants(client.pid)


async def test_a_signal_reaches_only_a_living_child(tmp_path):
    async with zygote() as (client, _):
        with sockets() as (ours, theirs, _near, far):
            child = await client.spawn(worker_spec(tmp_path), theirs, far)
            await prepared_of(ours)
            client.signal(child, signal.SIGKILL)
            async with asyncio.timeout(DEADLINE):
                assert (await child.ended).signal == signal.SIGKILL
            client.signal(child, signal.SIGKILL)  # reaped: nothing is signalled, nothing breaks
        with sockets() as (ours, theirs, _near, far):
            await client.spawn(worker_spec(tmp_path), theirs, far)
            assert (await prepared_of(ours)).failure is None


async def test_a_worker_that_cannot_be_confined_is_refused_with_the_reason(tmp_path):
    async with zygote() as (client, _):
        with sockets() as (ours, theirs, _near, far):
            child = await client.spawn(worker_spec(tmp_path / "not there"), theirs, far)
            prepared = await prepared_of(ours)
            assert isinstance(prepared.failure.error(), DgsfError)
            assert "not there" in prepared.failure.message or "mount" in prepared.failure.message
            async with asyncio.timeout(DEADLINE):
                await child.ended


async def test_it_ends_with_all_workers_when_its_owner_lets_go(tmp_path):
    async with zygote() as (client, _):
        with sockets() as (ours, theirs, _near, far):
            child = await client.spawn(worker_spec(tmp_path), theirs, far)
            await prepared_of(ours)
            processes = [client.pid, *descendants(client.pid)]
            assert child.host_pid in processes
            await client.stop()
            assert not [pid for pid in processes if alive(pid)]
            assert await child.ended is None
            with pytest.raises(ConnectionLost):
                await client.spawn(worker_spec(tmp_path), theirs, far)


async def test_everything_ends_when_the_owner_is_killed(tmp_path):
    """An owner in a process of its own, ended by SIGKILL: nothing of it stays."""
    script = (
        "import asyncio, os, sys\n"
        "from dgsf.fabric.zygote_client import ZygoteClient, ZygoteOptions\n"
        "async def main():\n"
        f"    client = ZygoteClient(ZygoteOptions('worker_bodies:serve', ('cloudpickle',), import_paths=({HERE!r},)))\n"
        "    await client.start()\n"
        "    print(client.pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    import sys

    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(HERE).parents[1])},
    )
    async with asyncio.timeout(DEADLINE):
        keeper = int(await owner.stdout.readline())
    processes = [keeper, *descendants(keeper)]
    assert len(processes) == 2
    owner.kill()
    await owner.communicate()
    await until(lambda: not [pid for pid in processes if alive(pid)])


async def test_the_trial_of_the_doctor_names_every_protection():
    from dgsf.fabric.sandbox import report

    features = {feature.name: feature for feature in await asyncio.to_thread(report)}
    assert features["own root file system"].present
    assert {"network namespace", "own pid namespace", "Landlock", "seccomp", "no capabilities"} <= features.keys()
    assert not list(Path(tempfile.gettempdir()).glob("dgsf-doctor-*"))
