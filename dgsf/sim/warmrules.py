"""The keep-warm rules that are compared: ours over `core.keepwarm`, and the best known simple ones.

Fixed idle time (what most platforms do), the histogram of idle times (Shahrad et al., ATC'20), least recently used and
greedy-dual within a number of devices (FaasCache, ASPLOS'21).  Each is a Keeper of `dgsf.sim.warmpool`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from dgsf.core.keepwarm import Budget, KeepWarm, Resident, Review, use_rates
from dgsf.sim.warmpool import Shape, WarmPool

_BINS = 240  # four hours of minutes, as published


class _Rule:
    """What the simple rules share: any free slot will do, nothing is loaded ahead."""

    def arrived(self, pool: WarmPool, function: str, *, waits: bool) -> None:
        pass

    def slot(self, pool: WarmPool) -> int | None:
        return pool.roomiest()

    def gives_way(self, pool: WarmPool, idle: Sequence[Resident]) -> Resident:
        """The one that was used longest ago."""
        return min(idle, key=lambda item: item.idle_since or 0.0)

    def ended(self, pool: WarmPool, function: str) -> float | None:
        return None


class FixedIdle(_Rule):
    """Every instance stays for the same time after its last call."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s

    def stays(self, item: Resident) -> float:
        return self._idle_s

    def review(self, pool: WarmPool, device: int) -> tuple[list[Resident], Review]:
        until = {
            id(item): item.idle_since + self.stays(item) for item in pool.on(device) if item.idle_since is not None
        }
        gone = [item for item in pool.on(device) if until.get(id(item), math.inf) <= pool.now + 1e-6]
        left = [until[id(item)] for item in pool.on(device) if id(item) in until and item not in gone]
        return gone, Review(False, min(left, default=math.inf))


class Histogram(FixedIdle):
    """Per function: unload until the 5th percentile of its idle times, then keep to the 99th."""

    def __init__(self, range_s: float = 4 * 3600.0, few: int = 5) -> None:
        super().__init__(range_s)
        self._bin_s = range_s / _BINS
        self._unload_s = math.inf  # an unload pays only if the function is not expected within its load time
        self._few = few
        self._seen: dict[str, Counter[int]] = defaultdict(Counter)
        self._ended: dict[str, float] = {}

    def arrived(self, pool: WarmPool, function: str, *, waits: bool) -> None:
        self._unload_s = pool.load_s
        ended = self._ended.pop(function, None)
        if ended is not None:
            self._seen[function][min(_BINS, int((pool.now - ended) / self._bin_s))] += 1

    def ended(self, pool: WarmPool, function: str) -> float | None:
        if pool.running[function] == 0:
            self._ended[function] = pool.now
        head = self._window(function)[0]
        return head - pool.load_s if head > pool.load_s else None

    def stays(self, item: Resident) -> float:
        head, tail = self._window(item.function)
        if head <= self._unload_s:
            return tail
        from_call = item.idle_since == self._ended.get(item.function)
        return 0.0 if from_call else tail - head  # unloaded after the call, kept when loaded ahead

    def _window(self, function: str) -> tuple[float, float]:
        seen = self._seen[function]
        total = sum(seen.values())
        if total < self._few or seen[_BINS] > total / 2:  # not representative: the paper's standard keep-alive
            return 0.0, self._idle_s
        return 0.9 * _percentile(seen, 0.05) * self._bin_s, 1.1 * (_percentile(seen, 0.99) + 1) * self._bin_s


def _percentile(seen: Counter[int], share: float) -> int:
    left = share * sum(seen.values())
    for place in sorted(seen):
        left -= seen[place]
        if left <= 0:
            return place
    return max(seen)


class LeastRecent(_Rule):
    """So many devices stay full for ever; a new instance displaces the idle one that was used longest ago."""

    def __init__(self, devices: int) -> None:
        self._devices = devices

    def review(self, pool: WarmPool, device: int) -> tuple[list[Resident], Review]:
        here = pool.on(device)
        extra = len(pool.held) > self._devices and all(item.idle_since is not None for item in here)
        return (here if extra else []), Review(False, math.inf)

    def slot(self, pool: WarmPool) -> int | None:
        room = pool.roomiest()
        idle = pool.displaceable()
        if room is not None or len(pool.held) < self._devices or not idle:
            return room
        gone = min(idle, key=self.priority)
        self.displaced(gone)
        pool.evict(gone, keep_device=True)
        return gone.device

    def priority(self, item: Resident) -> tuple[float, float]:
        return 0.0, item.idle_since or 0.0

    def displaced(self, item: Resident) -> None:
        pass


class GreedyDual(LeastRecent):
    """The same with priority = clock + calls x load time; the clock is the priority of the last one displaced."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self._clock = 0.0
        self._calls: Counter[str] = Counter()
        self._priority: dict[str, float] = {}

    def arrived(self, pool: WarmPool, function: str, *, waits: bool) -> None:
        self._calls[function] += 1
        self._priority[function] = self._clock + self._calls[function] * pool.load_s

    def priority(self, item: Resident) -> tuple[float, float]:
        return self._priority[item.function], item.idle_since or 0.0

    def displaced(self, item: Resident) -> None:
        self._clock = self._priority[item.function]


class Ours:
    """`core.keepwarm` with the resident seconds of another pool, replayed beside it, as its budget."""

    def __init__(self, shape: Shape | int, load_s: float, budget: Budget, *, waits: bool = False) -> None:
        self.budget = budget
        shape = Shape(shape) if isinstance(shape, int) else shape
        self._rule = KeepWarm(shape.slots, load_s, budget, waits=waits, shared=shape.shared)

    def arrived(self, pool: WarmPool, function: str, *, waits: bool) -> None:
        self.budget.spent = pool.resident_s
        self._rule.saw(function, pool.running[function], pool.now, pool.loading(function))

    def review(self, pool: WarmPool, device: int) -> tuple[list[Resident], Review]:
        review = self._rule.review(device, pool.residents, pool.running, len(pool.held), pool.now)
        return (pool.on(device) if review.release else []), review

    def slot(self, pool: WarmPool) -> int | None:
        room = pool.roomiest()
        if room is not None:
            return room
        idle = sum(item.idle_since is not None for item in pool.residents)
        gone = self._rule.victim(pool.displaceable(), pool.running, idle, pool.now)
        if gone is None:
            return None
        pool.evict(gone, keep_device=True)
        return gone.device

    def gives_way(self, pool: WarmPool, idle: Sequence[Resident]) -> Resident:
        """The one expected to be used latest; among equals the least recently used."""
        rates = use_rates(idle, pool.running, self._rule.expect(pool.running, pool.now))
        return min(zip(rates, idle, strict=True), key=lambda pair: (pair[0], pair[1].idle_since or 0.0))[1]

    def ended(self, pool: WarmPool, function: str) -> float | None:
        self._rule.ended(function, pool.now)
        at = self._rule.load_at(function, pool.now)
        return None if at is None else at - pool.now
