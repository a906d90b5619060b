"""Group commit: batches, halves, unknown outcomes."""

import asyncio

from dgsf.errors import DgsfError, OutcomeUnknown, StoreUnavailable
from dgsf.store import groupcommit
from dgsf.store.groupcommit import GroupCommit


class Store:
    """Stands for the database: refuses what is in `bad`, is away while `away`."""

    def __init__(self):
        self.bad = set()
        self.unsettleable = set()
        self.settle_tries = 0
        self.probe_errors = []
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
        if row in self.unsettleable:
            self.settle_tries += 1
            raise ValueError("cannot be settled")
        self.settled.append(row)

    async def probe(self):
        if self.away:
            raise StoreUnavailable
        if self.probe_errors:
            raise self.probe_errors.pop()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def committed(store, rows):
    """Submit all in one turn; their answers in order."""
    commits = GroupCommit(store.flush, store.settle, store.probe)
    commits.start()
    answers = {}
    for row in rows:
        commits.submit(row, lambda answer, row=row: answers.setdefault(row, answer))
    async with asyncio.timeout(60):
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
    assert all(isinstance(answer, OutcomeUnknown) for answer in answers)
    assert not commits.available
    refused = []
    commits.submit(99, refused.append)
    assert isinstance(refused[0], OutcomeUnknown)
    store.away = False
    await until(lambda: commits.available and len(store.settled) == 4)
    assert sorted(store.settled) == [0, 1, 2, 99]
    await commits.stop()


async def test_stop_flushes_what_waits():
    store = Store()
    commits = GroupCommit(store.flush, store.settle, store.probe)
    commits.start()
    answers = []
    commits.submit(1, answers.append)
    await commits.stop()
    assert answers == ["ok"]


async def test_rows_behind_a_lost_flush_are_told_and_settled_too():
    store = Store()
    store.gate.clear()
    commits = GroupCommit(store.flush, store.settle, store.probe, max_batch=1)
    commits.start()
    answers = []
    for row in range(3):
        commits.submit(row, answers.append)
    store.away = True
    store.gate.set()
    await until(lambda: len(answers) == 3)
    assert {answer.code for answer in answers} == {"outcome_unknown"}
    assert not any(answer.retryable for answer in answers)
    store.away = False
    await until(lambda: len(store.settled) == 3)
    assert not store.landed
    await commits.stop()


async def test_a_row_that_cannot_be_settled_is_dropped_after_three_tries_and_blocks_nobody():
    store = Store()
    store.away, store.unsettleable = True, {0}
    commits, _ = await committed(store, range(3))
    store.away = False
    await until(lambda: store.settle_tries == groupcommit.SETTLE_TRIES)
    await until(lambda: sorted(store.settled) == [1, 2])
    await commits.stop()
    assert store.settle_tries == groupcommit.SETTLE_TRIES


async def test_an_unexpected_error_of_the_probe_does_not_end_the_recovery():
    store = Store()
    store.away, store.probe_errors = True, [ValueError("odd"), ValueError("odd")]
    commits, _ = await committed(store, range(2))
    store.away = False
    await until(lambda: commits.available and len(store.settled) == 2)
    await commits.stop()


async def test_a_caller_that_raises_does_not_end_the_flushes():
    store = Store()
    commits = GroupCommit(store.flush, store.settle, store.probe)
    commits.start()
    answers = []

    def broken(_):
        raise RuntimeError("nobody here")

    commits.submit(1, broken)
    commits.submit(2, answers.append)
    await until(lambda: answers)
    commits.submit(3, answers.append)
    await until(lambda: len(answers) == 2)
    assert answers == ["ok", "ok"]
    await commits.stop()


async def test_stop_settles_what_is_unknown(monkeypatch):
    monkeypatch.setattr(groupcommit, "LAST_SETTLE_SECONDS", 20)
    store = Store()
    store.away = True
    commits, _ = await committed(store, range(3))
    store.away = False
    await commits.stop()
    assert sorted(store.settled) == [0, 1, 2]


async def test_stop_says_what_it_could_not_settle(monkeypatch, caplog):
    monkeypatch.setattr(groupcommit, "LAST_SETTLE_SECONDS", 0.3)
    store = Store()
    store.away = True
    commits, _ = await committed(store, range(2))
    await commits.stop()
    left = next(record for record in caplog.records if record.message == "rows_left_unsettled")
    assert sorted(left.rows) == ["0", "1"]
