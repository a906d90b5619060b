"""Makes a store look old: many functions, and a million calls with their charges and postings.

Rows go into the real schema in bulk, in the order of time, with ids as the platform mints them; afterwards
the ledger's own check holds, as it does for calls that really ran.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from dgsf.ids import CallIds
from dgsf.sdk.manifest import manifest_of
from dgsf.store.database import Database
from dgsf.store.registry import Registry
from loadtests.ours import BENCH, function_of

TENANTS = 100
_CHUNK = 50_000
_CALLS_A_SECOND = 20
_COLUMNS = (
    "id", "tenant_id", "version_id", "state", "attempt", "device_id", "queue_us", "device_us", "cost_nano",
    "created_at", "finished_at", "charged",
)  # fmt: skip
_FUNCTIONS = """
WITH named AS (
    INSERT INTO functions (tenant_id, name)
    SELECT ($1::bigint[])[1 + i % cardinality($1::bigint[])], 'load.f' || lpad(i::text, 6, '0')
    FROM generate_series(0, $2::int - 1) AS i
    RETURNING id
)
INSERT INTO function_versions (function_id, number, digest, metadata, code)
SELECT id, 1, $3, $4::text::jsonb, $5 FROM named ORDER BY id
"""
_CURRENT = "UPDATE functions f SET current_version_id = v.id FROM function_versions v WHERE v.function_id = f.id"
_VERSIONS = "SELECT v.id, f.tenant_id FROM function_versions v JOIN functions f ON f.id = v.function_id ORDER BY v.id"
_CHARGES = """
INSERT INTO charges (call_id, kind, id, tenant_id, version_id, device_us, amount_nano, created_at)
SELECT id, 'usage', id, tenant_id, version_id, device_us, cost_nano, finished_at FROM calls ORDER BY id
"""
_POSTINGS = """
INSERT INTO postings (charge_id, account_id, amount_nano)
SELECT c.id, side.account_id, side.amount
FROM charges c
JOIN accounts payer ON payer.tenant_id = c.tenant_id
JOIN accounts revenue ON revenue.tenant_id IS NULL
CROSS JOIN LATERAL (VALUES (payer.id, -c.amount_nano), (revenue.id, c.amount_nano)) AS side (account_id, amount)
ORDER BY c.id
"""
Owner = tuple[int, int]  # a version and its tenant


async def add_functions(database: Database, count: int) -> list[Owner]:
    """Functions spread over the tenants, each with one version of real code."""
    registry = Registry(database)
    tenant_ids = [await registry.create_tenant(f"tenant {number}") for number in range(TENANTS)]
    function = function_of(BENCH, "bench.echo")
    bundle = function.bundle()
    manifest = msgspec.json.encode(manifest_of(function.raw, function.options, bundle.digest)).decode()
    connection = await database.open_connection(command_timeout=None)
    try:
        async with connection.transaction():
            digest = bytes.fromhex(bundle.digest)
            await connection.execute(_FUNCTIONS, tenant_ids, count, digest, manifest, bundle.code)
            await connection.execute(_CURRENT)
        return [(record["id"], record["tenant_id"]) for record in await connection.fetch(_VERSIONS)]
    finally:
        await connection.close()


async def add_calls(database: Database, owners: Sequence[Owner], count: int, say: Callable[[str], None]) -> None:
    """Past calls that all succeeded, with what they cost."""
    connection = await database.open_connection(command_timeout=None)
    try:
        for chunk in _chunks(owners, count):
            await connection.copy_records_to_table("calls", schema_name="dgsf", columns=_COLUMNS, records=chunk)
        say(f"{count:,} calls copied; adding their charges and postings")
        await connection.execute(_CHARGES)
        await connection.execute(_POSTINGS)
    finally:
        await connection.close()


async def tidy(database: Database) -> None:
    """What autovacuum and the checkpointer would otherwise do in the middle of the measurement."""
    connection = await database.open_connection(command_timeout=None)
    try:
        await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _chunks(owners: Sequence[Owner], count: int) -> Iterator[list[tuple[object, ...]]]:
    rng, ids = random.Random(7), CallIds(random.Random(7))
    begin = datetime.now(UTC) - timedelta(seconds=count / _CALLS_A_SECOND + 60)
    for first in range(0, count, _CHUNK):
        numbers = range(first, min(first + _CHUNK, count))
        yield [_call(rng, ids, owners, begin + timedelta(seconds=number / _CALLS_A_SECOND)) for number in numbers]


def _call(rng: random.Random, ids: CallIds, owners: Sequence[Owner], at: datetime) -> tuple[object, ...]:
    version_id, tenant_id = owners[int(rng.random() * len(owners))]
    used = int(rng.expovariate(1 / 20_000)) + 1
    call_id = ids.mint(proxy_number=1, now_ms=int(at.timestamp() * 1000))
    end = at + timedelta(microseconds=used)
    return (call_id, tenant_id, version_id, "succeeded", 1, 1, 100, used, used, at, end, True)
