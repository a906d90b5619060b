"""Group commit: batches, halves, unknown outcomes."""

import asyncio

from dgsf.errors import DgsfError, StoreUnavailable
from dgsf.store.groupcommit import GroupCommit


class Store:
    """Stands for the database: refuses what is in `bad`, is away while `away`."""

    def __init__(self):
        self.bad = set()
        self.away = False
        self.landed = []
        self.settled = []
        self.batches = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def flush(self, rows):
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable
        self.batches.append(len(rows))
        if self.bad & set(rows):
            raise ValueError("a bad row")
        self.landed += rows
        return ["ok"] * len(rows)

    async def settle(self, row):
        if self.away:
            raise StoreUnavailable
        self.settled.append(row)

    async def probe(self):
        if self.away:
            raise StoreUnavailable


async def committed(store, rows):
    """Submit all in one turn; their answers in order."""
    commits = GroupCommit(store.flush, store.settle, store.probe)
    commits.start()
    answers = {}
    for row in rows:
        commits.submit(row, lambda answer, row=row: answers.setdefault(row, answer))
    async with asyncio.timeout(20):
        while len(answers) < len(rows):
            await asyncio.sleep(0)
    return commits, [answers[row] for row in rows]


async def test_rows_of_one_turn_leave_in_one_flush():
    store = Store()
    commits, answers = await committed(store, range(100))
    assert answers == ["ok"] * 100
    assert store.batches == [100]
    await commits.stop()


async def test_one_bad_row_does_not_fail_its_neighbours():
    store = Store()
    store.bad = {37}
    commits, answers = await committed(store, range(64))
    assert [row for row, answer in enumerate(answers) if answer != "ok"] == [37]
    assert isinstance(answers[37], DgsfError)
    assert store.landed == [row for row in range(64) if row != 37]
    await commits.stop()


async def test_a_lost_store_fails_at_once_and_is_settled_when_it_is_back():
    store = Store()
    store.away = True
    commits, answers = await committed(store, range(3))
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert not commits.available
    refused = []
    commits.submit(99, refused.append)
    assert isinstance(refused[0], StoreUnavailable)
    store.away = False
    async with asyncio.timeout(20):
        while not commits.available:
            await asyncio.sleep(0.01)
    assert store.settled == [0, 1, 2]
    await commits.stop()


async def test_stop_flushes_what_waits():
    store = Store()
    commits = GroupCommit(store.flush, store.settle, store.probe)
    commits.start()
    answers = []
    commits.submit(1, answers.append)
    await commits.stop()
    assert answers == ["ok"]
