"""The inner loop of `repack`: takes some tasks out of a plan and puts them back in another way, millions of times.

Compiled by numba.  Time is cut where tasks start or end; a plan is the GPU of each task and the share that each GPU has
given away in each piece of time.  Times are whole and random numbers are made here, so the same seed gives the same
plan.  Never allocates within a round, except to sort.
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

WHOLE = 1000  # the share of a whole GPU
MOST_REMOVED = 60
SHORTEST, WIDENINGS = 0.025, 5.0  # a window is this part of the mean duration, times up to e to this power
KEPT = 0.3  # the most of a window's tasks that stay by chance
ABOUT = 0.0002  # mean durations: less than this makes no difference
HOPELESS = 12.0  # temperatures: more than this is not accepted, so the round can end

Whole = NDArray[np.int64]
Shares = NDArray[np.uint16]
State = NDArray[np.uint64]  # of the random numbers, one


class Batch(NamedTuple):
    """What is known of the tasks, and which are there in each stretch of time."""

    first: Whole  # piece of time
    last: Whole  # the one after
    share: Shares
    start: Whole
    end: Whole
    length: Whole  # of each piece
    stretch_at: Whole  # where the tasks of each stretch begin in `stretch_tasks`
    stretch_tasks: Whole
    stretch: int  # the length of one
    mean: float  # duration


class Layout(NamedTuple):
    """One plan: where each task is, and what each GPU has given away over time."""

    gpu: Whole
    load: Shares


@njit(cache=True)
def _random(state: State) -> np.uint64:
    number = state[0]
    number ^= number << np.uint64(13)
    number ^= number >> np.uint64(7)
    number ^= number << np.uint64(17)
    state[0] = number
    return number


@njit(cache=True)
def _below(state: State, count: int) -> np.int64:
    return np.int64((_random(state) >> np.uint64(32)) * np.uint64(count) >> np.uint64(32))


@njit(cache=True)
def _unit(state: State) -> float:
    return np.float64(_random(state) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def _fits(load: Shares, first: int, last: int, most: np.uint16) -> bool:
    if load[first] > most or load[last - 1] > most or load[(first + last) >> 1] > most:
        return False
    over = 0
    row = load[first:last]  # a loop over a slice needs no look at each index, so it becomes vector instructions
    for piece in range(row.size):
        over |= row[piece] > most
    return not over


@njit(cache=True)
def _time_at(load: Shares, first: int, last: int, share: np.uint16, length: Whole) -> int:
    """How long exactly so much is given away."""
    total = 0
    row, times = load[first:last], length[first:last]
    for piece in range(row.size):
        total += times[piece] if row[piece] == share else 0
    return total


@njit(cache=True)
def _take_out(batch: Batch, layout: Layout, task: int) -> int:
    """The time that its GPU is not in use any more."""
    load, first, last, share = layout.load[layout.gpu[task]], batch.first[task], batch.last[task], batch.share[task]
    freed = _time_at(load, first, last, share, batch.length)
    row = load[first:last]
    for piece in range(row.size):
        row[piece] -= share
    return freed


@njit(cache=True)
def put(batch: Batch, layout: Layout, task: int, gpu: int) -> int:
    """The time that the GPU is in use for it alone."""
    load, first, last, share = layout.load[gpu], batch.first[task], batch.last[task], batch.share[task]
    added = _time_at(load, first, last, np.uint16(0), batch.length)
    row = load[first:last]
    for piece in range(row.size):
        row[piece] += share
    layout.gpu[task] = gpu
    return added


@njit(cache=True)
def first_fit(batch: Batch, layout: Layout, task: int) -> int:
    most = np.uint16(WHOLE - batch.share[task])
    for gpu in range(len(layout.load)):
        if _fits(layout.load[gpu], batch.first[task], batch.last[task], most):
            return gpu
    return -1


@njit(cache=True)
def _window(batch: Batch, state: State, seed: int) -> tuple[int, int]:
    """Some time around a moment at which this task is there."""
    duration = batch.end[seed] - batch.start[seed]
    moment = batch.start[seed] + _below(state, duration)
    width = np.int64(min(SHORTEST * batch.mean * exp(_unit(state) * WIDENINGS), 2.0 * duration))
    return moment - width // 2, moment + width // 2


@njit(cache=True)
def _some_gpus(batch: Batch, layout: Layout, state: State, seed: int, first: int, count: int) -> np.uint64:
    """The GPU of this task and those of up to three others in the same stretches, as bits."""
    gpus = np.uint64(1) << np.uint64(layout.gpu[seed])
    for _ in range(1 + _below(state, 3)):
        place = first + _below(state, count)
        held = batch.stretch_at[place + 1] - batch.stretch_at[place]
        if held:
            other = batch.stretch_tasks[batch.stretch_at[place] + _below(state, held)]
            gpus |= np.uint64(1) << np.uint64(layout.gpu[other])
    return gpus


@njit(cache=True)
def _choose(batch: Batch, layout: Layout, state: State, chosen: Whole, marks: Whole, mark: int) -> int:
    """Tasks that some GPUs hold in a window around a random task's time; how many."""
    seed = _below(state, len(batch.first))
    low, high = _window(batch, state, seed)
    first = max(0, low) // batch.stretch
    count = min(high // batch.stretch, len(batch.stretch_at) - 2) - first + 1
    gpus = _some_gpus(batch, layout, state, seed, first, count)
    wanted, kept = 2 + _below(state, MOST_REMOVED - 1), _unit(state) * KEPT
    marks[seed], chosen[0], found = mark, seed, 1
    turn = _below(state, count)
    for step in range(count):
        place = first + (turn + step) % count
        begin = batch.stretch_at[place]
        held = batch.stretch_at[place + 1] - begin
        offset = _below(state, max(held, 1))
        for number in range(held):
            task = batch.stretch_tasks[begin + (number + offset) % held]
            if found >= wanted:
                return found
            there = marks[task] != mark and gpus >> np.uint64(layout.gpu[task]) & np.uint64(1)
            if not there or batch.end[task] <= low or batch.start[task] > high:
                continue
            marks[task] = mark
            if _unit(state) >= kept:
                chosen[found] = task
                found += 1
    return found


@njit(cache=True)
def _weigh(batch: Batch, state: State, chosen: Whole, keys: NDArray[np.float64]) -> None:
    """In which order they are put back, the lowest first: one of several rules."""
    rule = _below(state, 6)
    for number in range(len(chosen)):
        task = chosen[number]
        duration, share = float(batch.end[task] - batch.start[task]), float(batch.share[task])
        if rule == 0:
            keys[number] = _unit(state)
        elif rule == 1:
            keys[number] = -duration
        elif rule == 2:
            keys[number] = -share
        elif rule == 3:
            keys[number] = -duration * share
        elif rule == 4:
            keys[number] = batch.start[task]
        else:
            keys[number] = -duration * (share + 0.3 * WHOLE) * (0.7 + 0.6 * _unit(state))


@njit(cache=True)
def _best_gpu(batch: Batch, layout: Layout, state: State, task: int) -> int:
    """The GPU that would be in use for the least more time, by chance among about equals; -1: none.

    Preferring the fullest among equals, or passing some over by chance, made plans worse.
    """
    first, last = batch.first[task], batch.last[task]
    most = np.uint16(WHOLE - batch.share[task])
    best, least = -1, np.inf
    for gpu in range(len(layout.load)):
        load = layout.load[gpu]
        if _fits(load, first, last, most):
            cost = _time_at(load, first, last, np.uint16(0), batch.length) + _unit(state) * ABOUT * batch.mean
            if cost < least:
                best, least = gpu, cost
    return best


@njit(cache=True)
def _put_back(batch: Batch, layout: Layout, state: State, order: Whole, room: int) -> tuple[int, int]:
    """How many were put back, and the time added; fewer than all if one fits nowhere or more than `room` is added."""
    added = 0
    for number in range(len(order)):
        gpu = _best_gpu(batch, layout, state, order[number])
        if gpu < 0 or added > room:
            return number, added
        added += put(batch, layout, order[number], gpu)
    return len(order), added


@njit(cache=True)
def anneal(
    batch: Batch, layout: Layout, best: Whole, state: State, rounds: int, warm: float, cold: float, now: Whole
) -> None:
    """So many rounds from one temperature to another; the plan's time and the best one's, which is copied to `best`."""
    chosen, old = np.empty(MOST_REMOVED + 1, np.int64), np.empty(MOST_REMOVED + 1, np.int64)
    keys = np.empty(MOST_REMOVED + 1)
    marks = np.zeros(len(batch.first), np.int64)
    current, least = now[0], now[1]
    for number in range(rounds):
        heat = warm * (cold / warm) ** (number / rounds)
        found = _choose(batch, layout, state, chosen, marks, number + 1)
        freed = 0
        for place in range(found):
            old[place] = layout.gpu[chosen[place]]
            freed += _take_out(batch, layout, chosen[place])
        _weigh(batch, state, chosen[:found], keys)
        order = chosen[np.argsort(keys[:found])]
        room = freed + np.int64(HOPELESS * heat)
        done, added = _put_back(batch, layout, state, order, room)
        more = added - freed
        if done == found and (more <= 0 or _unit(state) < exp(-more / heat)):
            current += more
            if current < least:
                least = current
                best[:] = layout.gpu
            continue
        for place in range(done):
            _take_out(batch, layout, order[place])
        for place in range(found):
            put(batch, layout, chosen[place], old[place])
    now[0], now[1] = current, least
