"""Why a request was not placed: because no device or node is large enough even when it is empty, or only for now.

What a pool has in all is compared, as `matching.why_not` does for single devices.  Pure words; the placer asks once
for each shape of request.
"""

from __future__ import annotations

import numpy as np

from dgsf.core.placement.model import Refusal, Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Ints, Pool
from dgsf.core.sizes import describe_bytes


def refusal(pool: Pool, need: Need) -> Refusal:
    """The reason for a request that has no place now; it does not depend on what is taken."""
    types = need.rank >= 0
    if not types.any():
        there = ", ".join(sorted({name for name, _ in pool.names if name})) or "none"
        return Refusal(f"no device of type {' or '.join(need.request.types)}; the pool has: {there}", ever=False)
    never = _never(pool, need, types)
    return Refusal(f"{_nobody(need)} {_asked(need)} free now") if never is None else Refusal(never, ever=False)


def _never(pool: Pool, need: Need, types: Bools) -> str | None:
    """Why not even an empty pool would do; None: it would."""
    request, wanted = need.request, need.devices
    large = pool.memory_size >= request.memory_bytes
    devices = (pool.sized & large).sum(axis=1)
    processors, hosts = pool.cpu_size >= request.cpu_milli, pool.host_size >= request.host_memory
    if (types & processors & hosts & (devices >= wanted)).any():
        return None
    if not (types & processors).any():
        return _too_many_processors(pool, request, types)
    if not (types & hosts).any():
        return _too_much_of_a_node(pool, request, types)
    if wanted and not (types & (devices > 0)).any():
        most = int(np.where(pool.sized[types], pool.memory_size[types], 0).max(initial=0))
        asked = describe_bytes(request.memory_bytes)
        return f"asks for {asked} of memory; the largest matching device has {describe_bytes(most)}"
    most = int(pool.sized[types].sum(axis=1).max())
    if most < wanted:
        return f"asks for {wanted} devices of one node; the largest matching node has {most}"
    return f"no node is large enough for {_asked(need)} at once"


def _too_many_processors(pool: Pool, request: Request, types: Bools) -> str:
    most = int(pool.cpu_size[types].max())
    return f"asks for {request.cpu_milli / 1000:g} processors; the largest matching node has {most / 1000:g}"


def _too_much_of_a_node(pool: Pool, request: Request, types: Bools) -> str:
    asked, most = describe_bytes(request.host_memory), describe_bytes(int(pool.host_size[types].max()))
    return f"asks for {asked} of its node's memory; the largest matching node has {most}"


def _nobody(need: Need) -> str:
    return "no healthy device of a fitting type has" if need.devices else "no node has"


def _asked(need: Need) -> str:
    """All that has to be free at one place."""
    request, asked = need.request, []
    if need.devices:
        share = _shares(need.share[need.rank >= 0])
        asked.append(f"{need.devices} whole device(s)" if need.whole else f"{share} of a device")
        if request.memory_bytes:
            asked.append(f"{describe_bytes(request.memory_bytes)} of memory")
    if request.cpu_milli or not need.devices:
        asked.append(f"{request.cpu_milli / 1000:g} processors")
    if request.host_memory:
        asked.append(f"{describe_bytes(request.host_memory)} of its node's memory")
    return f"{', '.join(asked[:-1])} and {asked[-1]}" if len(asked) > 1 else asked[0]


def _shares(shares: Ints) -> str:
    """A slot is another part of a device where devices have other numbers of slots."""
    least, most = int(shares.min()), int(shares.max())
    return f"{least}/1000" if least == most else f"{least} to {most}/1000"
