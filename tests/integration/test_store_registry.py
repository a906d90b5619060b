"""Tenants, keys, functions: what is written comes back, and caches are told."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from dgsf.errors import NotFound, StartError, StoreUnavailable
from dgsf.ids import key_digest
from dgsf.store.database import Database
from dgsf.store.migrate import Migration, Phase, load_migrations, migrate
from dgsf.store.registry import META_CHANNEL, Registry
from dgsf.store.rows import Role

DEADLINE = 60.0


@pytest.fixture
async def registry(database) -> Registry:
    return Registry(database)


@pytest.fixture
async def tenant_id(registry) -> int:
    return await registry.create_tenant("acme")


async def test_a_tenant_is_made_once_with_its_account(registry, database):
    ids = await asyncio.gather(*(registry.create_tenant("acme") for _ in range(8)))
    assert len(set(ids)) == 1
    assert await database.pool.fetchval("SELECT count(*) FROM accounts WHERE tenant_id = $1", ids[0]) == 1


async def test_a_key_is_found_by_id_with_its_digest_only(registry, tenant_id):
    key = await registry.create_key(tenant_id, Role.deploy, "laptop")
    row = await registry.find_key(key.key_id)
    assert (row.tenant_id, row.tenant_name, row.role, row.name) == (tenant_id, "acme", Role.deploy, "laptop")
    assert row.sha256 == key_digest(key.text) and row.revoked_at is None
    assert await registry.find_key("nothing") is None


async def test_a_key_is_revoked_once_and_only_by_its_tenant(registry, tenant_id):
    key = await registry.create_key(tenant_id, "invoke", "ci")
    other = await registry.create_tenant("other")
    assert not await registry.revoke_key(other, key.key_id)
    assert await registry.revoke_key(tenant_id, key.key_id)
    assert not await registry.revoke_key(tenant_id, key.key_id)
    [row] = await registry.list_keys(tenant_id)
    assert row.revoked_at is not None


async def test_an_unknown_role_is_refused(registry, tenant_id):
    with pytest.raises(ValueError, match="root"):
        await registry.create_key(tenant_id, "root", "x")


async def test_every_deploy_is_a_new_version_and_old_ones_stay(registry, tenant_id):
    first = await registry.deploy(tenant_id, "f", b"1", {"options": {"timeout": 3}}, b"one")
    second = await registry.deploy(tenant_id, "f", b"2", {}, b"two")
    assert (first.number, second.number, first.function_id) == (1, 2, second.function_id)
    assert (await registry.find_function(tenant_id, "f")) == second
    assert (await registry.find_version(first.version_id)) == first
    assert await registry.code_of(first.version_id) == b"one"


async def test_concurrent_deploys_of_one_name_get_numbers_of_their_own(registry, tenant_id):
    made = await asyncio.gather(*(registry.deploy(tenant_id, "f", b"d", {}, b"c") for _ in range(12)))
    assert sorted(version.number for version in made) == list(range(1, 13))
    assert await registry.find_function(tenant_id, "f") in made


async def test_a_retired_function_is_gone_until_it_is_deployed_again(registry, tenant_id):
    first = await registry.deploy(tenant_id, "f", b"1", {}, b"one")
    assert await registry.retire(tenant_id, "f")
    assert not await registry.retire(tenant_id, "f")
    assert await registry.find_function(tenant_id, "f") is None
    assert await registry.list_functions(tenant_id) == []
    assert await registry.find_version(first.version_id) == first
    assert (await registry.deploy(tenant_id, "f", b"2", {}, b"two")).number == 2


async def test_functions_are_listed_page_by_page_and_by_tenant(registry, tenant_id):
    for name in ("b", "a", "c"):
        await registry.deploy(tenant_id, name, b"", {}, b"")
    await registry.deploy(await registry.create_tenant("other"), "z", b"", {}, b"")
    page = await registry.list_functions(tenant_id, 2, "")
    assert [version.name for version in page] == ["a", "b"]
    assert [version.name for version in await registry.list_functions(tenant_id, 2, "b")] == ["c"]


async def test_code_of_an_unknown_version_is_not_found(registry):
    with pytest.raises(NotFound, match="version 7"):
        await registry.code_of(7)
    assert await registry.find_version(7) is None


async def test_every_change_raises_the_metadata_version(registry, tenant_id):
    seen = [await registry.meta_version()]
    key = await registry.create_key(tenant_id, "invoke", "x")
    seen.append(await registry.meta_version())
    await registry.revoke_key(tenant_id, key.key_id)
    seen.append(await registry.meta_version())
    await registry.deploy(tenant_id, "f", b"", {}, b"")
    seen.append(await registry.meta_version())
    await registry.retire(tenant_id, "f")
    seen.append(await registry.meta_version())
    assert seen == sorted(set(seen))
    await registry.retire(tenant_id, "f")
    assert await registry.meta_version() == seen[-1]


async def test_a_listener_hears_of_changes_and_of_every_reconnection(registry, tenant_id, database):
    heard: asyncio.Queue[None] = asyncio.Queue()
    stop = await registry.listen(META_CHANNEL, lambda: heard.put_nowait(None))
    try:
        await asyncio.wait_for(heard.get(), DEADLINE)  # connected
        await registry.create_key(tenant_id, "invoke", "x")
        await asyncio.wait_for(heard.get(), DEADLINE)  # told
        await database.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        await asyncio.wait_for(heard.get(), DEADLINE)  # connected again
        await registry.create_key(tenant_id, "invoke", "y")
        await asyncio.wait_for(heard.get(), DEADLINE)
    finally:
        await stop()


# --- migrations and connections


async def test_migrating_again_and_all_at_once_does_nothing(database):
    assert await asyncio.gather(*(migrate(database) for _ in range(4))) == [[]] * 4


async def test_processes_that_start_together_migrate_once(database_url):
    name = "together"
    admin = await asyncpg.connect(database_url)
    await admin.execute(f"CREATE DATABASE {name}")
    from databases import url_of

    database = await Database.connect(url_of(database_url, name))
    try:
        done = await asyncio.gather(*(migrate(database) for _ in range(4)))
        assert sorted(map(len, done)) == [0, 0, 0, len(load_migrations())]
    finally:
        await database.close()
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


async def test_a_failing_migration_leaves_nothing_behind_and_can_be_repaired(database):
    known = load_migrations()
    broken = Migration(99, "broken", Phase.before, "CREATE TABLE half (x int); SELEC 1")
    with pytest.raises(StartError, match=r"0099_broken\.before failed"):
        await migrate(database, known=[*known, broken])
    assert await database.pool.fetchval("SELECT to_regclass('dgsf.half')") is None
    mended = Migration(99, "broken", Phase.before, "CREATE TABLE half (x int)")
    assert await migrate(database, known=[*known, mended]) == ["0099_broken.before"]


async def test_code_older_than_the_database_says_so(database):
    await migrate(database, known=[*load_migrations(), Migration(99, "drop", Phase.after, "SELECT 1")])
    with pytest.raises(StartError, match="newer than this code"):
        await migrate(database)


async def test_a_wrong_password_or_address_is_the_store_being_unavailable(database_url, tmp_path):
    with pytest.raises(StoreUnavailable, match="refuses"):
        await Database.connect(database_url.replace("dgsf:", "dgsf:x"))
    with pytest.raises(StoreUnavailable):
        await Database.connect(f"postgresql://dgsf@/postgres?host={tmp_path}")


async def test_other_errors_pass_the_guard_unchanged(database):
    with pytest.raises(asyncpg.UndefinedTableError):
        async with database.acquire() as connection:
            await connection.execute("SELECT * FROM nowhere")
    with pytest.raises(ZeroDivisionError), database.guard():
        raise ZeroDivisionError


async def test_a_statement_that_takes_too_long_is_the_store_being_unavailable(database):
    connection = await database.open_connection(command_timeout=0.2)
    try:
        with pytest.raises(StoreUnavailable), database.guard():
            await connection.execute("SELECT pg_sleep(60)")
    finally:
        await connection.close()


async def test_connections_ended_by_the_server_are_missed_once_and_replaced(database):
    registry = Registry(database)
    killer = await database.open_connection()
    for _ in range(10):
        await registry.meta_version()
        await killer.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        for _ in range(database.pool.get_max_size()):
            try:
                await registry.meta_version()
                break
            except StoreUnavailable:
                continue
        assert await registry.meta_version() >= 1
    await killer.close()
