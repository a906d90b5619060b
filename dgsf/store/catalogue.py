"""What a call needs to know of keys and functions, without asking the database each time.

A cache in front of the registry.  It empties when the registry's version number changes: it hears so by
NOTIFY, and looks by itself each second and after every reconnect.  An entry is served only while the last
look is at most `FRESH_SECONDS` old, so a revoked key is dead within that time whatever happens to
notifications.  Looks that miss share one query; what is not there is remembered for a moment.  While the
database is away, a miss fails at once.  Versions and code never change and are kept apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from dgsf.core.binding import Binder, Parameter
from dgsf.core.lookup import nearest
from dgsf.core.options import FunctionOptions, parse_options
from dgsf.errors import DgsfError, NotFound, StoreUnavailable, Unauthenticated
from dgsf.ids import key_digest, key_id_of, same_digest
from dgsf.store.notices import Stop
from dgsf.store.registry import META_CHANNEL, Registry
from dgsf.store.rows import FunctionVersion, Role

log = logging.getLogger(__name__)
FRESH_SECONDS = 2.0
LOOK_SECONDS = 1.0
LOOK_AWAY_SECONDS = 0.2
QUERY_SECONDS = 3.0
ABSENT_SECONDS = 1.0
MAX_ENTRIES = 100_000
MAX_ABSENT = 10_000
MAX_NAMES = 500  # of a tenant's functions, to find the one that was meant
MAX_NAMES_KEPT = 50_000
MAX_CODE_BYTES = 64 * 1024 * 1024
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a key that is valid now."""

    key_id: str
    tenant_id: int
    tenant_name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Function:
    """A version of a function with its options parsed and its binder prepared."""

    version: FunctionVersion
    options: FunctionOptions
    binder: Binder

    @classmethod
    def of(cls, version: FunctionVersion) -> Function:
        signature = version.metadata.get("signature", [])
        return cls(
            version,
            replace(parse_options(version.metadata.get("options", {})), chosen=version.metadata.get("attach", "near")),
            Binder(Parameter(item["name"], item["kind"], item["required"]) for item in signature),
        )


class Lru(Generic[Value]):
    """A bounded mapping that forgets what was not asked for longest; bounded by count or by weight."""

    __slots__ = ("_items", "_limit", "_weigh", "_weight")

    def __init__(self, limit: int, weigh: Callable[[Value], int] | None = None) -> None:
        self._items: OrderedDict[Hashable, Value] = OrderedDict()
        self._limit = limit
        self._weigh = weigh
        self._weight = 0

    def get(self, key: Hashable) -> Value | None:
        found = self._items.get(key)
        if found is not None:
            self._items.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Value) -> None:
        self.drop(key)
        self._items[key] = value
        self._weight += self._weigh(value) if self._weigh else 1
        while self._weight > self._limit and len(self._items) > 1:
            self.drop(next(iter(self._items)))

    def drop(self, key: Hashable) -> None:
        value = self._items.pop(key, None)
        if value is not None:
            self._weight -= self._weigh(value) if self._weigh else 1

    def clear(self) -> None:
        self._items.clear()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._items)


