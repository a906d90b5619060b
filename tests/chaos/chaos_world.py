"""A whole platform under load, the means to hurt it, and the books to check afterwards."""

import asyncio
import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import aiohttp
from platforms import Platform

from dgsf.sdk.client import Client
from dgsf.store.database import Database
from dgsf.store.ledger import Ledger
from dgsf.supervisor.leftovers import identity

BACK_SECONDS = 90
FUNCTIONS = {"plain": 0, "patient": 3}
# What a caller may be told while a part is being lost; anything else is a bug.
LAWFUL = {
    "outcome_unknown", "store_unavailable", "unavailable", "no_device", "connection_lost", "shutting_down",
    "start_deadline_missed", "queue_full", "lease_lost", "worker_crashed",
}  # fmt: skip


def quick(x):
    return x


class HurtPlatform(Platform):
    """A platform whose processes can be told apart and killed."""

    def part(self, name):
        """The pid of a part that the supervisor started."""
        return self.wait_for(lambda: next((pid for known, pid in self._parts() if known.startswith(name)), None), name)

    def _parts(self):
        with contextlib.suppress(OSError, ValueError):
            rows = json.loads((self.data_dir / "processes.json").read_text())
            return [(row["name"], row["pid"]) for row in rows if identity(row["pid"])]
        return []

    def descendant(self, words):
        """The pid of a process whose command line has these words."""
        return self.wait_for(lambda: next(iter(self.find(words)), None), words)

    def workers(self):
        """The pids of all workers: the children of zygotes, which run as users of their own."""

        def children():
            found = self.find("dgsf.fabric.zygote")
            zygotes = children_of(pid for pid in found if parent_of(pid) not in found)  # below their keepers
            return children_of(zygotes) or None

        return self.wait_for(children, "worker")

    def wait_for(self, look, what):
        found = None

        def there():
            nonlocal found
            found = look()
            return found is not None

        self.wait_until(there, what)
        return found

    def database_url(self):
        for text in Path(f"/proc/{self.part('gateway')}/environ").read_bytes().split(b"\0"):
            if text.startswith(b"DGSF_DATABASE_URL="):
                return text.decode().partition("=")[2]
        raise AssertionError("the gateway has no database URL")


def start_platform(data_dir, *flags, **environment):
    platform = HurtPlatform(data_dir, *flags, environment=environment).wait_ready()
    quick.__module__ = "__main__"
    with Client(platform.url, platform.api_key) as client:
        for name, retries in FUNCTIONS.items():
            client.deploy(quick, name=name, options={"retries": retries, "timeout": 4})
    return platform


@dataclass
class Story:
    """What the callers saw."""

    acknowledged: list[UUID] = field(default_factory=list)
    refused: list[tuple[str, UUID | None]] = field(default_factory=list)
    broken: int = 0  # connections that ended without an answer
    unlawful: list[str] = field(default_factory=list)
    by_function: dict[str, list[int]] = field(default_factory=dict)


class Load:
    """Callers that go on until told to stop."""

    def __init__(self, platform, callers=8):
        self.platform = platform
        self.story = Story()
        self._callers = callers
        self._stop = False
        self._tasks = []
        self._last_good = 0.0

    async def __aenter__(self):
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.platform.api_key}"}, timeout=aiohttp.ClientTimeout(total=60)
        )
        self._tasks = [asyncio.create_task(self._call_on(number)) for number in range(self._callers)]
        await self.good_since(time.monotonic(), 20)
        return self

    async def __aexit__(self, *_):
        self._stop = True
        await asyncio.gather(*self._tasks)
        await self._session.close()

    async def good_since(self, moment, count=1):
        """Until so many calls that began after this moment have succeeded."""
        self._since, self._good = moment, 0
        async with asyncio.timeout(BACK_SECONDS):
            while self._good < count:
                await asyncio.sleep(0.02)

    async def until(self, condition):
        """Until this holds, while the load goes on."""
        async with asyncio.timeout(BACK_SECONDS):
            while not condition():
                await asyncio.sleep(0.05)

    async def _call_on(self, number):
        names = list(FUNCTIONS)
        count = 0
        while not self._stop:
            name = names[(number + count) % len(names)]
            count += 1
            began = time.monotonic()
            try:
                await self._call(name, count, began)
            except (aiohttp.ClientError, TimeoutError):
                self.story.broken += 1
                await asyncio.sleep(0.02)

    async def _call(self, name, count, began):
        url = f"{self.platform.url}/v1/functions/{name}/invoke"
        async with self._session.post(url, json=[count]) as answer:
            body = await answer.read()
            call_id = answer.headers.get("X-Call-Id")
        self.story.by_function.setdefault(name, []).append(answer.status)
        if answer.status == 200:
            assert json.loads(body) == count
            self.story.acknowledged.append(UUID(call_id))
            self._good += began >= getattr(self, "_since", 0)
            return
        problem = json.loads(body)
        self.story.refused.append((problem["code"], UUID(call_id) if call_id else None))
        if problem["code"] not in LAWFUL:
            self.story.unlawful.append(body.decode()[:500])
        await asyncio.sleep(0.05)


async def check_books(platform, story):
    """Every acknowledged call has just one charge, nobody else pays, and the books balance."""
    assert story.unlawful == []
    database = await database_of(platform)
    try:
        check = await Ledger(database).check()
        assert check.clean, check
        async with database.acquire() as connection:
            rows = await connection.fetch(
                "SELECT c.id, c.state, count(h.*) FILTER (WHERE h.kind = 'usage') AS usage,"
                " count(h.*) FILTER (WHERE h.kind = 'refund') AS refund"
                " FROM calls c LEFT JOIN charges h ON h.call_id = c.id GROUP BY c.id"
            )
    finally:
        await database.close()
    books = {row["id"]: (row["state"], row["usage"], row["refund"]) for row in rows}
    wrong = {call: books.get(call) for call in story.acknowledged if books.get(call) != ("succeeded", 1, 0)}
    assert not wrong, f"{len(wrong)} of {len(story.acknowledged)} acknowledged calls: {list(wrong.items())[:3]}"
    assert len(set(story.acknowledged)) == len(story.acknowledged)
    for code, call in story.refused:
        state, usage, refund = books.get(call, ("none", 0, 0))
        assert usage == refund or code == "worker_crashed", (code, call, state, usage, refund)


async def database_of(platform):
    async with asyncio.timeout(BACK_SECONDS):
        while True:
            try:
                return await Database.connect(platform.database_url())
            except Exception:
                await asyncio.sleep(0.1)


def children_of(pids):
    parents = set(pids)
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) in parents]


def parent_of(pid):
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
