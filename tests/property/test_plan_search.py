"""Whatever is planned: a slice has one owner, the size that its first task decides, and is gone once none of its tasks
runs; and no GPU is overfilled."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement.holdings import Slicing
from dgsf.core.placement.needed import gpus_needed
from dgsf.core.placement.pieces import Pieces
from dgsf.core.placement.plan import plan
from dgsf.core.placement.sidebyside import SideBySide

SIZES = (140, 280, 420, 570, 1000)
TASKS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 1000), st.sampled_from("ab")),
    min_size=1,
    max_size=14,
)


def _given(tasks):
    tasks = sorted(tasks)
    sizes = [next(size for size in SIZES if size >= share) for _, _, share, _ in tasks]
    intervals = [(start, start + length, share) for start, length, share, _ in tasks]
    return intervals, Slicing([owner for *_, owner in tasks], sizes)


def _members(bits):
    return [task for task in range(bits.bit_length()) if bits >> task & 1]


@settings(max_examples=100, deadline=None)
@given(tasks=TASKS, order=st.randoms(use_true_random=False))
def test_slices_keep_their_rules_in_any_order(tasks, order):
    intervals, slicing = _given(tasks)
    turns = list(range(len(tasks)))
    order.shuffle(turns)
    found = SideBySide(intervals, slicing).best(turns, 3, float("inf"))
    slices = [[(_members(one.tasks), one.size) for one in gpu.slices] for gpu in found[1]]
    assert sorted(task for gpu in slices for members, _ in gpu for task in members) == sorted(turns)
    for gpu in slices:
        for members, size in gpu:
            assert len({slicing.owners[task] for task in members}) == 1 and size == slicing.sizes[members[0]]
            assert _never_empty(intervals, members)
        for time in range(50):
            inside = [(sum(_share(intervals[task], time) for task in members), size) for members, size in gpu]
            assert all(share <= size for share, size in inside)
            assert sum(size for share, size in inside if share) <= 1000


def _never_empty(intervals, members):
    """Whoever joins finds one that still runs."""
    return all(
        any(intervals[task][1] > intervals[one][0] for task in members[:place])
        for place, one in enumerate(members)
        if place
    )


def _share(interval, time):
    start, end, share = interval
    return share if start <= time < end else 0


@settings(max_examples=50, deadline=None)
@given(tasks=TASKS)
def test_no_plan_is_below_what_is_needed_and_a_finished_one_promises_what_it_pays(tasks):
    intervals, slicing = _given(tasks)
    for rule in (None, slicing):
        pieces = Pieces(intervals)
        needed = gpus_needed(intervals, pieces, rule)
        least = sum(count * pieces.length[1 << piece] for piece, count in enumerate(needed))
        assert plan(intervals, rule, width=4)[1] >= least - 1e-9
        found = SideBySide(intervals, rule).best(range(len(tasks)), 8, float("inf"))
        promised, gpus, _ = found
        paid = sum(pieces.length[gpu.busy] for gpu in gpus)
        assert abs(paid - promised) < 1e-6 and promised >= least - 1e-9


@settings(max_examples=200, deadline=None)
@given(tasks=TASKS.map(lambda tasks: tasks[:5]), order=st.randoms(use_true_random=False))
def test_a_search_that_cuts_nothing_off_finds_the_best_of_all_plans(tasks, order):
    """Free shares in any order; slices in the order of starts: a slice that a task does not overlap has ended then."""
    intervals, slicing = _given(tasks)
    turns = list(range(len(tasks)))
    slices = SideBySide(intervals, slicing).best(turns, 10**6, float("inf"))
    assert slices[0] == min(_costs(intervals, slicing))
    order.shuffle(turns)
    free = SideBySide(intervals, None).best(turns, 10**6, float("inf"))
    assert free[0] == min(_costs(intervals, None))


def _costs(intervals, slicing):
    """Of every plan in which all GPUs and slices have room: each task in any slice of any GPU."""
    for gpus in _splits(list(range(len(intervals)))):
        for gpu_slices in product(*([list(_splits(gpu)) for gpu in gpus] if slicing else [[[gpu]] for gpu in gpus])):
            if all(_has_room(intervals, slicing, groups) for groups in gpu_slices):
                yield sum(any(_share(intervals[task], time) for task in gpu) for gpu in gpus for time in range(50))


def _splits(tasks):
    """Every way to split these into groups."""
    if not tasks:
        yield []
        return
    for groups in _splits(tasks[:-1]):
        for number, group in enumerate(groups):
            yield [*groups[:number], [*group, tasks[-1]], *groups[number + 1 :]]
        yield [*groups, [tasks[-1]]]


def _has_room(intervals, slicing, groups):
    if slicing is None:
        return all(sum(_share(intervals[task], time) for task in groups[0]) <= 1000 for time in range(50))
    if any(len({slicing.owners[task] for task in group}) > 1 for group in groups):
        return False
    if not all(_never_empty(intervals, group) for group in groups):
        return False
    for time in range(50):
        inside = [(sum(_share(intervals[task], time) for task in group), slicing.sizes[group[0]]) for group in groups]
        if any(share > size for share, size in inside) or sum(size for share, size in inside if share) > 1000:
            return False
    return True