class Catalogue:
    """Keys, functions, versions and code by what a caller knows of them."""

    def __init__(self, registry: Registry, now: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._now = now
        self._keys: Lru[Principal] = Lru(MAX_ENTRIES)
        self._functions: Lru[Function] = Lru(MAX_ENTRIES)
        self._names: Lru[list[str]] = Lru(MAX_NAMES_KEPT, len)
        self._versions: Lru[Function] = Lru(MAX_ENTRIES)
        self._code: Lru[bytes] = Lru(MAX_CODE_BYTES, len)
        self._absent: Lru[float] = Lru(MAX_ABSENT)
        self._asking: dict[Hashable, asyncio.Task[Any]] = {}
        self._seen_version = -1
        self._generation = 0
        self._fresh_until = float("-inf")
        self._away: StoreUnavailable | None = None
        self._wake = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._stop_listening: Stop | None = None

    # --- life
    async def start(self) -> None:
        """Look once (StoreUnavailable if that fails), then keep looking."""
        await self._look()
        self._stop_listening = await self._registry.listen(META_CHANNEL, self._heard)
        self._watcher = asyncio.create_task(self._watch(), name="catalogue")

    async def stop(self) -> None:
        if self._stop_listening is not None:
            await self._stop_listening()
        for task in (self._watcher, *self._asking.values()):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, DgsfError):
                    await task

    @property
    def away(self) -> StoreUnavailable | None:
        """Why the database cannot be asked now, or None."""
        return self._away

    def flush(self) -> None:
        """Forget what can change; for whoever has just changed it."""
        self._generation += 1
        self._keys.clear()
        self._functions.clear()
        self._names.clear()
        self._absent.clear()

    # --- what is known now, without waiting
    def known_key(self, text: str) -> Principal | None:
        # By digest, not by text: how long a look-up takes tells nothing of a key that exists.
        return self._keys.get(key_digest(text)) if self._now() < self._fresh_until else None

    def known_function(self, tenant_id: int, name: str) -> Function | None:
        return self._functions.get((tenant_id, name)) if self._now() < self._fresh_until else None

    def known_version(self, version_id: int) -> Function | None:
        return self._versions.get(version_id)

    # --- what can be known
    async def find_key(self, text: str) -> Principal:
        """Whose key this is; Unauthenticated for an unknown, wrong or revoked one, all alike."""
        found = self.known_key(text)
        if found is None:
            found = await self._ask(("key", key_digest(text)), lambda: self._load_key(text))
        if found is None:
            raise Unauthenticated
        return found

    async def function(self, tenant_id: int, name: str) -> Function:
        """The current version under this name; NotFound if there is none."""
        found = self.known_function(tenant_id, name)
        if found is None:
            found = await self._ask(("function", tenant_id, name), lambda: self._load_function(tenant_id, name))
        if found is None:
            raise await self.no_function(tenant_id, name)
        return found

    async def no_function(self, tenant_id: int, name: str) -> NotFound:
        """What is said of a function that is not there: also which of the tenant's own was probably meant."""
        names = self._names.get(tenant_id)
        if names is None:
            with contextlib.suppress(StoreUnavailable):  # it is not there, with a hint or without
                names = await self._ask(("names", tenant_id), lambda: self._load_names(tenant_id))
        close = nearest(name, names or ())
        return NotFound(f"there is no function {name!r} here" + (f"; did you mean {close!r}?" if close else ""))

    async def version(self, version_id: int) -> Function:
        """A version by its id, old ones too."""
        found = self._versions.get(version_id)
        if found is None:
            found = await self._ask(("version", version_id), lambda: self._load_version(version_id))
        if found is None:
            raise NotFound(f"there is no version {version_id}")
        return found

    async def code(self, version_id: int) -> bytes:
        """The packed code of a version."""
        found = self._code.get(version_id)
        if found is None:
            found = await self._ask(("code", version_id), lambda: self._load_code(version_id))
        if found is None:
            raise NotFound(f"there is no version {version_id}")
        return found

    # --- loading
    async def _load_key(self, text: str) -> Principal | None:
        key_id, digest, generation = key_id_of(text), key_digest(text), self._generation
        row = await self._registry.find_key(key_id) if key_id is not None else None
        if row is None or not same_digest(row.sha256, digest) or row.revoked_at is not None:
            return None
        found = Principal(row.key_id, row.tenant_id, row.tenant_name, row.role)
        if generation == self._generation:  # else it may have changed since it was read
            self._keys.put(digest, found)
        return found

    async def _load_function(self, tenant_id: int, name: str) -> Function | None:
        generation = self._generation
        row = await self._registry.find_function(tenant_id, name)
        if row is None:
            return None
        found = self._versions.get(row.version_id) or Function.of(row)
        self._versions.put(row.version_id, found)
        if generation == self._generation:
            self._functions.put((tenant_id, name), found)
        return found

    async def _load_names(self, tenant_id: int) -> list[str]:
        generation = self._generation
        found = await self._registry.function_names(tenant_id, MAX_NAMES)
        if generation == self._generation:
            self._names.put(tenant_id, found)
        return found

    async def _load_version(self, version_id: int) -> Function | None:
        row = await self._registry.find_version(version_id)
        if row is None:
            return None
        found = Function.of(row)
        self._versions.put(version_id, found)
        return found

    async def _load_code(self, version_id: int) -> bytes:
        found = await self._registry.code_of(version_id)
        self._code.put(version_id, found)
        return found

    async def _ask(self, key: Hashable, load: Callable[[], Awaitable[Value]]) -> Value | None:
        """One query however many wait for it; nobody's cancellation ends it for the others."""
        absent_until = self._absent.get(key)
        if absent_until is not None and self._now() < min(absent_until, self._fresh_until):
            return None
        if self._away is not None:
            raise StoreUnavailable(self._away.message)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._query(key, load))
            task.add_done_callback(lambda done: self._asked(key, done))
        found: Value | None = await asyncio.shield(task)
        return found

    def _asked(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # looked at here, in case everybody who waited has gone

    async def _query(self, key: Hashable, load: Callable[[], Awaitable[Value]]) -> Value:
        generation = self._generation
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                found = await load()
        except (StoreUnavailable, TimeoutError) as error:
            raise self._went_away(error) from error
        if found is None and generation == self._generation:
            self._absent.put(key, self._now() + ABSENT_SECONDS)
        return found

    # --- watching
    def _heard(self) -> None:
        """A notification, or a new connection that may have missed some."""
        self._wake.set()

    async def _watch(self) -> None:
        while True:
            pause = LOOK_SECONDS if self._away is None else LOOK_AWAY_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
            try:
                await self._look()
            except StoreUnavailable:
                continue
            except Exception:
                log.exception("catalogue_look_failed")

    async def _look(self) -> None:
        """Compare the registry's version; what was read before this look began is good for a while."""
        began = self._now()
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                version = await self._registry.meta_version()
        except (StoreUnavailable, TimeoutError) as error:
            raise self._went_away(error) from error
        if version != self._seen_version or self._away is not None:
            self._seen_version = version
            self.flush()
        if self._away is not None:
            self._away = None
            log.info("catalogue_store_back")
        self._fresh_until = began + FRESH_SECONDS

    def _went_away(self, error: BaseException) -> StoreUnavailable:
        if self._away is None:
            log.warning("catalogue_store_away", extra={"error": str(error)})
            self._away = error if isinstance(error, StoreUnavailable) else StoreUnavailable()
            self._wake.set()
        return StoreUnavailable(self._away.message)
