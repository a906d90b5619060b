"""The cache of keys and functions: follows changes, shares queries, never serves what may be old."""

from __future__ import annotations

import asyncio

import pytest
from gateway_world import ANY_ARGUMENTS, eventually

from dgsf.errors import NotFound, StoreUnavailable, Unauthenticated
from dgsf.store import catalogue as module
from dgsf.store.catalogue import Catalogue, Lru
from dgsf.store.database import Database
from dgsf.store.registry import Registry

METADATA = {"signature": ANY_ARGUMENTS, "options": {"retries": 3}, "python": "3.11"}


class Counting(Registry):
    """A registry that counts its queries, and can be slowed or cut."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.asked: list[str] = []
        self.cut = False
        self.gate: asyncio.Event | None = None

    async def find_key(self, key_id: str):
        await self._pass(f"key {key_id}")
        return await super().find_key(key_id)

    async def find_function(self, tenant_id: int, name: str):
        found = await super().find_function(tenant_id, name)
        await self._pass(f"function {name}")
        return found

    async def function_names(self, tenant_id: int, limit: int):
        await self._pass("names")
        return await super().function_names(tenant_id, limit)

    async def meta_version(self) -> int:
        if self.cut:
            raise StoreUnavailable
        return await super().meta_version()

    async def _pass(self, what: str) -> None:
        self.asked.append(what)
        if self.gate is not None:
            await self.gate.wait()
        if self.cut:
            raise StoreUnavailable


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def registry(database: Database):
    return Counting(database)


@pytest.fixture
async def tenant_id(registry: Counting):
    return await registry.create_tenant("acme")


@pytest.fixture
async def catalogue(registry: Counting, tenant_id: int):
    made = Catalogue(registry)
    await registry.deploy(tenant_id, "echo", b"d" * 32, METADATA, b"code")
    await made.start()
    await _quiet(made)
    yield made
    await made.stop()


async def _quiet(made: Catalogue) -> None:
    """Until the listener's first call has been looked at, so that nothing flushes by itself."""
    version = await made._registry.meta_version()
    await eventually(lambda: made._seen_version == version and not made._wake.is_set())


async def test_a_function_comes_with_options_and_binder(catalogue: Catalogue, tenant_id: int):
    found = await catalogue.function(tenant_id, "echo")
    assert found.options.retries == 3
    found.binder.check({"any": 1})
    assert await catalogue.version(found.version.version_id) is found
    assert await catalogue.code(found.version.version_id) == b"code"


async def test_many_who_ask_at_once_share_one_query(catalogue: Catalogue, registry: Counting, tenant_id: int):
    registry.gate = asyncio.Event()
    tasks = [asyncio.create_task(catalogue.function(tenant_id, "echo")) for _ in range(50)]
    await eventually(lambda: registry.asked)
    tasks[0].cancel()  # who asked first gives up; the others are still answered
    registry.gate.set()
    answers = await asyncio.gather(*tasks[1:])
    assert len({id(answer) for answer in answers}) == 1
    assert registry.asked == ["function echo"]


async def test_a_deploy_elsewhere_is_seen(catalogue: Catalogue, registry: Counting, tenant_id: int):
    old = await catalogue.function(tenant_id, "echo")
    await registry.deploy(tenant_id, "echo", b"e" * 32, METADATA, b"new")

    async def changed():
        return (await catalogue.function(tenant_id, "echo")).version.version_id != old.version.version_id

    await eventually(changed)
    assert (await catalogue.version(old.version.version_id)).version == old.version


async def test_whoever_misspells_a_function_is_told_which_of_their_own_they_probably_meant(
    catalogue: Catalogue, registry: Counting, tenant_id: int
):
    other = await registry.create_tenant("other")
    await registry.deploy(other, "ecco1", b"d" * 32, METADATA, b"code")
    await _quiet(catalogue)
    for _ in range(5):
        with pytest.raises(NotFound, match=r"there is no function 'ecco' here; did you mean 'echo'\?$"):
            await catalogue.function(tenant_id, "ecco")
        with pytest.raises(NotFound, match=r"there is no function 'quite another' here$"):
            await catalogue.function(tenant_id, "quite another")
    assert registry.asked.count("names") == 1


