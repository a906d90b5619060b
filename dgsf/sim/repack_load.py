"""What the GPUs of a plan have given away over time, and what a task would add: the arithmetic under `repack_kernel`.

Time is cut where tasks start or end.  The shares given away in several pieces of time are lanes of one machine word, so
an addition and a mask say of eight pieces (four, if shares are no whole hundredths or so) whether a task fits.  The
highest bit of a lane is free: it is where a sum that is too large shows.  Compiled by numba without counts of
references (`_nrt`, an option that numba does not document), which took a third of the time; so nothing here may
allocate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Words = NDArray[np.uint64]
Gpus = NDArray[np.uint8]

NOWHERE = -1
Word = np.uint64
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
compiled = njit(cache=True, _nrt=False)
inlined = njit(cache=True, _nrt=False, inline="always")


class Batch(NamedTuple):
    """What is known of the tasks, in the order of their starts, and which are there in each stretch of time."""

    first: Whole  # piece of time
    last: Whole  # the one after
    low: Whole  # words of these pieces, both inclusive
    high: Whole
    low_mask: Words  # the lanes that are the task's in its first and last words
    high_mask: Words
    spread: Words  # the share in every lane
    share: NDArray[np.float64]  # part of a GPU
    start: Whole
    end: Whole
    at: Whole  # when each piece begins
    earlier: Whole  # how many tasks start before each piece
    opening: Whole  # the first task that starts in each stretch or after it
    standing_at: Whole  # where the tasks of each stretch begin in `standing`
    standing: Whole  # tasks that have started before a stretch and are still there
    stretch: int  # the length of one
    mean: float  # duration
    lane: int  # bits: 1 << lane
    guard: np.uint64  # the highest bits of all lanes
    slack: np.uint64  # what is added to every lane so that more than a whole GPU reaches the highest bit


class Layout(NamedTuple):
    """One plan: where each task is, what each GPU has given away, and which GPUs give anything in each word."""

    gpu: Gpus
    load: Words
    active: Words


@inlined
def lowest(word: np.uint64) -> np.int64:
    """The place of the lowest bit that is set; 64: none is."""
    return np.int64(trailing_zeros(word))


@inlined
def _length(at: Whole, lane: int, idle: np.uint64, word: int) -> int:
    """The time of these pieces, given by the highest bits of their lanes: one difference for each run."""
    base = word << (6 - lane)
    lanes = (idle << Word(1)) - (idle >> Word((1 << lane) - 1))
    total = 0
    while lanes:
        begin = lowest(lanes)
        carried = lanes + (Word(1) << Word(begin))
        total += at[base + (lowest(carried) >> lane)] - at[base + (begin >> lane)]
        lanes &= carried
    return total


@inlined
def _idle(load: np.uint64, mask: np.uint64, guard: np.uint64) -> np.uint64:
    """The highest bits of the lanes that hold nothing."""
    return ~(load + ~guard) & guard & mask


class Span(NamedTuple):
    """The words that a task is in, and what it adds there."""

    low: int
    high: int
    low_mask: np.uint64
    high_mask: np.uint64
    spread: np.uint64


@inlined
def _span(batch: Batch, task: int) -> Span:
    low, high, spread = batch.low[task], batch.high[task], batch.spread[task]
    return Span(low, high, batch.low_mask[task], batch.high_mask[task], spread)


@inlined
def _cost(row: Words, span: Span, most: int, at: Whole, lane: int, guard: np.uint64, slack: np.uint64) -> int:
    """The time that a GPU would be in use for a task alone; NOWHERE: it does not fit, or that is more than `most`.

    Both ends are looked at first: there it fails most often.
    """
    low, high, spread = span.low, span.high, span.spread
    ends = row[low] + (spread & span.low_mask) + slack
    if low < high:
        ends |= row[high] + (spread & span.high_mask) + slack
    if ends & guard:
        return NOWHERE
    total = 0
    idle = _idle(row[low], span.low_mask, guard)
    if idle:
        total += _length(at, lane, idle, low)
    if low < high:
        idle = _idle(row[high], span.high_mask, guard)
        if idle:
            total += _length(at, lane, idle, high)
    if total > most:
        return NOWHERE
    for word in range(low + 1, high):
        if (row[word] + spread + slack) & guard:
            return NOWHERE
        idle = _idle(row[word], ALL, guard)
        if idle:
            total += _length(at, lane, idle, word)
            if total > most:
                return NOWHERE
    return total


@compiled
def _add(row: Words, active: Words, bit: np.uint64, span: Span) -> None:
    low, high, spread = span.low, span.high, span.spread
    row[low] += spread & span.low_mask
    if low < high:
        row[high] += spread & span.high_mask
    inner, there = row[low + 1 : high], active[low : high + 1]
    for word in range(inner.size):
        inner[word] += spread
    for word in range(there.size):
        there[word] |= bit


@compiled
def _subtract(row: Words, active: Words, bit: np.uint64, span: Span) -> None:
    low, high, spread = span.low, span.high, span.spread
    row[low] -= spread & span.low_mask
    if low < high:
        row[high] -= spread & span.high_mask
    inner, whole, there = row[low + 1 : high], row[low : high + 1], active[low : high + 1]
    for word in range(inner.size):
        inner[word] -= spread
    for word in range(there.size):
        there[word] &= ~(Word(0) if whole[word] else bit)


@compiled
def _freed(row: Words, span: Span, at: Whole, lane: int, guard: np.uint64) -> int:
    """How long nothing is left where a task was."""
    total = 0
    for word in range(span.low, span.high + 1):
        mask = ALL
        if word == span.low:
            mask &= span.low_mask
        if word == span.high:
            mask &= span.high_mask
        idle = _idle(row[word], mask, guard)
        if idle:
            total += _length(at, lane, idle, word)
    return total


@inlined
def put(batch: Batch, layout: Layout, task: int, gpu: int) -> None:
    _add(layout.load[gpu], layout.active, Word(1) << Word(gpu), _span(batch, task))


@inlined
def drop(batch: Batch, layout: Layout, task: int, gpu: int) -> None:
    _subtract(layout.load[gpu], layout.active, Word(1) << Word(gpu), _span(batch, task))


@inlined
def take_out(batch: Batch, layout: Layout, task: int, gpu: int) -> int:
    """The time that its GPU is not in use any more."""
    span, row = _span(batch, task), layout.load[gpu]
    _subtract(row, layout.active, Word(1) << Word(gpu), span)
    return _freed(row, span, batch.at, batch.lane, batch.guard)


@compiled
def cheapest(batch: Batch, layout: Layout, task: int, most: int, turn: int) -> tuple[int, int]:
    """The GPU that would be in use for the least more time, and that time; NOWHERE if it is more than `most`.

    GPUs are tried from `turn` on, round and round, so that about equals have about equal chances; the first that costs
    nothing is taken.  Of those that are idle all the while, one stands for all.
    """
    span, load = _span(batch, task), layout.load
    on = Word(0)
    for word in range(span.low, span.high + 1):
        on |= layout.active[word]
    later = ALL << Word(turn)
    best, least = NOWHERE, most
    for part in (on & later, on & ~later):
        left = part
        while left:
            gpu = lowest(left)
            left &= left - Word(1)
            cost = _cost(load[gpu], span, least, batch.at, batch.lane, batch.guard, batch.slack)
            if cost == 0:
                return gpu, cost
            if cost > 0 and (cost < least or best < 0):
                best, least = gpu, cost
    alone, idle = batch.at[batch.last[task]] - batch.at[batch.first[task]], lowest(~on)
    if idle < len(load) and (alone < least or (best < 0 and alone == least)):
        return idle, alone
    return best, least


@compiled
def fill(batch: Batch, layout: Layout) -> int:
    """First fit for all tasks, in the order of their starts: the time in use; NOWHERE if one fits on no GPU."""
    total = 0
    for task in range(len(layout.gpu)):
        span, gpu, cost = _span(batch, task), 0, NOWHERE
        for gpu in range(len(layout.load)):
            cost = _cost(layout.load[gpu], span, batch.at[-1], batch.at, batch.lane, batch.guard, batch.slack)
            if cost >= 0:
                break
        if cost < 0:
            return NOWHERE
        put(batch, layout, task, gpu)
        layout.gpu[task] = gpu
        total += cost
    return total


@compiled
def exchange(batch: Batch, layout: Layout, piece: int, one: int, other: int) -> None:
    """What two GPUs hold from a piece of time on changes places, or what they hold before it if that is less.

    No task of theirs may be there on both sides.
    """
    lanes = 64 >> batch.lane
    here, words = piece // lanes, layout.load.shape[1]
    mask = ALL << Word(piece % lanes << batch.lane)
    begin, end, since, until = here + 1, words, batch.earlier[piece], len(layout.gpu)
    if 2 * here < words:
        begin, end, since, until, mask = 0, here, 0, batch.earlier[piece], ~mask
    ours, theirs = layout.load[one], layout.load[other]
    differ = (ours[here] ^ theirs[here]) & mask
    ours[here] ^= differ
    theirs[here] ^= differ
    _exchange_words(ours[begin:end], theirs[begin:end])
    low, high = min(begin, here), max(end, here + 1)
    _mark(layout.active[low:high], ours[low:high], Word(1) << Word(one))
    _mark(layout.active[low:high], theirs[low:high], Word(1) << Word(other))
    _exchange_names(layout.gpu[since:until], np.uint8(one), np.uint8(other))


@compiled
def _exchange_words(ours: Words, theirs: Words) -> None:
    for word in range(ours.size):
        kept = ours[word]
        ours[word] = theirs[word]
        theirs[word] = kept


@compiled
def _mark(active: Words, row: Words, bit: np.uint64) -> None:
    for word in range(row.size):
        active[word] = active[word] & ~bit | (bit if row[word] else Word(0))


@compiled
def _exchange_names(gpus: Gpus, one: np.uint8, other: np.uint8) -> None:
    for task in range(gpus.size):
        gpu = gpus[task]
        gpus[task] = other if gpu == one else (one if gpu == other else gpu)
