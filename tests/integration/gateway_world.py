"""A running gateway over a real Postgres; only the workers behind its port are played here.

`Workers` is a CallPort: it answers calls as a proxy would, commits what a proxy commits, and notes what it
was asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import asyncpg
import msgspec

from dgsf.config import Settings
from dgsf.errors import FunctionCancelled, OutcomeUnknown, StoreUnavailable, by_code
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Catalogue
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.registry import Registry
from dgsf.store.rows import FinishedCall, Role
from dgsf.wire import stored
from dgsf.wire.messages import Codec, Failure
from dgsf.wire.ports import CallRequest, CallResult, CallStream, Payload
from dgsf.wire.shared import SharedArea
from gateway.context import Context
from gateway.server import Gateway

MIB = 1024 * 1024
ANY_ARGUMENTS = [
    {"name": "args", "kind": "VAR_POSITIONAL", "required": False},
    {"name": "kwargs", "kind": "VAR_KEYWORD", "required": False},
]
ONE_ARGUMENT = [{"name": "x", "kind": "POSITIONAL_OR_KEYWORD", "required": True}]
Behaviour = Callable[[CallRequest], CallResult]


def echo(request: CallRequest) -> CallResult:
    """The payload as it came, in its own codec."""
    given = request.payload
    if given.path:
        again = f"{given.path}-result"
        os.link(given.path, again)
        payload = Payload(Codec.raw if given.codec == Codec.raw else given.codec, b"", again, given.size)
    else:
        payload = Payload(given.codec, given.data, "", given.size)
    return CallResult("succeeded", payload, None, 11, 22, 33, "cpu-0")


def failing(code: str, text: str = "", **details: Any) -> Behaviour:
    billed = by_code(code).billable
    failure = Failure(code, text or f"it is {code}", details)
    return lambda request: CallResult("failed", None, failure, 11, 22 if billed else 0, 0, "cpu-0")


class Workers:
    """Answers calls; keyed ones are committed with their answer, as a proxy does."""

    def __init__(self, calls: CallStore) -> None:
        self._calls = calls
        self.behaviour: Behaviour = echo
        self.held: asyncio.Event | None = None
        self.seen: list[CallRequest] = []
        self.cancelled: list[CallRequest] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def reset(self) -> None:
        """As at the beginning: echo, nothing held, nothing seen."""
        self.behaviour, self.held = echo, None
        self.seen.clear()
        self.cancelled.clear()

    def number_for(self, version_id: int) -> int:
        return 7

    def open(self, request: CallRequest) -> CallStream:
        self.seen.append(request)
        stopped = asyncio.Event()

        def cancel() -> None:
            self.cancelled.append(request)
            stopped.set()

        stream = CallStream(cancel)
        task = asyncio.create_task(self._serve(request, stream, stopped))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return stream

    def hold(self) -> asyncio.Event:
        """Calls wait from now on until the event is set."""
        self.held = asyncio.Event()
        return self.held

    async def _serve(self, request: CallRequest, stream: CallStream, stopped: asyncio.Event) -> None:
        if self.held is not None:
            await _first(self.held.wait(), stopped.wait())
        result = failing(FunctionCancelled.code)(request) if stopped.is_set() else self.behaviour(request)
        code = result.failure.code if result.failure else ""
        if code not in ("queue_full", "outcome_unknown"):
            try:
                await self._commit(request, result)
            except StoreUnavailable:  # as the real proxy does: every call gets an answer
                result = failing(OutcomeUnknown.code)(request)
        stream.finish(result)

    async def _commit(self, request: CallRequest, result: CallResult) -> None:
        code = result.failure.code if result.failure else None
        row = FinishedCall(
            id=request.id,
            attempt=request.attempt,
            tenant_id=request.tenant_id,
            version_id=request.version_id,
            state=result.state,
            error_code=code,
            device_id=None,
            queue_us=result.queue_us,
            device_us=result.device_us,
            cost_nano=result.cost_nano,
            created_at=time.time(),
            charged=code is None or by_code(code).billable,
            response=stored.encode(result) if request.keep else None,
        )
        await self._calls.finish([row])


async def _first(*waits: Any) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def packed(code: bytes = b"code", **changes: Any) -> bytes:
    """The body of a deploy."""
    metadata = {
        "signature": ANY_ARGUMENTS,
        "options": {},
        "python": "3.11",
        "digest": hashlib.sha256(code).hexdigest(),
        **changes,
    }
    head = msgspec.json.encode(metadata)
    return struct.pack(">I", len(head)) + head + code


class Answer:
    """What came back, read whole."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        return str(self.json["code"])


