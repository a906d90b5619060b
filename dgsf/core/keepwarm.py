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
from dataclasses import dataclass

import numpy as np

from dgsf.core.arrivals import POPULAR_S, ArrivalModel, Floats, Key
from dgsf.core.expectation import Expectation
from dgsf.core.levels import Levels, with_levels
from dgsf.core.loads import LoadTimes
from dgsf.core.rhythm import Rhythm
from dgsf.core.spares import MOST_SPARES, RunTime, idle_chances, spare_chances

FIRST_WORTH_S = 85.0  # resident seconds that one warm start is worth before the budget has taught better
WORTH_SPAN = 2.0  # in factors of e: how far the worth moves either way, and how far it is learned
LEAD = 0.015  # a lead or debt of this part of what is allowed moves the worth by a factor e,
LEAST_LEAD_S = 4_000.0  # but not less than this many seconds
LEARN = 0.5  # how much of a lead or debt that lasts, while as much again is allowed, is learned
LEAST_LEARN_S = 7_200.0
TARGET = 0.991  # of what is allowed; the rest is for what is already promised to running calls
DEBT = 0.01  # a debt of this part of what is allowed makes it worth less by a factor e again, also while little is
DEBT_SPAN = 8.0  # allowed, to so many factors
RESERVE, RESERVE_S = 0.02, 80.0  # of what is allowed, and at most: debt begins so much before it
OPEN_GAIN = 2.0  # another device must be expected to serve this many times what its time is worth: it serves nobody
STAY_GAIN = 1.3  # while it loads; and is given up only if it serves less than its time is worth by this factor
SWAP_GAIN = 2.0  # a function loaded ahead must be expected this many times sooner than the one it displaces,
SWAP_GAIN_PER_S = 1 / 8  # and more for each second of its load, in which the slot serves nobody
AHEAD_NEW = 1.3  # of a load: how far ahead spare instances are thought about that are to be loaded,
AHEAD_HELD = 0.5  # and those that are there
QUIET_CALLS = 0.01  # in the time looked ahead: fewer keep no instance busy, so a second one is not thought about
NEVER_PER_S = 1e-5  # functions expected less often than once a day are not thought about
FORGET_S = 2 * POPULAR_S  # and are forgotten when they were not called for so long
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
    _learned: float = 0.0  # factors of e
    _learned_at: float = 0.0  # how much was allowed then

    def worth_s(self) -> float:
        """More while there is a lead, less while there is a debt; what lasts is learned."""
        lead = _within_span((self.allowed * TARGET - self.spent) / max(LEAST_LEAD_S, LEAD * self.allowed))
        grown = (self.allowed - self._learned_at) / max(LEAST_LEARN_S, self.allowed)
        self._learned = _within_span(self._learned + LEARN * lead * grown)
        self._learned_at = self.allowed
        return FIRST_WORTH_S * math.exp(self._learned + lead)

    def restraint(self) -> float:
        """1 within what is allowed; a debt of `DEBT` of it makes a warm start worth less by a factor e, and so on."""
        debt = self.spent - self.allowed + min(RESERVE_S, RESERVE * self.allowed)
        return math.exp(-min(DEBT_SPAN, max(0.0, debt) / (DEBT * max(1.0, self.allowed))))


@dataclass(frozen=True, slots=True)
class Review:
    """What to do with a device now, and when to ask again."""

    release: bool
    again_at: float
    fetch: tuple[tuple[str, Resident | None], ...] = ()  # (function, whom it displaces)


@dataclass(slots=True)
class Sight:
    """What is expected at one moment, and how soon each of the residents is used by that."""

    expected: Expectation
    rates: list[float]


