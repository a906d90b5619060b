"""A whole platform under load, the means to hurt it, and the books to check afterwards."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import aiohttp

from dgsf.sdk.bundle import pack
from dgsf.sdk.client import Client
from dgsf.store.database import Database
from dgsf.store.ledger import Ledger

START_SECONDS = 180
BACK_SECONDS = 90
FUNCTIONS = {"plain": 0, "patient": 3}
# What a caller may be told while a part is being lost; anything else is a bug.
LAWFUL = {
    "outcome_unknown", "store_unavailable", "unavailable", "no_device", "connection_lost", "shutting_down",
    "start_deadline_missed", "queue_full", "lease_lost", "worker_crashed",
}  # fmt: skip


def quick(x):
    return x


@dataclass
class Platform:
    """A running `dgsf up` and its processes."""

    process: subprocess.Popen
    data_dir: Path
    url: str
    key: str

    def part(self, name):
        """The pid of a part that the supervisor started."""
        deadline = time.monotonic() + BACK_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                for row in json.loads((self.data_dir / "processes.json").read_text()):
                    if row["name"].startswith(name) and alive(row["pid"]):
                        return row["pid"]
            time.sleep(0.05)
        raise AssertionError(f"no {name} is running")

    def descendant(self, *words):
        """The pid of a process below the supervisor whose command line or name has one of these words."""
        deadline = time.monotonic() + BACK_SECONDS
        while time.monotonic() < deadline:
            if found := self.find(*words):
                return found
            time.sleep(0.05)
        raise AssertionError(f"no process of {words} is running")

    def find(self, *words):
        for pid in descendants(self.process.pid):
            if any(word in command_of(pid) for word in words):
                return pid
        return None

    def worker(self):
        """A worker: the youngest generation of a zygote's family."""
        deadline = time.monotonic() + BACK_SECONDS
        while time.monotonic() < deadline:
            below = descendants(self.process.pid)
            zygotes = [pid for pid in below if "dgsf.fabric.zygote" in command_of(pid)]
            leaves = [pid for pid in zygotes if not children_of(pid) and parent_of(pid) in zygotes]
            if leaves:
                return leaves[-1]
            time.sleep(0.05)
        raise AssertionError("no worker is running")

    def database_url(self):
        for text in Path(f"/proc/{self.part('gateway')}/environ").read_bytes().split(b"\0"):
            if text.startswith(b"DGSF_DATABASE_URL="):
                return text.decode().partition("=")[2]
        raise AssertionError("the gateway has no database URL")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(90)


def start_platform(data_dir, *flags, **environment):
    port = free_port()
    words = [sys.executable, "-m", "dgsf.cli", "up", "--port", str(port), "--data-dir", str(data_dir), *flags]
    with open(data_dir.parent / "up.txt", "ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **environment})
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_SECONDS
    while f"ready {url}" not in (data_dir.parent / "up.txt").read_text():
        assert process.poll() is None and time.monotonic() < deadline, (data_dir.parent / "up.txt").read_text()
        time.sleep(0.1)
    key = json.loads((data_dir / "client.json").read_text())["api_key"]
    platform = Platform(process, data_dir, url, key)
    with Client(url, key) as client:
        for name, retries in FUNCTIONS.items():
            quick.__module__ = "__main__"
            assert pack(quick)
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
            headers={"Authorization": f"Bearer {self.platform.key}"}, timeout=aiohttp.ClientTimeout(total=60)
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


# --- processes --------------------------------------------------------------------------------
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def parent_of(pid):
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def children_of(pid):
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [child for child in pids if parent_of(child) == pid]


def descendants(pid):
    below = {}
    for child in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        below.setdefault(parent_of(child), []).append(child)
    found, waiting = [], list(below.get(pid, []))
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting += below.get(child, [])
    return found
