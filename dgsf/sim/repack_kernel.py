"""The inner loop of `repack`: takes some tasks out of a plan and puts them back in another way, millions of times.

Compiled by numba.  Times are whole and random numbers are made here, so the same seed gives the same plan.  Never
allocates: what it needs is given.  What the GPUs hold is the business of `repack_load`.
"""

from __future__ import annotations

from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dgsf.sim.repack_load import Batch, Layout, Whole, Word, cheapest, compiled, drop, exchange, inlined, put, take_out

MOST_REMOVED = 60
SHORTEST, WIDENINGS = 0.05, 5.0  # a window is this part of the mean duration, times up to e to this power
KEPT = 0.3  # the most of a window's tasks that stay by chance, however short
OTHERS = 3  # at most so many GPUs besides the one of the task that is chosen first
EXCHANGES = 0.2  # the part of the rounds in which two GPUs exchange what they hold from a moment on
HOPELESS = 0.8  # the part that is given up at once of the rounds in which no time can be won
NEAR, VISIT = 100, 64  # so many rounds begin with one of so many tasks that follow each other: they stay in the cache
RULES = 5

State = NDArray[np.uint64]  # of the random numbers, one


class Scratch(NamedTuple):
    """Room for one round."""

    pool: Whole  # tasks that are there in a window
    chosen: Whole  # those that are taken out
    gpus: Whole  # where they go
    keys: NDArray[np.float64]  # the lowest is put back first
    cut: Whole  # the piece at which two GPUs exchange, or -1, and the two


@inlined
def _random(state: State) -> np.uint64:
    number = state[0]
    number ^= number << Word(13)
    number ^= number >> Word(7)
    number ^= number << Word(17)
    state[0] = number
    return number


@inlined
def _below(state: State, count: int) -> np.int64:
    return np.int64((_random(state) >> Word(32)) * Word(count) >> Word(32))


@inlined
def _unit(state: State) -> float:
    return np.float64(_random(state) >> Word(11)) / 9007199254740992.0


@compiled
def _gather(batch: Batch, pool: Whole, low: int, high: int) -> int:
    """The tasks that are there in a window; how many."""
    found, stretch = 0, low // batch.stretch
    for place in range(batch.standing_at[stretch], batch.standing_at[stretch + 1]):
        task = batch.standing[place]
        if batch.end[task] > low:
            pool[found] = task
            found += 1
    for task in range(batch.opening[stretch], len(batch.start)):
        if batch.start[task] > high:
            break
        if batch.end[task] > low:
            pool[found] = task
            found += 1
    return found


@compiled
def _piece_at(at: Whole, first: int, last: int, moment: int) -> int:
    while last - first > 1:
        middle = (first + last) >> 1
        if at[middle] <= moment:
            first = middle
        else:
            last = middle
    return first