class KeepWarm:
    """Keeps, releases, loads ahead and displaces, from the history of arrivals."""

    def __init__(
        self,
        slots: int,
        load_s: float | LoadTimes,
        budget: Budget,
        step_s: float = 5.0,
        *,
        waits: bool = False,
        shared: bool = False,
    ) -> None:
        """`waits`: calls wait for a busy instance where `worth_waiting` says so; `shared`: it serves them as well."""
        self.model = ArrivalModel[str]()
        self._levels = Levels()
        self.rhythm = Rhythm()
        self._slots = slots
        self._loads = LoadTimes(load_s) if isinstance(load_s, (int, float)) else load_s
        self._budget = budget
        self._step_s = step_s
        self._waits = waits
        self._shared = shared
        self._runs = RunTime()

    def saw(self, function: str, running: int, now: float, loading: int = 0) -> None:
        """A call came while `running` others of its function were, of which so many still waited for their load."""
        self._runs.saw(function, running, self.model.saw(function, now))
        self.rhythm.saw(function, now)
        self._levels.saw(function, running - loading, now)

    def ended(self, function: str, now: float) -> None:
        """A call has ended."""
        self.model.ended(function, now)

    def forget(self, now: float) -> None:
        """Functions that have not been called for long and of which nothing is expected."""
        before = now - FORGET_S
        for function in self.model.forget(before, NEVER_PER_S, now):
            self._runs.forget(function)
            self._loads.forget(function)
            self.rhythm.forget(function)
        self._levels.forget(before, NEVER_PER_S, now)

    @property
    def remembers_any(self) -> bool:
        """Whether there is anything left to forget."""
        return bool(self.model.functions) or self._levels.remembers_any

    def expect(self, running: Counter[str], now: float) -> Expectation:
        """How soon each instance beyond those that run now is expected to be used."""
        rates = self.model.rates(now)
        reached = {} if self._shared else self._levels.rates(now)
        singled = {function for function, busy in running.items() if busy}.union(self.rhythm.all_due(now), reached)
        ranked: list[tuple[float, Key]] = []
        held: dict[str, dict[int, float]] = {}
        for function in singled:
            row, busy = self.model.rows.get(function), running[function]
            rate = 0.0 if row is None else float(rates[row])
            held[function] = {}
            if row is None or rate < NEVER_PER_S or (busy and self._one_will_do(function, busy)):
                continue
            later, soon = self._near(function, busy, rate, now)
            if levels := reached.get(function):
                later = with_levels(later, levels, busy, NEVER_PER_S)
                soon = with_levels(soon, levels, busy, NEVER_PER_S)
            ranked += [(rate, (function, busy + 1 + n)) for n, rate in enumerate(later)]
            held[function] = {busy + 1 + n: rate for n, rate in enumerate(soon)}
        rates[[self.model.rows[function] for function in singled if function in self.model.rows]] = 0.0
        later_of, soon_of = self._idle(rates)
        return Expectation(self.model.functions, self.model.rows, later_of, soon_of, sorted(ranked), held)

    def _idle(self, rates: Floats) -> tuple[Floats, Floats]:
        """The same for those of which nothing runs and nothing else is known: if loaded now, and if they are there."""
        first = np.zeros((len(rates), 1 if self._shared else MOST_SPARES))
        first[:, 0] = np.where(rates >= NEVER_PER_S, rates, 0.0)
        if self._shared:
            return first, first
        load_s = self._loads_of(self.model.functions)
        quiet = QUIET_CALLS / np.where(load_s > 0, AHEAD_NEW * load_s, np.nan)  # nan: nothing is more than that
        some = np.flatnonzero((rates >= NEVER_PER_S) & (rates >= quiet))
        run_s = np.array([self._runs.mean_s(self.model.functions[row]) for row in some], dtype=np.float64)
        later, soon, load_s = first, first.copy(), load_s[some]
        later[some] = rates[some, None] * idle_chances(rates[some], run_s, AHEAD_NEW * load_s)
        soon[some] = rates[some, None] * idle_chances(rates[some], run_s, AHEAD_HELD * load_s)
        return later, soon

    def _loads_of(self, functions: Sequence[str]) -> Floats:
        if self._loads.alike:
            return np.full(len(functions), self._loads.mean_s)
        return np.array([self._loads.of(function) for function in functions], dtype=np.float64)

    def _near(self, function: str, busy: int, rate: float, now: float) -> tuple[list[float], list[float]]:
        """How soon the first instances beyond those that run are used: if loaded now, and if they are there."""
        load_s = self._loads.of(function)
        due = None if busy else self.rhythm.due(function, now)
        if due is not None:  # a regular function is expected when it is due, and not before
            rate = due.rate(now, load_s)
        if due is not None or self._shared or (not busy and rate * AHEAD_NEW * load_s < QUIET_CALLS):
            return [rate], [rate]
        run_s = self._runs.mean_s(function)
        later = spare_chances(busy, rate, run_s, AHEAD_NEW * load_s)
        soon = spare_chances(busy, rate, run_s, AHEAD_HELD * load_s)
        return [rate * chance for chance in later], [rate * chance for chance in soon]

    def _one_will_do(self, function: str, busy: int) -> bool:
        """Whether the next call would share or await a busy instance, so that no further one is needed."""
        return self._shared or (
            self._waits and worth_waiting(0, busy, self._runs.mean_s(function), self._loads.of(function))
        )

    def load_at(self, function: str, now: float) -> float | None:
        """When to load a regular function ahead of its next call; None: not at all."""
        due = self.rhythm.due(function, now)
        begin = due.begin - self._loads.of(function) if due is not None else now
        return begin if begin > now else None

    def see(self, pool: Sequence[Resident], running: Counter[str], now: float) -> Sight:
        """What reviews of one moment share."""
        expected = self.expect(running, now)
        return Sight(expected, use_rates(pool, running, expected))

    def review(
        self,
        device: int,
        pool: Sequence[Resident],
        running: Counter[str],
        devices: int,
        now: float,
        sight: Sight | None = None,
    ) -> Review:
        """Called when a call began or ended on a device, and again when the last review said so."""
        sight = sight or self.see(pool, running, now)
        busy = sum(item.idle_since is None for item in pool)
        here = [(rate, item) for rate, item in zip(sight.rates, pool, strict=True) if item.device == device]
        if all(item.idle_since is not None for _, item in here):
            free = devices * self._slots - busy
            gain = sight.expected.band(free - self._slots, free)  # what the fleet would miss without this device
            if gain * (STAY_GAIN if devices > 1 else 1.0) * self._warm_worth() < 1:
                return Review(release=True, again_at=math.inf)
        return Review(False, now + self._step_s, tuple(self._fetches(here, pool, sight.expected)))

    def victim(self, pool: Sequence[Resident], running: Counter[str], idle: int, now: float) -> Resident | None:
        """The instance of `pool`, all idle, to displace for a call that has no slot; None: better open a device.

        `idle` counts the instances of all devices that are, also where no further call can run.
        """
        expected = self.expect(running, now)
        left = idle - 1
        if not pool or expected.band(left, left + self._slots) * self._warm_worth() >= OPEN_GAIN:
            return None
        rates = use_rates(pool, running, expected)
        return pool[min(range(len(pool)), key=rates.__getitem__)]

    def _warm_worth(self) -> float:
        """A warm start also saves the load itself."""
        return self._budget.worth_s() * self._budget.restraint() + self._loads.mean_s

    def _fetches(
        self, here: list[tuple[float, Resident]], pool: Sequence[Resident], expected: Expectation
    ) -> list[tuple[str, Resident | None]]:
        """Functions to load ahead into this device's free slots, or over idle ones that are wanted much less."""
        have = Counter(item.function for item in pool)
        room = self._slots - len(here)
        idle = sorted(((rate, n) for n, (rate, item) in enumerate(here) if _is_idle(item)), reverse=True)
        found: list[tuple[str, Resident | None]] = []
        for rate, (function, level) in expected.ranked():
            if rate <= RARE_PER_S:
                break
            if have[function] != level - 1:
                continue
            displaced = None
            if room > 0:
                room -= 1
            elif idle and idle[-1][0] * (SWAP_GAIN + SWAP_GAIN_PER_S * self._loads.of(function)) < rate:
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
        rates[index] = expected.held(function, level[function])
    return rates


def _within_span(lead: float) -> float:
    return max(-WORTH_SPAN, min(WORTH_SPAN, lead))


def _is_idle(item: Resident) -> bool:
    return item.idle_since is not None


def worth_waiting(queued: int, running: int, mean_run_s: float, load_s: float) -> bool:
    """Whether a call is served sooner by a busy warm instance than by a new one that must load first."""
    return running > 0 and (queued + 0.5) * mean_run_s / running < load_s
