"""Which warm workers of a proxy stay, which go, and which are started ahead of their next call, by `core.keepwarm`.

It turns looks at the workers, some times a second, into what that policy wants to know, and its answers into orders.
A worker started ahead may take the place of an idle one that is expected much later.  The budget is what a fixed idle
time would have kept resident in the room that there is; some is lent to begin with, as a platform that has seen little
should not be mean, and paid back out of that.  A worker just used is left alone for a moment, however little is
expected of it.  Pure: workers and the time in, orders out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dgsf.core.keepwarm import Budget, KeepWarm, Resident, Review, use_rates
from dgsf.core.loads import LoadTimes
from dgsf.core.shadow import FixedShadow, Room, Slot, Use

LENT_S = 4000.0  # resident device-seconds to begin with,
PAID_BACK = 0.05  # out of this part of what the fixed idle time keeps resident
FORGET_EVERY_S = 3600.0
REVIEW_EVERY_S = 5.0
SETTLED_S = 5.0  # a device whose last call ended within this is not given up


@dataclass(frozen=True, slots=True)
class Warm:
    """One warm worker: busy, or idle since a time."""

    key: int
    function: str
    device: int
    idle_since: float | None
    slot: Slot | None = None  # what it takes; None: one of the usual slots


@dataclass(frozen=True, slots=True)
class Release:
    """Give this worker up."""

    key: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """Start a worker of this function ahead of its next call, on this device; None: wherever it fits."""

    function: str
    device: int | None
    displaces: int | None = None  # the worker that is given up for it, if that is still idle


Order = Release | Ahead


def allowed_s(fixed_s: float) -> float:
    """How long devices may have been resident where the fixed idle time would have kept them so long."""
    return fixed_s + max(0.0, LENT_S - PAID_BACK * fixed_s)


class Warmth:
    """Keep-warm of one proxy."""

    def __init__(self, slots: int, load_s: float | LoadTimes, idle_s: float) -> None:
        """Devices have so many slots, a worker starts in about `load_s`; `idle_s` is the rule to be as thrifty as."""
        self.budget = Budget(allowed=allowed_s(0.0))
        self._policy = KeepWarm(slots, load_s, self.budget, REVIEW_EVERY_S)
        self._slots = slots
        self._shadow = FixedShadow(idle_s)
        self._room: Mapping[str, Room] = {}
        self._usual = Slot.one_of(slots)
        self._took: dict[str, Mapping[Slot, int]] = {}  # function: what its workers take, or took last
        self._used: dict[int, float] = {}  # device: when the last of its workers became idle; -inf: one is busy
        self._full: set[int] = set()  # devices of which every slot was busy at the last look
        self._again: dict[int, float] = {}  # device: when to look at it again
        self._reviewed: dict[int, float] = {}
        self._due: dict[str, float] = {}  # regular functions: when to start one ahead
        self._busy: Counter[str] = Counter()  # at the last look
        self._now: float | None = None
        self._forgot = 0.0

    def there_is(self, room: Mapping[str, Room]) -> None:
        """The most that there can be here, by type of device, as of now; of a type that it leaves out, no end."""
        self._room = room

    def look(self, workers: Sequence[Warm], reached: Mapping[str, Collection[int]], now: float) -> list[Order]:
        """`reached`: for functions that were called since the last look, how many of their workers were busy then."""
        busy = Counter(each.function for each in workers if each.idle_since is None)
        self._count(workers, reached, busy, now)
        for function, levels in reached.items():
            for level in sorted(levels):
                self._policy.saw(function, level - 1, now)
            self._plan(function, now)
        self._ended(reached, busy, now)
        if now - self._forgot >= FORGET_EVERY_S:
            self._policy.forget(now)
            self._took = {name: took for name, took in self._took.items() if name in self._policy.model.rows}
            self._forgot = now
        devices = self._to_review(workers, now)
        orders = self._review(devices, _Fleet(workers), busy, now) if devices else []
        return [*orders, *self._regular(workers, now)]

    def remembers(self, function: str) -> bool:
        """Whether it was called, and not forgotten since."""
        return function in self._policy.model.rows

    def quiet_until(self) -> float:
        """After a look that ordered nothing: until then another says nothing either, if no worker changes.

        Where every slot is busy nothing can be given up or fetched, so reviews of full devices are not waited for;
        `pass_over` makes up for those that were left out.
        """
        times = [self._shadow.next_end(self._busy), *self._due.values()]
        if self._may_forget:
            times.append(self._forgot + FORGET_EVERY_S)
        for device, last in self._used.items():
            if device in self._full:
                continue
            settled = last + SETTLED_S
            fresh = not math.isinf(last) and last > self._reviewed.get(device, -1.0)
            times.append(settled if fresh else max(settled, self._again.get(device, 0.0)))
        return min(times)

    @property
    def _may_forget(self) -> bool:
        return bool(self._used or self._took) or self._policy.remembers_any

    def pass_over(self, now: float) -> None:
        """Nothing changed since the last look: what looks would have done in vain until now counts as done.

        Those are reviews of full devices, and forgetting where nothing is remembered.
        """
        if not self._may_forget:
            late = math.ceil((now - self._forgot) / FORGET_EVERY_S) - 1
            self._forgot += max(0, late) * FORGET_EVERY_S
        for device in self._full:
            late = math.ceil((now - self._again[device]) / REVIEW_EVERY_S)
            self._again[device] += max(0, late) * REVIEW_EVERY_S

    def again(self, device: int) -> None:
        """What was ordered there could not be done now: look at it again."""
        self._again[device] = 0.0

    def victim(self, workers: Sequence[Warm], candidates: Collection[int], now: float) -> int | None:
        """Which of these idle workers, by their keys, makes room for a call's; None: better open another device."""
        busy = Counter(each.function for each in workers if each.idle_since is None)
        fleet = _Fleet([each for each in workers if each.key in candidates and each.idle_since is not None])
        idle = sum(each.idle_since is not None for each in workers)
        gone = self._policy.victim(fleet.residents, busy, idle, now)
        return None if gone is None else fleet.key_of[gone]

    def rates(self, workers: Sequence[Warm], now: float) -> list[float]:
        """How soon each is expected to be used, in calls per second: who has to go first has the least."""
        busy = Counter(each.function for each in workers if each.idle_since is None)
        residents = [Resident(each.function, each.device, each.idle_since) for each in workers]
        return use_rates(residents, busy, self._policy.expect(busy, now))

    def _review(self, devices: Sequence[int], fleet: _Fleet, busy: Counter[str], now: float) -> list[Order]:
        """What is expected is the same for all; each sees what was ordered for those before it."""
        orders: list[Order] = []
        sight = self._policy.see(fleet.residents, busy, now)
        for device in devices:
            review = self._policy.review(device, fleet.residents, busy, len(self._again), now, sight)
            self._reviewed[device] = now
            if review.release:
                del self._again[device]
            else:
                self._again[device] = review.again_at
            if done := fleet.apply(review, device, now):
                orders += done
                sight.rates = use_rates(fleet.residents, busy, sight.expected)
        return orders

    def _count(
        self, workers: Sequence[Warm], reached: Mapping[str, Collection[int]], busy: Counter[str], now: float
    ) -> None:
        """Both sides of the budget."""
        if self._now is not None:
            self.budget.spent += len({each.device for each in workers}) * (now - self._now)
        self._now = now
        self._shadow.look(self._uses(workers, reached, busy), now, self._room)
        self.budget.allowed = allowed_s(self._shadow.resident_s)

    def _uses(
        self, workers: Sequence[Warm], reached: Mapping[str, Collection[int]], busy: Counter[str]
    ) -> dict[str, Use]:
        """What each function had in use; of one whose workers have made way already, what they took before."""
        peak = {function: max(levels) for function, levels in reached.items()}
        names = dict.fromkeys((*busy, *peak))  # not a set: its order, and so what is placed where, is another each run
        real: dict[str, Counter[Slot]] = {name: Counter() for name in names}
        for each in workers:
            if each.function in real:
                real[each.function][each.slot or self._usual] += 1
        self._took.update((name, took) for name, took in real.items() if took)
        usual = {self._usual: 1}
        return {name: Use(max(busy[name], peak.get(name, 0)), self._took.get(name, usual)) for name in names}

    def _ended(self, reached: Mapping[str, Collection[int]], busy: Counter[str], now: float) -> None:
        """Calls that ran at the last look or came since, and do not run any more."""
        came = Counter({function: len(list(levels)) for function, levels in reached.items()})
        for function, count in (self._busy + came - busy).items():
            for _ in range(count):
                self._policy.ended(function, now)
        self._busy = busy

    def _plan(self, function: str, now: float) -> None:
        at = self._policy.load_at(function, now)
        if at is None:
            self._due.pop(function, None)
        else:
            self._due[function] = at

    def _to_review(self, workers: Sequence[Warm], now: float) -> list[int]:
        """Devices whose time has come, and those that have become idle and settled since their last review."""
        used: dict[int, float] = {}
        working = {each.device for each in workers if each.idle_since is None}
        for each in workers:
            used[each.device] = max(used.get(each.device, 0.0), each.idle_since or 0.0)
        self._used = used | dict.fromkeys(working, -math.inf)
        self._full = self._all_busy(workers)
        self._again = {device: self._again.get(device, 0.0) for device in used}
        self._reviewed = {device: at for device, at in self._reviewed.items() if device in used}
        found = []
        for device, last in used.items():
            idle = device not in working
            settled = idle and now - last >= SETTLED_S
            fresh = settled and last > self._reviewed.get(device, -1.0)
            if fresh or (now >= self._again[device] and (settled or not idle)):
                found.append(device)
        return found

    def _all_busy(self, workers: Sequence[Warm]) -> set[int]:
        count = Counter(each.device for each in workers)
        idle = {each.device for each in workers if each.idle_since is not None}
        return {device for device, there in count.items() if there >= self._slots and device not in idle}

    def _regular(self, workers: Sequence[Warm], now: float) -> list[Order]:
        found = [function for function, at in self._due.items() if at <= now]
        for function in found:
            del self._due[function]
        there = {each.function for each in workers}
        return [Ahead(function, None) for function in found if function not in there]


class _Fleet:
    """The workers of one look, as they will be when the orders given so far are done."""

    def __init__(self, workers: Sequence[Warm]) -> None:
        self.residents = [Resident(each.function, each.device, each.idle_since) for each in workers]
        self.key_of = {item: each.key for item, each in zip(self.residents, workers, strict=True)}

    def apply(self, review: Review, device: int, now: float) -> list[Order]:
        if review.release:
            gone = [item for item in self.residents if item.device == device]
            self.residents = [item for item in self.residents if item.device != device]
            return [Release(self.key_of[item]) for item in gone]
        return [
            order for function, displaced in review.fetch for order in self._fetch(function, device, displaced, now)
        ]

    def _fetch(self, function: str, device: int, displaced: Resident | None, now: float) -> list[Order]:
        if displaced is not None and displaced not in self.key_of:
            return []
        if displaced is not None:
            self.residents.remove(displaced)
        self.residents.append(Resident(function, device, now))
        return [Ahead(function, device, None if displaced is None else self.key_of[displaced])]
