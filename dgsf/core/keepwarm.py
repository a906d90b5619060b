"""Which functions stay warm where, which are loaded ahead, and when a call should wait rather than load anew.

A device that holds at least one instance is resident and costs a second per second, however many of its slots are
full.  So the decision is about devices: one on which nothing runs is kept while the calls that it is expected to serve
warm are worth more than its time; slots of a resident device cost nothing more and go to the functions expected
soonest.  The worth of a warm start follows from a budget of resident seconds: it rises while less is spent than
allowed, and falls otherwise.  Everything here is pure: a view of the residents and the time in, decisions out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dgsf.core.arrivals import ArrivalModel, Key
from dgsf.core.rhythm import Rhythm
from dgsf.core.spares import RunTime, spare_chances

FIRST_WORTH_S = 120.0  # resident seconds that one warm start is worth before the budget has taught better
WORTH_SPAN = math.e**2  # the worth moves by at most this factor either way
LEAD = 0.015  # a lead or debt of this part of what is allowed moves the worth by a factor e
LEAST_LEAD_S = 600.0
TARGET = 0.992  # of what is allowed; the rest is for what is already promised to running calls
SWAP_GAIN = 4.0  # a function loaded ahead must be expected this many times sooner than the one it displaces,
SWAP_GAIN_PER_S = 1 / 8  # and more for each second of its load, in which the slot serves nobody
AHEAD = 0.7  # of a load: how far ahead spare instances are thought about
RARE_PER_S = 1 / 3600  # functions expected less often than hourly are not loaded ahead


@dataclass(slots=True, eq=False)
class Resident:
    """One instance of a function in a slot: idle since a time, or busy (None)."""

    function: str
    device: int
    idle_since: float | None = None


@dataclass(slots=True)
class Budget:
    """Resident device-seconds allowed and spent so far, and what a warm start is worth because of them."""

    allowed: float = 0.0
    spent: float = 0.0

    def worth_s(self) -> float:
        lead = (self.allowed * TARGET - self.spent) / max(LEAST_LEAD_S, LEAD * self.allowed)
        span = math.log(WORTH_SPAN)
        return FIRST_WORTH_S * math.exp(max(-span, min(span, lead)))


@dataclass(frozen=True, slots=True)
class Review:
    """What to do with a device now, and when to ask again."""

    release: bool
    again_at: float
    fetch: tuple[tuple[str, Resident | None], ...] = ()  # (function, whom it displaces)


@dataclass(slots=True)
class Expectation:
    """The rates of all levels that are not running now, highest first."""

    ranked: list[tuple[float, Key]]
    by_key: dict[Key, float] = field(init=False)

    def __post_init__(self) -> None:
        self.by_key = {key: rate for rate, key in self.ranked}

    def band(self, low: int, high: int) -> float:
        """The summed rate of the places `low` to `high`."""
        return sum(rate for rate, _ in self.ranked[max(0, low) : max(0, high)])


class KeepWarm:
    """Keeps, releases, loads ahead and displaces, from the history of arrivals."""

    def __init__(
        self,
        slots: int,
        load_s: float,
        budget: Budget,
        step_s: float = 10.0,
        *,
        waits: bool = False,
        shared: bool = False,
    ) -> None:
        """`waits`: calls wait for a busy instance where `worth_waiting` says so; `shared`: it serves them as well."""
        self.model = ArrivalModel()
        self.rhythm = Rhythm()
        self._slots = slots
        self._load_s = load_s
        self._budget = budget
        self._step_s = step_s
        self._waits = waits
        self._shared = shared
        self._runs = RunTime()
        self._swap_gain = SWAP_GAIN + SWAP_GAIN_PER_S * load_s

    def saw(self, function: str, running: int, now: float) -> None:
        """A call came while `running` others of its function were."""
        self._runs.saw(running, self.model.saw(function, now))
        self.rhythm.saw(function, now)

    def ended(self, function: str, now: float) -> None:
        """A call has ended."""
        self.model.ended(function, now)

    def expect(self, running: Counter[str], now: float) -> Expectation:
        """How soon each instance beyond those that run now is expected to be used."""
        ranked: list[tuple[float, Key]] = []
        for function, rate in zip(self.model.functions, self.model.rates(now).tolist(), strict=True):
            busy = running[function]
            if busy and self._one_will_do(busy):
                continue
            due = None if busy else self.rhythm.due(function, now)
            if due is None and self._shared:
                ranked.append((rate, (function, 1)))
            elif due is None:
                chances = spare_chances(busy, rate, self._runs.mean_s, AHEAD * self._load_s)
                ranked += [(rate * chance, (function, busy + 1 + n)) for n, chance in enumerate(chances)]
            else:  # a regular function is expected when it is due, and not before
                ranked.append((due.rate(now, self._load_s), (function, 1)))
        return Expectation(sorted(ranked, reverse=True))

    def _one_will_do(self, busy: int) -> bool:
        """Whether the next call would share or await a busy instance, so that no further one is needed."""
        return self._shared or (self._waits and worth_waiting(0, busy, self._runs.mean_s, self._load_s))

    def load_at(self, function: str, now: float) -> float | None:
        """When to load a regular function ahead of its next call; None: not at all."""
        due = self.rhythm.due(function, now)
        begin = due.begin - self._load_s if due is not None else now
        return begin if begin > now else None

    def review(self, device: int, pool: Sequence[Resident], running: Counter[str], devices: int, now: float) -> Review:
        """Called when a call began or ended on a device, and again when the last review said so."""
        expected = self.expect(running, now)
        busy = sum(item.idle_since is None for item in pool)
        rates = use_rates(pool, running, expected)
        here = [(rate, item) for rate, item in zip(rates, pool, strict=True) if item.device == device]
        if all(item.idle_since is not None for _, item in here):
            free = devices * self._slots - busy
            gain = expected.band(free - self._slots, free)  # what the fleet would miss without this device
            if gain * self._warm_worth() < 1:
                return Review(release=True, again_at=math.inf)
        return Review(False, now + self._step_s, tuple(self._fetches(here, pool, expected)))

    def victim(self, pool: Sequence[Resident], running: Counter[str], now: float) -> Resident | None:
        """The idle instance to displace for a call that has no slot; None: another device is worth opening."""
        expected = self.expect(running, now)
        rates = use_rates(pool, running, expected)
        index = min(range(len(pool)), key=rates.__getitem__, default=None)
        return pool[index] if index is not None and rates[index] * self._warm_worth() < 1 else None

    def _warm_worth(self) -> float:
        return self._budget.worth_s() + self._load_s  # a warm start also saves the load itself

    def _fetches(
        self, here: list[tuple[float, Resident]], pool: Sequence[Resident], expected: Expectation
    ) -> list[tuple[str, Resident | None]]:
        """Functions to load ahead into this device's free slots, or over idle ones that are wanted much less."""
        have = Counter(item.function for item in pool)
        room = self._slots - len(here)
        idle = sorted(((rate, n) for n, (rate, item) in enumerate(here) if _is_idle(item)), reverse=True)
        found: list[tuple[str, Resident | None]] = []
        for rate, (function, level) in expected.ranked:
            if rate <= RARE_PER_S:
                break
            if have[function] != level - 1:
                continue
            displaced = None
            if room > 0:
                room -= 1
            elif idle and idle[-1][0] * self._swap_gain < rate:
                displaced = here[idle.pop()[1]][1]
                have[displaced.function] -= 1
            else:
                break
            have[function] += 1
            found.append((function, displaced))
        return found


def use_rates(pool: Sequence[Resident], running: Counter[str], expected: Expectation) -> list[float]:
    """How soon each instance is expected to be used; a function's latest used idle one is used first."""
    rates = [math.inf] * len(pool)  # busy ones are in use
    level = Counter(running)
    for _, index in sorted((-(item.idle_since or 0.0), n) for n, item in enumerate(pool) if _is_idle(item)):
        function = pool[index].function
        level[function] += 1
        rates[index] = expected.by_key.get((function, level[function]), 0.0)
    return rates


def _is_idle(item: Resident) -> bool:
    return item.idle_since is not None


def worth_waiting(queued: int, running: int, mean_run_s: float, load_s: float) -> bool:
    """Whether a call is served sooner by a busy warm instance than by a new one that must load first."""
    return running > 0 and (queued + 0.5) * mean_run_s / running < load_s
