"""Does the store stay fast when it is full?  The flush statement on an empty store and on one with a past.

Two embedded servers run side by side and are asked in turn.  Both get the same kind of flush, calls of a
hundred tenants; they differ in what they hold: one has a function for each tenant and no calls, the other
thousands of functions and a million calls with their charges and postings.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from dgsf.ids import CallIds
from dgsf.store.calls import CallStore
from dgsf.store.database import Database
from dgsf.store.embedded import EmbeddedPostgres
from dgsf.store.ledger import Ledger
from dgsf.store.migrate import migrate
from dgsf.store.rows import FinishedCall, Outcome
from loadtests import machine
from loadtests.plan import Plan, rotated
from loadtests.report import Section, at_most, compare
from loadtests.store_fill import TENANTS, Owner, add_calls, add_functions, tidy

_FLUSHES = 40  # of one size, on one store, in one round
SIZES = (64, 1)
_GOAL = 1.1
Times = dict[tuple[str, int], list[float]]
Stores = dict[str, tuple[Database, Sequence[Owner]]]
_ids, _rng = CallIds(), random.Random(3)


def measure(plan: Plan) -> Section:
    return asyncio.run(_measure(plan))


async def _measure(plan: Plan) -> Section:
    section = Section("Store with a past")
    async with _store(plan.folder / "empty") as empty, _store(plan.folder / "full") as full:
        few = await add_functions(empty, TENANTS)
        await tidy(empty)
        plan.say(f"filling a store with {plan.functions:,} functions and {plan.calls:,} calls")
        began = time.monotonic()
        many = await add_functions(full, plan.functions)
        await add_calls(full, many, plan.calls, plan.say)
        await tidy(full)
        section.facts["filled in"] = f"{time.monotonic() - began:.0f} s"
        section.facts["size of the full store"] = await _size(full)
        medians = await _rounds(plan, {"empty": (empty, few), "full": (full, many)})
        section.facts["ledger of the full store"] = await Ledger(full).check()
    for size in SIZES:
        what = f"flush of {size} call{'s' if size > 1 else ''}, full ÷ empty"
        section.rows.append(compare(what, medians["full", size], medians["empty", size], at_most(_GOAL), "us"))
    section.raw = {f"{name}, {size} rows": values for (name, size), values in medians.items()}
    return section


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[Database]:
    server = EmbeddedPostgres(folder, run_dir=folder)
    url = await server.start()
    try:
        database = await Database.connect(url, name="loadtests", max_size=1)
        try:
            await migrate(database)
            yield database
        finally:
            await database.close()
    finally:
        await server.stop()


async def _rounds(plan: Plan, stores: Stores) -> Times:
    """The p50 of each round."""
    medians: Times = {(name, size): [] for name in stores for size in SIZES}
    for size in SIZES:
        await _round(stores, size, 0)  # plans, caches, first pages
    for number in range(plan.rounds):
        for size in SIZES:
            machine.settle()
            for name, took in (await _round(stores, size, number)).items():
                medians[name, size].append(median(took))
        told = "  ".join(f"{name} x{size} {values[-1]:,.0f} us" for (name, size), values in medians.items())
        plan.say(f"round {number + 1}/{plan.rounds}  {told}")
    return medians


async def _round(stores: Stores, size: int, number: int) -> dict[str, list[float]]:
    """Microseconds of single flushes, one store after the other, so that both meet the same weather."""
    took: dict[str, list[float]] = {name: [] for name in stores}
    for turn in range(_FLUSHES):
        for name in rotated(list(stores), number + turn):
            took[name].append(await _flush(*stores[name], size))
    return took


async def _flush(database: Database, owners: Sequence[Owner], size: int) -> float:
    rows = [_finished(_ids, _rng.choice(owners)) for _ in range(size)]
    store = CallStore(database)
    began = time.perf_counter_ns()
    outcomes = await store.finish(rows)
    took = (time.perf_counter_ns() - began) / 1000
    assert all(outcome is Outcome.accepted for outcome in outcomes)
    return took


def _finished(ids: CallIds, owner: Owner) -> FinishedCall:
    version_id, tenant_id = owner
    return FinishedCall(ids.mint(1), 1, tenant_id, version_id, "succeeded", None, 1, 50, 200, 200, time.time(), True)


async def _size(database: Database) -> dict[str, object]:
    async with database.acquire() as connection:
        counts = {
            name: await connection.fetchval(f"SELECT count(*) FROM {name}", timeout=60)
            for name in ("functions", "calls", "charges", "postings")
        }
        size = await connection.fetchval("SELECT pg_size_pretty(pg_database_size(current_database()))")
    return {**counts, "on disk": size}