class World:
    """One gateway, one tenant with a key of each role, one device."""

    def __init__(self, database: Database, gateway: Gateway, context: Context, workers: Workers) -> None:
        self.database = database
        self.gateway = gateway
        self.context = context
        self.workers = workers
        self.registry = context.registry
        self.calls = context.calls
        self.area = context.area
        self.keys: dict[str, str] = {}
        self.key_ids: dict[str, str] = {}
        self.tenant_id = 0
        self.port = 0
        self.http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(self, method: str, path: str, *, key: str | None = "operator", **options: Any) -> Answer:
        headers = dict(options.pop("headers", {}))
        data = options.get("data")
        if isinstance(data, bytes) and len(data) > MIB:
            options["data"] = io.BytesIO(data)  # the client sends this in pieces
        if key is not None:
            headers.setdefault("Authorization", f"Bearer {self.keys.get(key, key)}")
        async with self.http.request(method, self.url + path, headers=headers, **options) as reply:
            return Answer(reply.status, reply.headers.copy(), await reply.read())

    async def call(
        self, name: str = "echo", body: Any = b"{}", kind: str = "application/json", **headers: str
    ) -> Answer:
        given = {"Content-Type": kind, **{header.replace("_", "-"): value for header, value in headers.items()}}
        return await self.ask("POST", f"/v1/functions/{name}/invoke", key="invoke", data=body, headers=given)

    async def deploy(self, name: str = "echo", **changes: Any) -> Answer:
        return await self.ask("PUT", f"/v1/functions/{name}", data=packed(**changes))

    def shared_files(self) -> list[str]:
        """Payloads that somebody still holds; files kept for the next ones do not count."""
        found = [path for path in self.area.folder.rglob("*") if path.is_file() and path.parent.name != "kept"]
        return [str(path) for path in found]


@contextlib.asynccontextmanager
async def fresh_database(server_url: str) -> AsyncIterator[Database]:
    """A migrated database for a whole module of tests."""
    name = f"g_{uuid4().hex}"
    await _administer(server_url, f"CREATE DATABASE {name} TEMPLATE migrated STRATEGY file_copy")
    database = await Database.connect(urlsplit(server_url)._replace(path=f"/{name}").geturl(), timeout=30.0)
    try:
        yield database
    finally:
        await database.close()
        await _administer(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def running(database: Database, **changes: Any) -> AsyncIterator[World]:
    """A gateway that listens, and everything behind it."""
    settings = Settings().with_changes(**changes)
    area = SharedArea(f"dgsf-test-{uuid4().hex[:12]}")
    area.make()
    registry = Registry(database)
    catalogue = Catalogue(registry)
    workers = Workers(CallStore(database))
    context = Context.over(database, settings, workers, area, catalogue)
    gateway = Gateway(context)
    world = World(database, gateway, context, workers)
    await catalogue.start()
    try:
        world.port = await gateway.start("127.0.0.1", 0)
        async with aiohttp.ClientSession(auto_decompress=False) as http:
            world.http = http
            await furnish(world)
            yield world
    finally:
        await gateway.stop(2.0)
        await catalogue.stop()
        area.remove()


async def furnish(world: World) -> None:
    world.tenant_id = await world.registry.create_tenant("acme")
    for role in Role:
        key = await world.registry.create_key(world.tenant_id, role, f"{role.value} key")
        world.keys[role.value], world.key_ids[role.value] = key.text, key.key_id
    await add_device(world.database, "cpu-0", "cpu")
    metadata = {"signature": ANY_ARGUMENTS, "options": {}, "python": "3.11"}
    await world.registry.deploy(world.tenant_id, "echo", b"d" * 32, metadata, b"code")
    await world.registry.deploy(world.tenant_id, "one", b"d" * 32, {**metadata, "signature": ONE_ARGUMENT}, b"code")
    again = {**metadata, "options": {"retries": 2}}
    await world.registry.deploy(world.tenant_id, "again", b"d" * 32, again, b"code")


async def add_device(database: Database, name: str, kind: str, memory: int = 4096 * MIB) -> None:
    await DeviceStore(database).register(
        name=name,
        node="here",
        kind="cpu" if kind == "cpu" else "sim",
        type=kind,
        memory_bytes=memory,
        slots=4,
        speed=1.0,
        price_nano_per_us=1,
        host_id="h",
        unix_path="/nowhere",
        tcp_host=None,
        tcp_port=None,
    )


async def eventually(holds: Callable[[], Any], seconds: float = 90.0) -> Any:
    """The first true answer; looks again and again, up to a generous deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)
