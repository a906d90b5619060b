"""attach="auto" and the way that was measured: what is known of it, and when a choice that was made should be another.

A choice is changed only if the other one is clearly better, so that a way that is a little longer today and a little
shorter tomorrow changes nothing, and only to where the function can run at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dgsf.core.distance import Measured, way_us
from dgsf.core.genuine import spelled_out
from dgsf.core.options import AUTO, FunctionOptions
from dgsf.core.perfmodel import NEAR_ABOVE, Attach, choose_by_curve
from dgsf.core.placement import rank_of

MARGIN = 0.5  # of the slow-down that is allowed: the other choice must be better by this


class Server(Protocol):
    """A device or function host; the store's rows are such."""

    @property
    def type(self) -> str: ...
    @property
    def placed_kind(self) -> str: ...
    @property
    def is_host(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def node_cpus(self) -> int | None: ...
    @property
    def measured(self) -> list[Measured]: ...


def known_round_trip(gpu: tuple[str, ...], pool: Sequence[Server]) -> float | None:
    """What the way between function hosts and such devices costs, as proxies measured it; None: nobody has yet."""
    fitting = [each for each in pool if each.is_host or _is_a(gpu, each)]
    return way_us([trip for each in fitting for trip in each.measured])


def reconsidered(options: FunctionOptions, pool: Sequence[Server]) -> Attach | None:
    """The other choice for a function of attach="auto", if that is clearly the better one by now."""
    way = known_round_trip(options.gpu, pool)
    if options.attach != AUTO or not options.profile or way is None:
        return None
    allowed = NEAR_ABOVE - 1
    if options.over_fabric:
        patient = choose_by_curve(options.profile, way, 1 + (1 + MARGIN) * allowed)
        return "near" if patient.attach == "near" and _fits_near(options, pool) else None
    strict = choose_by_curve(options.profile, way, 1 + (1 - MARGIN) * allowed)
    return "fabric" if strict.attach == "fabric" and _fits_over_fabric(options, pool) else None


def _fits_near(options: FunctionOptions, pool: Sequence[Server]) -> bool:
    """Beside its device the body needs room there for all of its memory, not for gpu_memory alone."""
    return any(_is_a(options.gpu, each) and each.slots and _runs(options, each) for each in pool)


def _fits_over_fabric(options: FunctionOptions, pool: Sequence[Server]) -> bool:
    hosted = any(each.is_host and each.slots and _runs(options, each) for each in pool)
    served = any(_is_a(options.gpu, each) and each.memory_bytes >= options.gpu_memory_bytes for each in pool)
    return hosted and served


def _runs(options: FunctionOptions, server: Server) -> bool:
    processors = server.node_cpus is None or 1000 * server.node_cpus >= options.cpu_milli
    return server.memory_bytes >= options.memory and processors


def _is_a(gpu: tuple[str, ...], each: Server) -> bool:
    return rank_of(spelled_out(gpu), (each.type, each.placed_kind)) is not None