@compiled
def _choose(batch: Batch, layout: Layout, room: Scratch, state: State, near: int) -> int:
    """Tasks that some GPUs hold in a window around the time of one of those that are near; how many.

    The longer a task is beside the window, the more often it stays: there is no other place for it.  If two GPUs are
    to exchange what they hold from a moment on, all their tasks of that moment are among the chosen.
    """
    gpu, tasks = layout.gpu, len(batch.start)
    seed = (near + _below(state, min(NEAR, tasks))) % tasks
    moment = batch.start[seed] + np.int64(_unit(state) * (batch.end[seed] - batch.start[seed]))
    width = np.int64(SHORTEST * batch.mean * exp(_unit(state) * WIDENINGS))
    half = max(np.int64(1), width // 2)  # who ends within the tick of a cut is still there on both sides of it
    found = _gather(batch, room.pool, max(np.int64(0), moment - half), moment + half)
    one = other = gpu[seed]
    gpus = Word(1) << Word(one)
    for _ in range(1 + _below(state, OTHERS)):
        third = gpu[room.pool[_below(state, found)]]
        other = third if third != one else other
        gpus |= Word(1) << Word(third)
    room.chosen[0], room.cut[0], count = seed, -1, 1
    if _unit(state) < EXCHANGES and one != other:
        room.cut[0] = _piece_at(batch.at, batch.first[seed], batch.last[seed], moment)
        room.cut[1], room.cut[2] = one, other
        count = _cross(batch, layout, room, found)
    wanted, kept, turn = 2 + _below(state, MOST_REMOVED - 1), _unit(state) * KEPT, _below(state, found)
    for number in range(found):
        if count >= wanted:
            break
        task = room.pool[number + turn - (found if number + turn >= found else 0)]
        if task == seed or not gpus >> Word(gpu[task]) & Word(1) or _unit(state) < kept:
            continue
        if (batch.end[task] - batch.start[task]) * _unit(state) < width and not _crosses(batch, layout, room, task):
            room.chosen[count] = task
            count += 1
    return count


@inlined
def _crosses(batch: Batch, layout: Layout, room: Scratch, task: int) -> bool:
    """Whether a task of the two that exchange is there on both sides of the cut."""
    ours = layout.gpu[task] == room.cut[1] or layout.gpu[task] == room.cut[2]
    return ours and batch.first[task] < room.cut[0] and batch.last[task] > room.cut[0]


@compiled
def _cross(batch: Batch, layout: Layout, room: Scratch, found: int) -> int:
    """Choose all tasks that cross the cut; there is no cut if they are too many."""
    count = 1
    for number in range(found):
        task = room.pool[number]
        if task != room.chosen[0] and _crosses(batch, layout, room, task):
            if count == MOST_REMOVED:
                room.cut[0] = -1
                return 1
            room.chosen[count] = task
            count += 1
    return count


@compiled
def _order(batch: Batch, room: Scratch, state: State, count: int) -> None:
    """Sort the chosen as they are put back, by one of several rules.

    By chance alone, or by share alone, a round was four times as seldom of use.
    """
    rule = _below(state, RULES)
    for number in range(count):
        task = room.chosen[number]
        duration, share = float(batch.end[task] - batch.start[task]), batch.share[task]
        if rule == 0:
            key = -duration
        elif rule == 1:
            key = -float(batch.end[task])
        elif rule == 2:
            key = -duration * share
        elif rule == 3:
            key = float(batch.start[task])
        else:
            key = -duration * (share + 0.3) * (0.7 + 0.6 * _unit(state))
        place = number
        while place > 0 and room.keys[place - 1] > key:
            room.keys[place], room.chosen[place] = room.keys[place - 1], room.chosen[place - 1]
            place -= 1
        room.keys[place], room.chosen[place] = key, task


@compiled
def _put_back(batch: Batch, layout: Layout, room: Scratch, state: State, count: int, most: int) -> tuple[int, int]:
    """How many were put back, and the time added; fewer than all if one fits nowhere or more than `most` is added."""
    added = 0
    for number in range(count):
        task, turn = room.chosen[number], _below(state, len(layout.load))
        gpu, cost = cheapest(batch, layout, task, most - added, turn)
        if gpu < 0:
            return number, added
        put(batch, layout, task, gpu)
        room.gpus[number] = gpu
        added += cost
    return count, added


@compiled
def _round(batch: Batch, layout: Layout, room: Scratch, state: State, near: int, heat: float) -> int:
    """The time that is won or, with some luck, lost; nothing, and the plan as it was, if that would be too much.

    What luck allows is drawn first, so that a round ends as soon as it cannot succeed.
    """
    count, freed = _choose(batch, layout, room, state, near), 0
    _order(batch, room, state, count)
    for number in range(count):
        task = room.chosen[number]
        freed += take_out(batch, layout, task, layout.gpu[task])
    done, given_up = 0, freed == 0 and _unit(state) < HOPELESS
    if not given_up:
        if room.cut[0] >= 0:
            exchange(batch, layout, room.cut[0], room.cut[1], room.cut[2])
        most = freed - np.int64(heat * log(1.0 - _unit(state)))
        done, added = _put_back(batch, layout, room, state, count, most)
        if done == count:
            for number in range(count):
                layout.gpu[room.chosen[number]] = room.gpus[number]
            return freed - added
        for number in range(done):
            drop(batch, layout, room.chosen[number], room.gpus[number])
        if room.cut[0] >= 0:
            exchange(batch, layout, room.cut[0], room.cut[1], room.cut[2])
    for number in range(count):
        put(batch, layout, room.chosen[number], layout.gpu[room.chosen[number]])
    return 0


@compiled
def anneal(
    batch: Batch,
    layout: Layout,
    best: NDArray[np.uint8],
    room: Scratch,
    state: State,
    rounds: int,
    warm: float,
    cold: float,
    now: Whole,
) -> None:
    """So many rounds from one temperature to another; the plan's time and the best one's, which is copied to `best`."""
    near = 0
    for number in range(rounds):
        if number % VISIT == 0:
            near = _below(state, len(batch.start))
        heat = warm * exp(log(cold / warm) * number / rounds)
        now[0] -= _round(batch, layout, room, state, near, heat)
        if now[0] < now[1]:
            now[1] = now[0]
            for task in range(len(best)):
                best[task] = layout.gpu[task]