async def test_what_is_not_there_is_asked_for_once_and_found_when_it_comes(
    catalogue: Catalogue, registry: Counting, tenant_id: int
):
    for _ in range(5):
        with pytest.raises(NotFound):
            await catalogue.function(tenant_id, "later")
    assert registry.asked.count("function later") == 1
    await registry.deploy(tenant_id, "later", b"d" * 32, METADATA, b"code")

    async def there():
        try:
            return await catalogue.function(tenant_id, "later")
        except NotFound:
            return None

    await eventually(there)


async def test_a_row_read_before_a_change_is_not_kept_after_it(
    catalogue: Catalogue, registry: Counting, tenant_id: int
):
    registry.gate = asyncio.Event()
    task = asyncio.create_task(catalogue.function(tenant_id, "echo"))
    await eventually(lambda: registry.asked)  # the old row is read and waits at the gate
    catalogue.flush()
    registry.gate.set()
    await task
    assert catalogue.known_function(tenant_id, "echo") is None


async def test_keys_that_are_wrong_revoked_or_none_are_unauthenticated(
    catalogue: Catalogue, registry: Counting, tenant_id: int
):
    key = await registry.create_key(tenant_id, "deploy", "k")
    await _quiet(catalogue)
    found = await catalogue.find_key(key.text)
    assert (found.tenant_id, found.tenant_name, found.role) == (tenant_id, "acme", "deploy")
    assert catalogue.known_key(key.text) is found
    for text in ("", "nonsense", f"dgsf_{key.key_id}_wrong", "dgsf_unknown_secret"):
        with pytest.raises(Unauthenticated):
            await catalogue.find_key(text)
    await registry.revoke_key(tenant_id, key.key_id)

    async def dead():
        try:
            await catalogue.find_key(key.text)
        except Unauthenticated:
            return True
        return False

    await eventually(dead)


async def test_nothing_is_served_from_the_cache_past_its_time(registry: Counting, tenant_id: int):
    """Without looks and notifications an entry is not used beyond the promised time."""
    clock = Time()
    made = Catalogue(registry, clock)
    await registry.deploy(tenant_id, "echo", b"d" * 32, METADATA, b"code")
    await made._look()
    await made.function(tenant_id, "echo")
    clock.now += module.FRESH_SECONDS - 0.01
    assert made.known_function(tenant_id, "echo")
    clock.now += 0.02
    assert made.known_function(tenant_id, "echo") is None
    assert await made.function(tenant_id, "echo")  # it asks the store instead


async def test_while_the_store_is_away_a_miss_fails_at_once_and_all_is_forgotten_after(
    registry: Counting, tenant_id: int
):
    made = Catalogue(registry)
    await registry.deploy(tenant_id, "echo", b"d" * 32, METADATA, b"code")
    await made._look()
    await made.function(tenant_id, "echo")
    registry.cut = True
    with pytest.raises(StoreUnavailable):
        await made._look()
    asked = len(registry.asked)
    with pytest.raises(StoreUnavailable):
        await made.function(tenant_id, "other")
    assert len(registry.asked) == asked  # it was not even tried
    assert made.known_function(tenant_id, "echo")  # known, and still fresh
    registry.cut = False
    await made._look()
    assert made.away is None
    assert made.known_function(tenant_id, "echo") is None


def test_the_least_recently_used_is_forgotten_first():
    kept: Lru[str] = Lru(2)
    kept.put("a", "1")
    kept.put("b", "2")
    assert kept.get("a") == "1"
    kept.put("c", "3")
    assert (kept.get("a"), kept.get("b"), kept.get("c"), len(kept)) == ("1", None, "3", 2)


def test_a_weighed_cache_keeps_at_least_the_last():
    kept: Lru[bytes] = Lru(10, len)
    kept.put("a", b"x" * 6)
    kept.put("b", b"x" * 5)
    assert (kept.get("a"), len(kept)) == (None, 1)
    kept.put("c", b"x" * 50)
    assert (kept.get("c"), len(kept)) == (b"x" * 50, 1)
