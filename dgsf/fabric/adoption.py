"""Which of the registered device servers are still there.

A new controller asks each of them once more, all at the same time.  One that answers with the incarnation
in its row is kept as it is, with its workers and its leases; Ray is not needed for that.  So is one on
our own host that is only slow to answer: the heartbeat will tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dgsf.core.pool import ALIVE
from dgsf.errors import DgsfError
from dgsf.fabric.pulse import Pulse, Target
from dgsf.store.rows import DeviceRow
from dgsf.wire.link import Address

_ANSWER_SECONDS = 1.5  # silence for as long as makes a device on another host lost


async def adoptable(rows: Sequence[DeviceRow], secret: bytes, *, here: str, tcp: bool) -> list[tuple[DeviceRow, bool]]:
    """Each row with whether its server lives."""
    return list(await asyncio.gather(*(_ask(row, secret, here=here, tcp=tcp) for row in rows)))


async def _ask(row: DeviceRow, secret: bytes, *, here: str, tcp: bool) -> tuple[DeviceRow, bool]:
    if row.state not in {state.value for state in ALIVE}:
        return row, False
    address = Address.of(row)
    pulse = Pulse(Target(row.name, row.incarnation, address), secret, here=here, tcp=tcp)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            health = await pulse.ask()
    except TimeoutError:
        return row, address.host_id == here
    except DgsfError:
        return row, False
    finally:
        pulse.close()
    return row, health.incarnation == row.incarnation
