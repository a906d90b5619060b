"""Which of the registered device servers are still there.

A new controller asks each of them once more, all at the same time.  One that answers with the incarnation
in its row is kept as it is, with its workers and its leases; Ray is not needed for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dgsf.core.pool import ALIVE
from dgsf.errors import DgsfError
from dgsf.fabric.pulse import Pulse, Target
from dgsf.store.rows import DeviceRow
from dgsf.wire.link import Address

_ANSWER_SECONDS = 1.5  # silence for as long as makes a device lost in any case


async def adoptable(rows: Sequence[DeviceRow], secret: bytes, *, here: str, tcp: bool) -> list[tuple[DeviceRow, bool]]:
    """Each row with whether its server lives."""
    return list(await asyncio.gather(*(_ask(row, secret, here=here, tcp=tcp) for row in rows)))


async def _ask(row: DeviceRow, secret: bytes, *, here: str, tcp: bool) -> tuple[DeviceRow, bool]:
    if row.state not in {state.value for state in ALIVE}:
        return row, False
    pulse = Pulse(Target(row.name, row.incarnation, Address.of(row)), secret, here=here, tcp=tcp)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            health = await pulse.ask()
    except (DgsfError, TimeoutError):
        return row, False
    finally:
        pulse.close()
    return row, health.incarnation == row.incarnation
